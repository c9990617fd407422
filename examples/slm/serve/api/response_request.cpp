#include "api/response_request.hpp"

#include <array>
#include <utility>

namespace serve {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> response_names{
    {{"messages", "input"},
     {"max_completion_tokens", "max_output_tokens"},
     {"response_format", "text"},
     {"reasoning_effort", "reasoning"}}};

Refusal bad_item(const slm::Json& item, std::string_view expected) { return Fields::bad("input", item, expected); }

std::string string_in(const slm::Json& item, const char* name) {
  const slm::Json* value = Fields(item).find(name);
  if (value == nullptr || !value->is_string()) throw bad_item(item, slm::text("a string as `", name, "` of an item"));
  return value->get<std::string>();
}

/// Calls visit(text) for a text, or for the texts of parts.
template <class Visit>
void each_text(const slm::Json& item, const char* name, Visit&& visit) {
  const slm::Json* content = Fields(item).find(name);
  if (content != nullptr && content->is_string()) return visit(content->get<std::string>());
  if (content == nullptr || !content->is_array()) {
    throw bad_item(item, slm::text("a string or a list of parts as `", name, "`"));
  }
  for (const slm::Json& part : *content) {
    if (!part.is_object()) throw bad_item(part, "objects as parts");
    const std::string type = Fields(part).string("type", "");
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
                         type == "summary_text";
    if (!is_text) throw unsupported("input", slm::text("A part of the type ", slm::quote(type)));
    visit(string_in(part, "text"));
  }
}

OrderedJson content_of(const slm::Json& item, const char* name) {
  OrderedJson parts = OrderedJson::array();
  each_text(item, name, [&](const std::string& text) { parts.push_back({{"type", "text"}, {"text", text}}); });
  if (parts.empty()) return "";
  return parts.size() == 1 ? parts[0]["text"] : parts;
}

/// Writes the messages of items. Neighbouring items of the assistant are one message.
class Conversation {
 public:
  explicit Conversation(OrderedJson& messages) : messages_(messages) {}

  void add(const slm::Json& item) {
    if (!item.is_object()) throw bad_item(item, "objects as items");
    const std::string type = Fields(item).string("type", "message");
    if (type == "message") {
      add_message(item);
    } else if (type == "reasoning") {
      const bool is_whole = Fields(item).has("content");
      each_text(item, is_whole ? "content" : "summary", [this](const std::string& text) { assistant_.think(text); });
    } else if (type == "function_call") {
      assistant_.call(string_in(item, "call_id"), string_in(item, "name"), string_in(item, "arguments"));
    } else if (type == "function_call_output") {
      add_other(
          {{"role", "tool"}, {"tool_call_id", string_in(item, "call_id")}, {"content", content_of(item, "output")}});
    } else {
      throw unsupported("input", slm::text("An item of the type ", slm::quote(type)));
    }
  }

  void finish() {
    if (!assistant_.empty()) messages_.push_back(std::exchange(assistant_, {}).json());
  }

 private:
  void add_message(const slm::Json& item) {
    const std::string role = string_in(item, "role");
    if (role == "assistant") {
      each_text(item, "content", [this](const std::string& text) { assistant_.say(text); });
    } else if (role == "user" || role == "system" || role == "developer") {
      add_other({{"role", role}, {"content", content_of(item, "content")}});
    } else {
      throw bad_item(item, "user, assistant, system or developer as `role`");
    }
  }

  void add_other(OrderedJson message) {
    finish();
    messages_.push_back(std::move(message));
  }

  OrderedJson& messages_;
  AssistantMessage assistant_;
};

void read_input(const Fields& fields, OrderedJson& chat) {
  const slm::Json* input = fields.find("input");
  const bool is_list = input != nullptr && input->is_array() && !input->empty();
  if (!is_list && (input == nullptr || !input->is_string())) {
    throw bad_field("input", "is absent or neither a text nor a list of items");
  }
  OrderedJson& messages = chat["messages"] = OrderedJson::array();
  if (const std::string text = fields.string("instructions", ""); !text.empty()) {
    messages.push_back({{"role", "system"}, {"content", text}});
  }
  if (!is_list) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return;
  }
  Conversation conversation(messages);
  for (const slm::Json& item : *input) conversation.add(item);
  conversation.finish();
}

void read_response_tools(const Fields& fields, OrderedJson& chat) {
  if (const slm::Json* list = fields.find("tools")) {
    OrderedJson& tools = chat["tools"] = OrderedJson::array();
    each_item(*list, fields.text("tools"), [&](const slm::Json& tool, std::string_view source) {
      if (!tool.is_object()) throw Fields::bad("tools", tool, "objects with `type` and `name`");
      const Fields described(tool, source);
      const std::string type = described.string("type", "");
      if (type != "function") throw unsupported("tools", slm::text("A tool of the type ", slm::quote(type)));
      tools.push_back(function_tool(tool, described.text("parameters")));
    });
  }
  const slm::Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (!choice->is_object()) {
    chat["tool_choice"] = *choice;
    return;
  }
  const Fields members(*choice);
  if (members.string("type", "") != "function") {
    throw Fields::bad("tool_choice", *choice, "none, auto, required, or an object with the `type` function");
  }
  chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", members.string("name", "")}}}};
}

}  // namespace

ChatBody chat_of_responses(slm::Json& body, std::string_view source, bool strict) {
  ChatBody chat;
  chat.ignored = check_fields(body, on_responses, strict);
  const Fields fields(body, source);
  chat.copy(body, fields,
            {"input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens", "metadata",
             "stream_options"});
  read_input(fields, chat.fields);
  read_response_tools(fields, chat.fields);
  if (const auto most = fields.integer("max_output_tokens")) chat.fields["max_completion_tokens"] = *most;
  if (const slm::Json* text = fields.find("text")) {
    const std::string written = fields.text("text");
    const Fields members(*text, written);
    if (members.has("format")) chat.fields["response_format"] = OrderedJson::parse(members.text("format"));
  }
  if (const slm::Json* reasoning = fields.find("reasoning")) {
    const std::string effort = Fields(*reasoning).string("effort", "");
    if (!effort.empty()) chat.fields["reasoning_effort"] = effort;
  }
  return chat;
}

OrderedJson repeated_fields(const slm::Json& body, std::string_view source) {
  const Fields fields(body, source);
  OrderedJson repeated = OrderedJson::object();
  const auto repeat = [&](const char* name, OrderedJson otherwise) {
    repeated[name] = fields.has(name) ? OrderedJson::parse(fields.text(name)) : std::move(otherwise);
  };
  repeat("instructions", nullptr);
  repeat("max_output_tokens", nullptr);
  repeat("metadata", OrderedJson::object());
  repeat("parallel_tool_calls", true);
  repeat("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
  repeat("text", {{"format", {{"type", "text"}}}});
  repeat("tool_choice", "auto");
  repeat("tools", OrderedJson::array());
  for (const char* name : {"temperature", "top_p"}) {
    if (fields.has(name)) repeat(name, nullptr);
  }
  repeated["previous_response_id"] = nullptr;
  repeated["truncation"] = "disabled";
  repeated["background"] = false;
  repeated["store"] = false;
  return repeated;
}

FieldNames names_in_responses() { return response_names; }

}  // namespace serve
