#include "api/chat_body.hpp"

#include <algorithm>

namespace serve {

namespace {

/// A refusal of a chat with the other API's name of the field.
inline Refusal renamed(const Refusal& refusal, FieldNames names) {
  for (const auto& [chat, own] : names) {
    if (refusal.param != chat) continue;
    std::string message = refusal.what();
    const std::string quoted = slm::text('`', chat, '`');
    for (std::size_t at = message.find(quoted); at != message.npos; at = message.find(quoted, at + own.size())) {
      message.replace(at, quoted.size(), slm::text('`', own, '`'));
    }
    Refusal other(refusal.status, refusal.slm_id, message);
    other.of(std::string{own}).coded(refusal.code).headers = refusal.headers;
    return other;
  }
  return refusal;
}

}  // namespace

void ChatBody::copy(const slm::Json& body, const Fields& from, std::initializer_list<std::string_view> except) {
  for (const auto& [name, value] : body.items()) {
    if (std::find(except.begin(), except.end(), name) != except.end()) continue;
    if (!value.is_null()) fields[name] = OrderedJson::parse(from.text(name));
  }
}

TextRequest read_chat_body(ChatBody chat, const ServedModel& model, const ReadingOptions& options, FieldNames names) {
  ReadingOptions lenient = options;  // the caller has checked the names of fields
  lenient.strict_fields = false;
  const std::string source = slm::json_text(chat.fields);
  try {
    TextRequest request = read_chat(slm::Json::parse(source), model, lenient, source);
    request.ignored = std::move(chat.ignored);
    return request;
  } catch (const Refusal& refusal) {
    throw renamed(refusal, names);
  }
}

std::size_t count_prompt(const ChatBody& chat, const ServedModel& model, FieldNames names) {
  const std::string source = slm::json_text(chat.fields);
  const slm::Json body = slm::Json::parse(source);
  const Fields fields(body, source);
  try {
    asked_model(fields, model);
    read_tenant(fields);  // throws if it is wrong
    return read_messages(fields, model, read_tools(fields)).tokens.size();
  } catch (const Refusal& refusal) {
    throw renamed(refusal, names);
  }
}

OrderedJson function_tool(const slm::Json& described, std::string_view parameters) {
  OrderedJson function = OrderedJson::object();
  for (const char* name : {"name", "description"}) {
    if (const slm::Json* value = Fields(described).find(name)) function[name] = *value;
  }
  if (!parameters.empty()) function["parameters"] = OrderedJson::parse(parameters);
  return {{"type", "function"}, {"function", std::move(function)}};
}

}  // namespace serve
