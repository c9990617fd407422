// Routes of the tokenizer: text to tokens and back.
#include <utility>

#include "api/model_api.hpp"
#include "slm/text/utf8.hpp"

namespace serve {

namespace {

/// Tokens in the form of llama.cpp's `with_pieces`: incomplete characters are lists of bytes.
OrderedJson pieces_of(const slm::Tokenizer& tokenizer, const std::vector<slm::Token>& tokens) {
  OrderedJson list = OrderedJson::array();
  for (const slm::Token token : tokens) {
    const std::string bytes = tokenizer.bytes(token);
    OrderedJson piece = bytes;
    if (!slm::utf8::is_valid(bytes)) {
      piece = OrderedJson::array();
      for (const char byte : bytes) piece.push_back(static_cast<unsigned char>(byte));
    }
    list.push_back({{"id", token}, {"piece", std::move(piece)}});
  }
  return list;
}

}  // namespace

Ready ModelApi::tokenize(const HttpRequest& request) const {
  Ready answer;
  const slm::Json body = read_fields(request, on_tokenize, answer.headers);
  const Fields fields(body, request.body);
  asked_model(fields, model_);
  const std::string prompt = fields.string("prompt", ""), content = fields.string("content", "");
  const bool with_special = fields.boolean("add_special_tokens", true);
  const bool with_special_by_llama = fields.boolean("add_special", false);  // llama.cpp's name
  const bool literal = !fields.boolean("parse_special", true);
  const auto encode = [&](const std::string& text, bool special) {
    return model_.tokenizer.encode(std::vector<slm::TextPart>{{text, literal}}, special);
  };
  std::vector<slm::Token> tokens;
  if (fields.has("messages")) {
    tokens = read_messages(fields, model_, read_tools(fields)).tokens;
  } else if (fields.has("prompt")) {
    tokens = encode(prompt, with_special);
  } else if (fields.has("content")) {
    tokens = encode(content, with_special_by_llama);
  } else {
    throw bad_field("prompt", "is absent, expected a text");
  }
  OrderedJson names;
  if (fields.boolean("return_token_strs", false)) {
    names = OrderedJson::array();
    for (const slm::Token token : tokens) names.push_back(model_.tokenizer.piece(token));
  }
  answer.body = slm::json_text(OrderedJson{
      {"count", tokens.size()},
      {"max_model_len", model_.info.context},
      {"tokens", fields.boolean("with_pieces", false) ? pieces_of(model_.tokenizer, tokens) : OrderedJson(tokens)},
      {"token_strs", std::move(names)}});
  return answer;
}

Ready ModelApi::detokenize(const HttpRequest& request) const {
  Ready answer;
  const slm::Json body = read_fields(request, on_detokenize, answer.headers);
  const Fields fields(body);
  asked_model(fields, model_);
  const slm::Json* tokens = fields.find("tokens");
  if (tokens == nullptr) throw bad_field("tokens", "is absent, expected a list of token ids");
  const std::string text = model_.tokenizer.decode(read_ids("tokens", *tokens, model_), false);
  answer.body = slm::json_text(OrderedJson{{"prompt", text}, {"content", text}});
  return answer;
}

Ready ModelApi::tokenizer_info(const HttpRequest&) const { return {.body = slm::json_text(model_.tokenizer_info)}; }

}  // namespace serve
