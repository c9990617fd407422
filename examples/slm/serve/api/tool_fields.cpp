#include "api/tool_fields.hpp"

#include <algorithm>
#include <string_view>

namespace serve {

namespace {

constexpr std::size_t most_tools = 128, longest_tool_name = 64;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_tool_name && std::all_of(name.begin(), name.end(), [](char byte) {
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return letter || (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
  });
}

/// The name of a function, checked.
std::string name_of(const char* field, const slm::Json& tool) {
  const slm::Json* const type = tool.is_object() ? Fields(tool).find("type") : nullptr;
  const slm::Json* function = nullptr;
  if (tool.is_object() && (type == nullptr || *type == "function")) function = Fields(tool).find("function");
  if (function == nullptr || !function->is_object()) {
    throw Fields::bad(field, tool, "objects with the `type` function and an object `function`");
  }
  const slm::Json* name = Fields(*function).find("name");
  if (name == nullptr || !name->is_string() || !is_name(name->get_ref<const std::string&>())) {
    throw Fields::bad(field, *function, "a `name` of 1 to 64 letters, digits and the signs _ - .");
  }
  return name->get<std::string>();
}

void read_list(const Fields& fields, ToolFields& tools) {
  const slm::Json* list = fields.find("tools");
  if (list == nullptr) return;
  if (list->size() > most_tools) {
    throw bad_field("tools", slm::text("has ", list->size(), " tools, expected at most ", most_tools));
  }
  for (const slm::Json& tool : *list) {
    tools.names.push_back(name_of("tools", tool));
    const slm::Json* parameters = Fields(tool["function"]).find("parameters");
    if (parameters != nullptr && !parameters->is_object()) {
      throw Fields::bad("tools", *parameters, "a JSON schema as `parameters`");
    }
  }
  tools.list = fields.text("tools");
}

}  // namespace

ToolFields read_tools(const Fields& fields) {
  ToolFields tools;
  read_list(fields, tools);
  tools.parallel = fields.boolean("parallel_tool_calls", true);
  if (!tools.names.empty()) tools.choice = ToolChoice::automatic;
  const slm::Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return tools;
  if (*choice == "none") return {};
  constexpr std::string_view expected = "none, auto, required, or an object that names a function";
  if (!choice->is_object() && *choice != "required") throw Fields::bad("tool_choice", *choice, expected);
  if (tools.names.empty()) throw bad_field("tool_choice", "wants a call, but the request has no `tools`");
  tools.choice = ToolChoice::required;
  if (!choice->is_object()) return tools;
  tools.named = name_of("tool_choice", *choice);
  if (std::find(tools.names.begin(), tools.names.end(), tools.named) == tools.names.end()) {
    throw bad_field("tool_choice", slm::text("names ", slm::quote(tools.named), ", expected one of the `tools`"));
  }
  return tools;
}

}  // namespace serve
