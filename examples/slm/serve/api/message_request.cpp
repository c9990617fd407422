#include "api/message_request.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace serve {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> message_names{
    {{"stop", "stop_sequences"},
     {"response_format", "output_config"},
     {"reasoning_effort", "output_config"},
     {"reasoning_budget_tokens", "thinking"}}};

Refusal bad_block(const slm::Json& block, std::string_view expected) {
  return Fields::bad("messages", block, expected);
}

std::string string_in(const slm::Json& block, const char* name) {
  const slm::Json* value = Fields(block).find(name);
  if (value == nullptr || !value->is_string()) throw bad_block(block, slm::text("a string as `", name, "` of a block"));
  return value->get<std::string>();
}

/// Clients stamp the first line of the system text: a stamp that changes would keep requests from sharing pages.
std::string without_stamp(std::string text) {
  if (!text.starts_with("x-anthropic-billing-header:")) return text;
  const std::size_t stamp = text.find("cch="), line = text.find('\n');
  if (stamp < line) text.erase(stamp, std::min(text.find_first_of(";\n", stamp), text.size()) - stamp);
  return text;
}

/// A text, or the texts of blocks, as a chat's content. field: of the request.
OrderedJson content_of(const char* field, const slm::Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw Fields::bad(field, content, "a string or a list of blocks");
  OrderedJson parts = OrderedJson::array();
  for (const slm::Json& block : content) {
    if (!block.is_object()) throw Fields::bad(field, block, "objects as blocks");
    const std::string type = Fields(block).string("type", "");
    if (type != "text") throw unsupported(field, slm::text("A block of the type ", slm::quote(type), " here"));
    parts.push_back({{"type", "text"}, {"text", string_in(block, "text")}});
  }
  if (parts.empty()) return "";
  return parts.size() == 1 ? parts[0]["text"] : parts;
}

/// Blocks of neighbouring messages with one role.
struct Turn {
  bool user = true;
  std::vector<std::pair<slm::Json, std::string>> blocks = {};  // with their JSON text
};

std::vector<Turn> turns_of(const slm::Json& messages, std::string_view source) {
  std::vector<Turn> turns;
  each_item(messages, source, [&](const slm::Json& message, std::string_view written) {
    if (!message.is_object()) throw bad_block(message, "objects with `role` and `content`");
    const Fields fields(message, written);
    const std::string role = fields.string("role", "");
    if (role != "user" && role != "assistant") throw bad_block(message, "user or assistant as `role`");
    const slm::Json* content = fields.find("content");
    if (content == nullptr || !(content->is_string() || content->is_array())) {
      throw bad_block(message, "a string or a list of blocks as `content`");
    }
    if (content->empty()) throw bad_block(message, "at least one block as `content`");
    if (turns.empty() || turns.back().user != (role == "user")) turns.push_back({role == "user"});
    auto& blocks = turns.back().blocks;
    if (content->is_string()) {
      slm::Json block{{"type", "text"}, {"text", *content}};
      blocks.emplace_back(std::move(block), std::string{});
      return;
    }
    each_item(*content, fields.text("content"), [&](const slm::Json& block, std::string_view block_source) {
      if (!block.is_object()) throw bad_block(block, "objects as blocks");
      blocks.emplace_back(block, std::string{block_source});
    });
  });
  return turns;
}

/// The results of tools precede the text of the user.
void add_user(const Turn& turn, OrderedJson& messages) {
  slm::Json texts = slm::Json::array();
  for (const auto& [block, source] : turn.blocks) {
    if (Fields(block).string("type", "") != "tool_result") {
      texts.push_back(block);
      continue;
    }
    const slm::Json* content = Fields(block).find("content");
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", string_in(block, "tool_use_id")},
                        {"content", content == nullptr ? OrderedJson("") : content_of("messages", *content)}});
  }
  if (!texts.empty()) messages.push_back({{"role", "user"}, {"content", content_of("messages", texts)}});
}

void add_assistant(const Turn& turn, OrderedJson& messages) {
  AssistantMessage message;
  for (const auto& [block, source] : turn.blocks) {
    const std::string type = Fields(block).string("type", "");
    if (type == "text") {
      message.say(string_in(block, "text"));
    } else if (type == "thinking") {
      message.think(string_in(block, "thinking"));
    } else if (type == "tool_use") {
      const Fields fields(block, source);
      const slm::Json* input = fields.find("input");
      if (input == nullptr || !input->is_object()) throw bad_block(block, "an object as `input` of a block");
      message.call(string_in(block, "id"), string_in(block, "name"), fields.text("input"));
    } else {
      throw unsupported("messages", slm::text("A block of the type ", slm::quote(type), " in an assistant's message"));
    }
  }
  messages.push_back(message.json());
}

