#include "api/model_api.hpp"

#include <utility>

#include "api/adapter_routes.hpp"
#include "api/default_fields.hpp"
#include "api/llama_exchange.hpp"
#include "api/message_reply.hpp"
#include "api/message_request.hpp"
#include "api/response_reply.hpp"
#include "api/response_request.hpp"
#include "api/text_exchange.hpp"

namespace serve {

namespace {

/// The number of tokens of a prompt, as OpenAI's API has it.
Ready counted(std::size_t tokens, const std::vector<std::string>& ignored) {
  return {.body = slm::json_text(OrderedJson{{"object", "response.input_tokens"}, {"input_tokens", tokens}}),
          .headers = ignored_header(ignored)};
}

}  // namespace

std::unique_ptr<Exchange> ModelApi::completions(const HttpRequest& request, const Wake& wake) {
  return begin(read_completion(parse_body(request), model_, options_.reading, request.body), nullptr, wake);
}

std::unique_ptr<Exchange> ModelApi::chat_completions(const HttpRequest& request, const Wake& wake) {
  return begin(read_chat(parse_body(request), model_, options_.reading, request.body), nullptr, wake);
}

std::unique_ptr<Exchange> ModelApi::messages(const HttpRequest& request, const Wake& wake) {
  slm::Json body = parse_body(request);
  ChatBody chat = chat_of_messages(body, request.body, options_.reading.strict_fields);
  if (!body.contains("max_tokens")) throw bad_field("max_tokens", "is absent, expected the most tokens of the answer");
  TextRequest read = read_chat_body(std::move(chat), model_, options_.reading, names_in_messages());
  auto reply = message_reply(read);
  return begin(std::move(read), std::move(reply), wake);
}

std::unique_ptr<Exchange> ModelApi::responses(const HttpRequest& request, const Wake& wake) {
  slm::Json body = parse_body(request);
  ChatBody chat = chat_of_responses(body, request.body, options_.reading.strict_fields);
  TextRequest read = read_chat_body(std::move(chat), model_, options_.reading, names_in_responses());
  auto reply = response_reply(read, repeated_fields(body, request.body));
  return begin(std::move(read), std::move(reply), wake);
}

Ready ModelApi::count_message_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  const ChatBody chat = chat_of_messages(body, request.body, options_.reading.strict_fields);
  const std::size_t count = count_prompt(chat, model_, names_in_messages());
  return {.body = slm::json_text(OrderedJson{{"input_tokens", count}}), .headers = ignored_header(chat.ignored)};
}

Ready ModelApi::count_response_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  const ChatBody chat = chat_of_responses(body, request.body, options_.reading.strict_fields);
  return counted(count_prompt(chat, model_, names_in_responses()), chat.ignored);
}

Ready ModelApi::count_chat_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  ChatBody chat;
  chat.ignored = check_fields(body, on_chat, options_.reading.strict_fields);
  chat.copy(body, Fields(body, request.body), {});
  return counted(count_prompt(chat, model_, {}), chat.ignored);
}

std::unique_ptr<Exchange> ModelApi::begin(TextRequest request, std::unique_ptr<Reply> reply, const Wake& wake) {
  count(request);
  HttpHeaders headers = ignored_header(request.ignored);
  return with_headers(reply ? answer_reply(std::move(request), std::move(reply), model_, *service_, cancel_, wake)
                            : answer_text(std::move(request), model_, *service_, cancel_, wake),
                      std::move(headers));
}

std::unique_ptr<Exchange> ModelApi::completion(const HttpRequest& request, const Wake& wake) {
  return begin(read_llama_completion(parse_body(request), model_, options_.reading, request.body), wake);
}

std::unique_ptr<Exchange> ModelApi::infill(const HttpRequest& request, const Wake& wake) {
  return begin(read_infill(parse_body(request), model_, options_.reading, request.body), wake);
}

