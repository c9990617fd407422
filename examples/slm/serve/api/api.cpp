#include "api/api.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "api/adapter_routes.hpp"
#include "api/default_fields.hpp"
#include "api/llama_exchange.hpp"
#include "api/message_reply.hpp"
#include "api/message_request.hpp"
#include "api/paths.hpp"
#include "api/response_reply.hpp"
#include "api/response_request.hpp"
#include "api/served_model.hpp"
#include "api/text_exchange.hpp"
#include "http/ascii.hpp"
#include "http/random_hex.hpp"
#include "page/embedded.hpp"

namespace serve {

namespace {

/// Compares in constant time for a given key length.
bool same(std::string_view given, std::string_view key) {
  unsigned differences = given.size() == key.size() ? 0 : 1;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const char byte = i < given.size() ? given[i] : '\0';
    differences |= static_cast<unsigned char>(byte ^ key[i]);
  }
  return differences == 0;
}

/// The number of tokens of a prompt, as OpenAI's API has it.
Ready counted(std::size_t tokens, const std::vector<std::string>& ignored) {
  return {.body = slm::json_text(OrderedJson{{"object", "response.input_tokens"}, {"input_tokens", tokens}}),
          .headers = ignored_header(ignored)};
}

}  // namespace

Api::Api(ServedModel model, std::unique_ptr<Service> service, ApiOptions options)
    : model_(std::move(model)), service_(std::move(service)), options_(std::move(options)) {}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> all{
      // llama.cpp's come first, since two of them are OpenAI's without /v1.
      {"POST", "/completion", true, &Api::completion, nullptr},
      {"POST", "/completions", true, &Api::completion, nullptr},
      {"POST", "/infill", true, &Api::infill, nullptr},
      {"POST", "/embedding", true, &Api::embedding, nullptr},
      {"POST", "/embeddings", true, &Api::embedding, nullptr},
      {"POST", "/v1/rerank", true, &Api::rerank, nullptr},
      {"POST", "/apply-template", true, nullptr, &Api::apply_template},
      {"GET", "/props", true, nullptr, &Api::props},
      {"GET", "/slots", true, nullptr, &Api::slots},
      {"POST", "/v1/completions", true, &Api::completions, nullptr},
      {"POST", "/v1/chat/completions", true, &Api::chat_completions, nullptr},
      {"POST", "/v1/chat/completions/input_tokens", true, nullptr, &Api::count_chat_tokens},
      {"POST", "/v1/responses", true, &Api::responses, nullptr},
      {"POST", "/v1/responses/input_tokens", true, nullptr, &Api::count_response_tokens},
      {"POST", "/v1/messages", true, &Api::messages, nullptr, false, message_error},
      {"POST", "/v1/messages/count_tokens", true, nullptr, &Api::count_message_tokens, false, message_error},
      {"POST", "/v1/embeddings", true, &Api::embeddings, nullptr},
      {"POST", "/v1/load_lora_adapter", true, &Api::load_lora_adapter, nullptr, true},
      {"POST", "/v1/unload_lora_adapter", true, nullptr, &Api::unload_lora_adapter, true},
      {"GET", "/v1/models", true, nullptr, &Api::models},
      {"GET", models_path, true, nullptr, &Api::one_model},
      {"GET", "/", false, nullptr, &Api::page},
      {"GET", "/openapi.json", false, nullptr, &Api::openapi},
      {"GET", "/health", false, nullptr, &Api::health},
      {"GET", "/v1/health", false, nullptr, &Api::health},
      {"GET", "/ping", false, nullptr, &Api::health},
      {"GET", "/version", false, nullptr, &Api::version},
      {"GET", "/load", false, nullptr, &Api::load},
      {"GET", "/metrics", false, nullptr, &Api::metrics},
      {"POST", "/tokenize", true, nullptr, &Api::tokenize},
      {"POST", "/detokenize", true, nullptr, &Api::detokenize},
      {"GET", "/tokenizer_info", true, nullptr, &Api::tokenizer_info},
  };
  return all;
}

