// Prompts of requests: texts and token ids.
#include <algorithm>

#include "api/text_request.hpp"

namespace serve {

namespace {

constexpr std::size_t most_prompts = 1024;

/// A list with token ids is one prompt, other lists are several.
bool is_one_prompt(const slm::Json& value) {
  return !value.is_array() ||
         std::any_of(value.begin(), value.end(), [](const slm::Json& part) { return part.is_number(); });
}

/// The text of `{"prompt_string": text}` or `{"content": [{"type": "text", "text"}]}`.
std::string text_of(const char* name, const slm::Json& object) {
  const Fields fields(object);
  if (fields.has("multimodal_data")) throw unsupported(name, "`multimodal_data`", "the server takes texts only");
  if (const slm::Json* text = fields.find("prompt_string")) {
    if (!text->is_string()) throw Fields::bad(name, *text, "a string as `prompt_string`");
    return text->get<std::string>();
  }
  const slm::Json* const content = fields.find("content");
  if (content == nullptr || !content->is_array()) {
    throw Fields::bad(name, object, "an object with `prompt_string`, or with a list as `content`");
  }
  std::string text;
  for (const slm::Json& part : *content) {
    const bool says = part.is_object() && part.value("type", slm::Json()) == "text";
    if (!says || !part.contains("text") || !part["text"].is_string()) {
      throw Fields::bad(name, part, "{\"type\": \"text\", \"text\": a string} as a part of `content`");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

/// A list of token ids, with texts between them.
std::vector<slm::Token> read_mixture(const char* name, const slm::Json& list, bool add_special_tokens,
                                     const ServedModel& model) {
  std::vector<slm::Token> tokens;
  slm::Json ids = slm::Json::array();
  const auto take = [&](const std::vector<slm::Token>& more) { tokens.insert(tokens.end(), more.begin(), more.end()); };
  for (const slm::Json& part : list) {
    if (!part.is_string()) {
      ids.push_back(part);
      continue;
    }
    take(read_ids(name, ids, model));
    ids.clear();
    take(model.tokenizer.encode(part.get_ref<const std::string&>(), add_special_tokens && tokens.empty()));
  }
  take(read_ids(name, ids, model));
  return tokens;
}

bool is_answer(const slm::Json& message) { return Fields(message).string("role", "") == "assistant"; }

}  // namespace

bool ends_with_answer(const slm::Json& messages) {
  if (messages.empty() || !is_answer(messages.back())) return false;
  if (messages.size() > 1 && is_answer(messages[messages.size() - 2])) {
    throw bad_field("messages", "ends with two messages of the assistant, expected at most one, which is continued");
  }
  const Fields last(messages.back());
  return last.has("content") && !last.has("tool_calls");
}

std::string with_last_joined(const std::string& messages) {
  OrderedJson list = OrderedJson::parse(messages);
  OrderedJson& content = list.back()["content"];
  if (!content.is_array()) return messages;
  std::string joined;
  for (const OrderedJson& part : content) {
    joined += (joined.empty() ? "" : "\n\n") + part["text"].get_ref<const std::string&>();
  }
  content = std::move(joined);
  return slm::json_text(list);
}

std::vector<std::vector<slm::Token>> read_prompts(const char* name, const Fields& fields, const ServedModel& model,
                                                  std::vector<std::string>* texts) {
  const slm::Json* field = fields.find(name);
  if (field == nullptr) throw bad_field(name, "is absent, expected a text or token ids");
  const slm::Json list = is_one_prompt(*field) ? slm::Json::array({*field}) : *field;
  if (list.empty() || list.size() > most_prompts) {
    throw bad_field(name, slm::text("has ", list.size(), " texts, expected 1 to ", most_prompts));
  }
  const bool add_special_tokens = fields.boolean("add_special_tokens", true);
  std::vector<std::vector<slm::Token>> prompts;
  for (const slm::Json& given : list) {
    if (!given.is_string() && !given.is_array() && !given.is_object()) {
      throw Fields::bad(name, given, "texts or lists of token ids");
    }
    const slm::Json one = given.is_object() ? slm::Json(text_of(name, given)) : given;
    if (one.empty()) throw bad_field(name, "is empty, expected at least one token");
    prompts.push_back(one.is_string() ? model.tokenizer.encode(one.get_ref<const std::string&>(), add_special_tokens)
                                      : read_mixture(name, one, add_special_tokens, model));
    if (texts != nullptr) {
      texts->push_back(one.is_string() ? one.get<std::string>() : model.tokenizer.decode(prompts.back(), false));
    }
  }
  return prompts;
}

}  // namespace serve