void read_messages(const Fields& fields, OrderedJson& chat) {
  const slm::Json* list = fields.find("messages");
  if (list == nullptr || list->empty()) throw bad_field("messages", "is absent or empty, expected a list of messages");
  OrderedJson& messages = chat["messages"] = OrderedJson::array();
  if (const slm::Json* system = fields.find("system")) {
    OrderedJson content = content_of("system", *system);
    OrderedJson& first = content.is_array() ? content[0]["text"] : content;
    first = without_stamp(first.get<std::string>());
    messages.push_back({{"role", "system"}, {"content", std::move(content)}});
  }
  const std::vector<Turn> turns = turns_of(*list, fields.text("messages"));
  for (const Turn& turn : turns) {
    if (turn.user) {
      add_user(turn, messages);
    } else {
      add_assistant(turn, messages);
    }
  }
  if (turns.back().user) return;
  if (messages.back().contains("tool_calls")) {
    throw bad_field("messages", "ends with calls, expected their results");
  }
  chat["continue_final_message"] = true;
}

void read_message_tools(const Fields& fields, OrderedJson& chat) {
  if (const slm::Json* list = fields.find("tools")) {
    OrderedJson& tools = chat["tools"] = OrderedJson::array();
    each_item(*list, fields.text("tools"), [&](const slm::Json& tool, std::string_view source) {
      if (!tool.is_object()) throw Fields::bad("tools", tool, "objects with `name` and `input_schema`");
      const Fields described(tool, source);
      const std::string type = described.string("type", "custom");
      if (type != "custom") throw unsupported("tools", slm::text("A tool of the type ", slm::quote(type)));
      tools.push_back(function_tool(tool, described.text("input_schema")));
    });
  }
  const slm::Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  const Fields members(*choice);
  const std::string type = members.string("type", "");
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", members.string("name", "")}}}};
  } else if (type == "auto" || type == "none" || type == "any") {
    chat["tool_choice"] = type == "any" ? "required" : type;
  } else {
    throw Fields::bad("tool_choice", *choice, "an object with the `type` auto, any, tool or none");
  }
  if (members.boolean("disable_parallel_tool_use", false)) chat["parallel_tool_calls"] = false;
}

void read_thinking(const Fields& fields, OrderedJson& chat) {
  const slm::Json* thinking = fields.find("thinking");
  if (thinking == nullptr) return;
  const Fields members(*thinking);
  const std::string type = members.string("type", "");
  if (type == "adaptive") return;
  if (type != "enabled" && type != "disabled") {
    throw Fields::bad("thinking", *thinking, "an object with the `type` enabled, disabled or adaptive");
  }
  chat["enable_thinking"] = type == "enabled";
  if (type == "disabled" || !members.has("budget_tokens")) return;
  const auto budget = members.integer("budget_tokens");
  if (*budget < 1 || *budget > (1 << 30)) throw Fields::bad("thinking", *thinking, "`budget_tokens` of 1 or more");
  chat["reasoning_budget_tokens"] = *budget;
}

void read_output_config(const Fields& fields, OrderedJson& chat) {
  const slm::Json* config = fields.find("output_config");
  if (config == nullptr) return;
  const std::string written = fields.text("output_config");
  const Fields members(*config, written);
  if (const std::string effort = members.string("effort", ""); !effort.empty()) chat["reasoning_effort"] = effort;
  const slm::Json* format = members.find("format");
  if (format == nullptr) return;
  if (!format->is_object() || Fields(*format).string("type", "") != "json_schema") {
    throw Fields::bad("output_config", *format, "an object with the `type` json_schema as `format`");
  }
  chat["response_format"] = OrderedJson::parse(members.text("format"));
}

}  // namespace

ChatBody chat_of_messages(slm::Json& body, std::string_view source, bool strict) {
  ChatBody chat;
  chat.ignored = check_fields(body, on_messages, strict);
  const Fields fields(body, source);
  chat.copy(body, fields,
            {"messages", "system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences",
             "stream_options", "timings_per_token", "return_progress"});
  read_messages(fields, chat.fields);
  read_message_tools(fields, chat.fields);
  read_thinking(fields, chat.fields);
  read_output_config(fields, chat.fields);
  if (const slm::Json* stops = fields.find("stop_sequences")) chat.fields["stop"] = *stops;
  return chat;
}

FieldNames names_in_messages() { return message_names; }

OrderedJson message_error(const Refusal& refusal) {
  const char* const type = refusal.status == 401   ? "authentication_error"
                           : refusal.status == 404 ? "not_found_error"
                           : refusal.status == 413 ? "request_too_large"
                           : refusal.status == 503 ? "overloaded_error"
                           : refusal.status >= 500 ? "api_error"
                                                   : "invalid_request_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", refusal.what()}, {"slm_id", refusal.slm_id}}}};
}

}  // namespace serve