std::unique_ptr<Exchange> Api::handle(const HttpRequest& request, const std::function<void()>& wake) {
  ErrorForm errors = error_json;
  const auto refuse = [&errors](const Refusal& refusal) {
    return std::make_unique<ReadyExchange>(
        Ready{.status = refusal.status, .body = slm::json_text(errors(refusal)), .headers = refusal.headers});
  };
  try {
    if (request.method == "OPTIONS") return std::make_unique<ReadyExchange>(options(request));
    const Route& route = find(request);
    errors = route.errors;
    if (route.guarded) check_key(request);
    if (route.method == "POST" && request.content_type != "application/json") {
      throw Refusal(415, "serve.wrong-type", "The body must be application/json.");
    }
    if (route.begin != nullptr) return (this->*route.begin)(request, wake);
    return std::make_unique<ReadyExchange>((this->*route.answer)(request));
  } catch (const Refusal& refusal) {
    return refuse(refusal);
  } catch (const slm::Error& error) {
    return refuse(refused_by(error));
  } catch (const std::bad_alloc&) {
    return refuse(overloaded("cli.out-of-memory", "overloaded", "The server is out of memory for this request."));
  }
}

const Api::Route& Api::find(const HttpRequest& request) const {
  for (const Route& route : routes()) {
    if (serves(route, request.path) && route.method == request.method) return route;
  }
  const std::string allowed = methods_of(request.path);
  Refusal refusal(405, "serve.wrong-method", slm::text("This path accepts ", allowed, " only."));
  refusal.headers = {{"Allow", allowed}};
  throw refusal;
}

bool Api::serves(const Route& route, std::string_view path) const {
  return leads_to(path, route.path) && (!route.loads_adapters || options_.load_adapters);
}

std::string Api::methods_of(const std::string& path) const {
  std::string methods;
  for (const std::string_view method : {"GET", "POST"}) {
    const auto is_taken = [&](const Route& route) {
      return route.method == method && (path == "*" || serves(route, path));
    };
    if (std::none_of(routes().begin(), routes().end(), is_taken)) continue;
    methods += method == "GET" ? "GET, HEAD, " : "POST, ";
  }
  if (methods.empty()) {
    throw Refusal(404, "serve.no-such-route", slm::text("There is no ", slm::excerpt(path), " here."));
  }
  return methods + "OPTIONS";
}

Ready Api::options(const HttpRequest& request) const {
  return {.status = 204, .type = "", .headers = {{"Allow", methods_of(request.path)}}};
}

void Api::check_key(const HttpRequest& request) const {
  if (options_.keys.empty()) return;
  std::string_view given = request.authorization;
  constexpr std::string_view bearer = "bearer ";
  bool known = false;
  if (begins_with_word(given, bearer)) {  // scheme names are case-insensitive (RFC 9110, section 11.1)
    given.remove_prefix(std::min(given.find_first_not_of(' ', bearer.size()), given.size()));
    for (const std::string& key : options_.keys) known = same(given, key) || known;
  }
  if (known) return;
  Refusal refusal(401, "serve.unauthorized", "The API key is missing or wrong: send `Authorization: Bearer KEY`.");
  refusal.code = "invalid_api_key";
  refusal.headers = {{"WWW-Authenticate", "Bearer"}};
  throw refusal;
}

std::unique_ptr<Exchange> Api::completions(const HttpRequest& request, const std::function<void()>& wake) {
  return begin(read_completion(parse_body(request), model_, options_.reading, request.body), nullptr, wake);
}

std::unique_ptr<Exchange> Api::chat_completions(const HttpRequest& request, const std::function<void()>& wake) {
  return begin(read_chat(parse_body(request), model_, options_.reading, request.body), nullptr, wake);
}

std::unique_ptr<Exchange> Api::messages(const HttpRequest& request, const std::function<void()>& wake) {
  slm::Json body = parse_body(request);
  ChatBody chat = chat_of_messages(body, request.body, options_.reading.strict_fields);
  if (!body.contains("max_tokens")) throw bad_field("max_tokens", "is absent, expected the most tokens of the answer");
  TextRequest read = read_chat_body(std::move(chat), model_, options_.reading, names_in_messages());
  auto reply = message_reply(read);
  return begin(std::move(read), std::move(reply), wake);
}

