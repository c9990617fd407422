// The tools of a request, as far as reading calls needs them: names, and the types of parameters.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/answer/json_scan.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class OfferedTools {
 public:
  OfferedTools() = default;

  /// A JSON list in OpenAI's form. Throws Error ("json.…", "chat.bad-options").
  explicit OfferedTools(std::string_view list) {
    if (list.empty()) return;
    const OwnedJson tools = parse_json(list, "tools", "Send the tools as a JSON list");
    if (!tools.is_array()) {
      throw Error("chat.bad-options", text("'tools' of a chat are ", tools.type_name(), ", expected a list"),
                  "Send them as a JSON list");
    }
    for (const Json& tool : tools) {
      const Json* const function = member(tool, "function");
      const Json* const name = function == nullptr ? nullptr : member(*function, "name");
      if (name == nullptr || !name->is_string()) continue;
      Tool made{name->get<std::string>(), {}};
      const Json* const schema = member(*function, "parameters");
      const Json* const properties = schema == nullptr ? nullptr : member(*schema, "properties");
      if (properties != nullptr && properties->is_object()) {
        for (const auto& [key, property] : properties->items()) made.types.emplace_back(key, types_of(property));
      }
      tools_.push_back(std::move(made));
    }
  }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  /// An argument that the model wrote without quotes, as JSON: the schema's type decides. Other types of a union have
  /// priority over strings. A text that does not fit, or has no known type, is a string.
  std::string typed(std::string_view tool, std::string_view parameter, std::string_view raw) const {
    if (const Tool* const found = find(tool)) {
      for (const auto& [name, types] : found->types) {
        if (name != parameter) continue;
        for (const std::string& type : types) {
          std::string read = read_as(type, trimmed(raw));
          if (!read.empty()) return read;
        }
      }
    }
    return quoted_json(raw);
  }

 private:
  struct Tool {
    std::string name;
    std::vector<std::pair<std::string, std::vector<std::string>>> types;  // by parameter
  };

  static const Json* member(const Json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  static std::vector<std::string> types_of(const Json& property) {
    std::vector<std::string> types;
    const auto add = [&types](const Json& type) {
      if (type.is_string()) types.push_back(type.get<std::string>());
    };
    if (const Json* const type = member(property, "type")) {
      add(*type);
      if (type->is_array()) std::for_each(type->begin(), type->end(), add);
    }
    for (const char* const name : {"anyOf", "oneOf"}) {
      const Json* const choices = member(property, name);
      if (choices == nullptr || !choices->is_array()) continue;
      for (const Json& choice : *choices) {
        if (const Json* const type = member(choice, "type")) add(*type);
      }
    }
    return types;
  }

  const Tool* find(std::string_view name) const {
    const auto found =
        std::find_if(tools_.begin(), tools_.end(), [name](const Tool& tool) { return tool.name == name; });
    return found == tools_.end() ? nullptr : &*found;
  }

  /// The text as JSON of the type; empty: it is no such value.
  static std::string read_as(const std::string& type, std::string_view raw) {
    if (type == "string") return {};
    if (raw == "null") return "null";
    std::string lower(raw.substr(0, 6));
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    if (type == "boolean") return lower == "true" || lower == "false" ? lower : std::string{};
    Scanner scan(raw, 0, true);
    if (raw.empty() || !scan_json(scan) || !scan.at_end()) return {};
    const bool is_number = raw.front() == '-' || (raw.front() >= '0' && raw.front() <= '9');
    const bool fits = type == "number"    ? is_number
                      : type == "integer" ? is_number && raw.find_first_of(".eE") == raw.npos
                      : type == "array"   ? raw.front() == '['
                                          : type == "object" && raw.front() == '{';
    if (!fits) return {};
    // The reader of requests must accept the value, too.
    return is_json_object(text("{\"a\":", raw, "}")) ? std::string(raw) : std::string{};
  }

  std::vector<Tool> tools_;
};

}}}