std::unique_ptr<Exchange> ModelApi::begin(LlamaRequest request, const Wake& wake) {
  count(request.text);
  HttpHeaders headers = ignored_header(request.text.ignored);
  return with_headers(answer_llama(std::move(request), model_, *service_, cancel_, wake), std::move(headers));
}

void ModelApi::count(const TextRequest& request) {
  const std::lock_guard lock(mutex_);
  asked_n_.add(request.n);
  if (request.max_tokens) asked_tokens_.add(*request.max_tokens);
}

std::unique_ptr<Exchange> ModelApi::embeddings(const HttpRequest& request, const Wake& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_embeddings, headers);
  return embed(body, EmbeddingForm::openai, std::move(headers), wake);
}

std::unique_ptr<Exchange> ModelApi::embedding(const HttpRequest& request, const Wake& wake) {
  HttpHeaders headers;
  slm::Json body = read_fields(request, on_embedding, headers);
  if (!body.contains("input") && body.contains("content")) body["input"] = std::move(body["content"]);
  return embed(body, EmbeddingForm::llama, std::move(headers), wake);
}

std::unique_ptr<Exchange> ModelApi::rerank(const HttpRequest& request, const Wake& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_rerank, headers);
  return embed(body, EmbeddingForm::rerank, std::move(headers), wake);
}

std::unique_ptr<Exchange> ModelApi::embed(const slm::Json& body, EmbeddingForm form, HttpHeaders headers,
                                          const Wake& wake) {
  return with_headers(answer_embeddings(body, model_, *service_, cancel_, wake, form), std::move(headers));
}

std::unique_ptr<Exchange> ModelApi::load_lora_adapter(const HttpRequest& request, const Wake& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_load_adapter, headers);
  return with_headers(load_adapter(body, model_, wake), std::move(headers));
}

Ready ModelApi::unload_lora_adapter(const HttpRequest& request) const {
  Ready answer;
  answer.type = "text/plain";
  answer.body = unload_adapter(read_fields(request, on_unload_adapter, answer.headers), model_);
  return answer;
}

slm::Json ModelApi::read_fields(const HttpRequest& request, FieldRoute route, HttpHeaders& headers) const {
  slm::Json body = parse_body(request);
  add_defaults(body, route, options_.reading.defaults);
  headers = ignored_header(check_fields(body, route, options_.reading.strict_fields));
  return body;
}

OrderedJson ModelApi::card(const std::string& name, const std::string& root, bool adapted) const {
  return {{"id", name},
          {"object", "model"},
          {"created", model_.created},
          {"owned_by", "slm"},
          {"root", root},
          {"parent", adapted ? OrderedJson(model_.names.front()) : OrderedJson()},
          {"max_model_len", model_.info.context}};
}

OrderedJson ModelApi::cards(bool as_one) const {
  OrderedJson list = OrderedJson::array();
  if (as_one) {
    OrderedJson entry = card(model_.names.front(), model_.root, false);
    entry["aliases"] = model_.names;
    entry["tags"] = options_.tags;
    list.push_back(std::move(entry));
  } else {
    for (const std::string& name : model_.names) list.push_back(card(name, model_.root, false));
  }
  if (model_.adapters != nullptr) {
    for (const auto& [name, folder] : model_.adapters->folders()) list.push_back(card(name, folder.string(), true));
  }
  return list;
}

OrderedJson ModelApi::card_of(const std::string& name) const {
  const slm::Json named{{"model", name}};
  const bool adapted = asked_model(Fields(named), model_).adapted;
  return card(name, adapted ? model_.adapters->folder_of(name).string() : model_.root, adapted);
}

void ModelApi::add_metrics(MetricsPage& page) const {
  page.add(service_->stats());
  if (model_.adapters != nullptr) page.add(model_.adapters->stats());
  const std::lock_guard lock(mutex_);
  page.histogram("vllm:request_params_n", "Choices that a request asked for.", asked_n_);
  page.histogram("vllm:request_params_max_tokens", "Tokens that a request allowed.", asked_tokens_);
}

}  // namespace serve