std::unique_ptr<Exchange> Api::responses(const HttpRequest& request, const std::function<void()>& wake) {
  slm::Json body = parse_body(request);
  ChatBody chat = chat_of_responses(body, request.body, options_.reading.strict_fields);
  TextRequest read = read_chat_body(std::move(chat), model_, options_.reading, names_in_responses());
  auto reply = response_reply(read, repeated_fields(body, request.body));
  return begin(std::move(read), std::move(reply), wake);
}

Ready Api::count_message_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  const ChatBody chat = chat_of_messages(body, request.body, options_.reading.strict_fields);
  const std::size_t count = count_prompt(chat, model_, names_in_messages());
  return {.body = slm::json_text(OrderedJson{{"input_tokens", count}}), .headers = ignored_header(chat.ignored)};
}

Ready Api::count_response_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  const ChatBody chat = chat_of_responses(body, request.body, options_.reading.strict_fields);
  return counted(count_prompt(chat, model_, names_in_responses()), chat.ignored);
}

Ready Api::count_chat_tokens(const HttpRequest& request) const {
  slm::Json body = parse_body(request);
  ChatBody chat;
  chat.ignored = check_fields(body, on_chat, options_.reading.strict_fields);
  chat.copy(body, Fields(body, request.body), {});
  return counted(count_prompt(chat, model_, {}), chat.ignored);
}

std::unique_ptr<Exchange> Api::begin(TextRequest request, std::unique_ptr<Reply> reply,
                                     const std::function<void()>& wake) {
  count(request);
  HttpHeaders headers = ignored_header(request.ignored);
  const slm::CancelToken cancel = cancel_.get_token();
  return with_headers(reply ? answer_reply(std::move(request), std::move(reply), model_, *service_, cancel, wake)
                            : answer_text(std::move(request), model_, *service_, cancel, wake),
                      std::move(headers));
}

std::unique_ptr<Exchange> Api::completion(const HttpRequest& request, const std::function<void()>& wake) {
  return begin(read_llama_completion(parse_body(request), model_, options_.reading, request.body), wake);
}

std::unique_ptr<Exchange> Api::infill(const HttpRequest& request, const std::function<void()>& wake) {
  return begin(read_infill(parse_body(request), model_, options_.reading, request.body), wake);
}

std::unique_ptr<Exchange> Api::begin(LlamaRequest request, const std::function<void()>& wake) {
  count(request.text);
  HttpHeaders headers = ignored_header(request.text.ignored);
  return with_headers(answer_llama(std::move(request), model_, *service_, cancel_.get_token(), wake),
                      std::move(headers));
}

void Api::count(const TextRequest& request) {
  const std::lock_guard lock(mutex_);
  asked_n_.add(request.n);
  if (request.max_tokens) asked_tokens_.add(*request.max_tokens);
}

std::unique_ptr<Exchange> Api::embeddings(const HttpRequest& request, const std::function<void()>& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_embeddings, headers);
  return embed(body, EmbeddingForm::openai, std::move(headers), wake);
}

std::unique_ptr<Exchange> Api::embedding(const HttpRequest& request, const std::function<void()>& wake) {
  HttpHeaders headers;
  slm::Json body = read_fields(request, on_embedding, headers);
  if (!body.contains("input") && body.contains("content")) body["input"] = std::move(body["content"]);
  return embed(body, EmbeddingForm::llama, std::move(headers), wake);
}

std::unique_ptr<Exchange> Api::rerank(const HttpRequest& request, const std::function<void()>& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_rerank, headers);
  return embed(body, EmbeddingForm::rerank, std::move(headers), wake);
}

std::unique_ptr<Exchange> Api::embed(const slm::Json& body, EmbeddingForm form, HttpHeaders headers,
                                     const std::function<void()>& wake) {
  return with_headers(answer_embeddings(body, model_, *service_, cancel_.get_token(), wake, form), std::move(headers));
}

std::unique_ptr<Exchange> Api::load_lora_adapter(const HttpRequest& request, const std::function<void()>& wake) {
  HttpHeaders headers;
  const slm::Json body = read_fields(request, on_load_adapter, headers);
  return with_headers(load_adapter(body, model_, wake), std::move(headers));
}

Ready Api::unload_lora_adapter(const HttpRequest& request) const {
  Ready answer;
  answer.type = "text/plain";
  answer.body = unload_adapter(read_fields(request, on_unload_adapter, answer.headers), model_);
  return answer;
}

slm::Json Api::read_fields(const HttpRequest& request, FieldRoute route, HttpHeaders& headers) const {
  slm::Json body = parse_body(request);
  add_defaults(body, route, options_.reading.defaults);
  headers = ignored_header(check_fields(body, route, options_.reading.strict_fields));
  return body;
}

OrderedJson Api::card(const std::string& name, const std::string& root, bool adapted) const {
  return {{"id", name},
          {"object", "model"},
          {"created", model_.created},
          {"owned_by", "slm"},
          {"root", root},
          {"parent", adapted ? OrderedJson(model_.names.front()) : OrderedJson()},
          {"max_model_len", model_.info.context}};
}

Ready Api::models(const HttpRequest&) const {
  OrderedJson json{{"object", "list"}, {"data", OrderedJson::array()}};
  for (const std::string& name : model_.names) json["data"].push_back(card(name, model_.root, false));
  if (model_.adapters != nullptr) {
    for (const auto& [name, folder] : model_.adapters->folders()) {
      json["data"].push_back(card(name, folder.string(), true));
    }
  }
  return {.body = slm::json_text(json)};
}

Ready Api::one_model(const HttpRequest& request) const {
  const std::string name = name_in(request.path);
  const slm::Json named{{"model", name}};
  const bool adapted = asked_model(Fields(named), model_).adapted;
  return {.body =
              slm::json_text(card(name, adapted ? model_.adapters->folder_of(name).string() : model_.root, adapted))};
}

Ready Api::page(const HttpRequest&) const {
  const std::string nonce = random_hex();
  std::string page{page_html};
  constexpr std::string_view place = "{{nonce}}";
  for (std::size_t at = page.find(place); at != page.npos; at = page.find(place, at)) {
    page.replace(at, place.size(), nonce);
  }
  return {.type = "text/html; charset=utf-8",
          .body = std::move(page),
          .headers = {{"Content-Security-Policy",
                       slm::text("default-src 'none'; script-src 'nonce-", nonce, "'; style-src 'nonce-", nonce,
                                 "'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}}};
}

Ready Api::openapi(const HttpRequest&) const {
  OrderedJson file = OrderedJson::parse(openapi_json);
  file["components"]["schemas"]["Token"]["maximum"] = model_.info.vocab - 1;
  return {.body = slm::json_text(file)};
}

Ready Api::health(const HttpRequest&) const {
  if (draining_) throw overloaded("serve.draining", "draining", "The server is shutting down.");
  if (const std::string fault = service_->fault(); !fault.empty()) throw failed_by(fault, 503);
  return {.type = "text/plain", .body = ""};
}

Ready Api::version(const HttpRequest&) const {
  return {.body = slm::json_text(OrderedJson{{"version", version_text()}})};
}

Ready Api::load(const HttpRequest&) const {
  const slm::EngineStats stats = service_->stats();
  return {.body = slm::json_text(OrderedJson{{"server_load", stats.waiting + stats.running}})};
}

Ready Api::metrics(const HttpRequest&) const {
  MetricsPage page(model_.names.front());
  page.add(service_->stats());
  if (model_.adapters != nullptr) page.add(model_.adapters->stats());
  {
    const std::lock_guard lock(mutex_);
    page.histogram("vllm:request_params_n", "Choices that a request asked for.", asked_n_);
    page.histogram("vllm:request_params_max_tokens", "Tokens that a request allowed.", asked_tokens_);
  }
  if (options_.add_metrics) options_.add_metrics(page);
  return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = page.text()};
}

}  // namespace serve
