#include "api/api.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "api/message_request.hpp"
#include "api/paths.hpp"
#include "api/served_model.hpp"
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

/// Calls begin(), and answers what it throws in the form of the route's errors.
template <class Begin>
std::unique_ptr<Exchange> or_refused(const ErrorForm& errors, Begin begin) {
  const auto refuse = [&errors](const Refusal& refusal) {
    return std::make_unique<ReadyExchange>(
        Ready{.status = refusal.status, .body = slm::json_text(errors(refusal)), .headers = refusal.headers});
  };
  try {
    return begin();
  } catch (const Refusal& refusal) {
    return refuse(refusal);
  } catch (const slm::Error& error) {
    return refuse(refused_by(error));
  } catch (const std::bad_alloc&) {
    return refuse(overloaded("cli.out-of-memory", "overloaded", "The server is out of memory for this request."));
  }
}

}  // namespace

/// Waits for the model, and keeps it loaded until the end of the answer.
class Api::ModelExchange final : public Exchange {
 public:
  ModelExchange(const Route& route, HttpRequest request, std::function<void()> wake)
      : route_(route), request_(std::move(request)), wake_(std::move(wake)) {}

  void claim(Models& models, const std::optional<std::string>& name) { claim_ = models.claim(name, wake_); }

  void poll(HttpOutput& out) override {
    if (inner_ == nullptr) {
      inner_ = or_refused(route_.errors, [this] { return begin(); });
      if (inner_ == nullptr) return;
    }
    inner_->poll(out);
  }
  void idle(HttpOutput& out) override {
    if (inner_ != nullptr) inner_->idle(out);
  }

  static std::unique_ptr<Exchange> begin_on(ModelApi& model, const Route& route, const HttpRequest& request,
                                            const std::function<void()>& wake) {
    if (const auto* begin = std::get_if<Begin>(&route.handler)) return (model.**begin)(request, wake);
    return std::make_unique<ReadyExchange>((model.*std::get<Answer>(route.handler))(request));
  }

 private:
  /// Null: the model is loading.
  std::unique_ptr<Exchange> begin() {
    ModelApi* const model = claim_->model();
    if (model == nullptr) return nullptr;
    auto exchange = begin_on(*model, route_, request_, wake_);
    request_ = {};
    return exchange;
  }

  const Route& route_;
  HttpRequest request_;
  const std::function<void()> wake_;
  std::unique_ptr<ModelClaim> claim_;
  std::unique_ptr<Exchange> inner_;  // ends before the claim
};

Api::Api(LoadedModel only, ApiOptions options)
    : options_(std::move(options)), only_(std::make_unique<ModelApi>(std::move(only), options_, cancel_.get_token())) {}

Api::Api(ModelList list, ApiOptions options)
    : options_(std::move(options)), models_(std::make_unique<Models>(std::move(list), options_, cancel_)) {}

void Api::cancel() {
  cancel_.request_stop();
  if (models_ != nullptr) models_->cancel();
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> all{
      // llama.cpp's come first, since two of them are OpenAI's without /v1.
      {"POST", "/completion", true, &ModelApi::completion},
      {"POST", "/completions", true, &ModelApi::completion},
      {"POST", "/infill", true, &ModelApi::infill},
      {"POST", "/embedding", true, &ModelApi::embedding},
      {"POST", "/embeddings", true, &ModelApi::embedding},
      {"POST", "/v1/rerank", true, &ModelApi::rerank},
      {"POST", "/apply-template", true, &ModelApi::apply_template},
      {"GET", "/props", true, &ModelApi::props},
      {"GET", "/slots", true, &ModelApi::slots},
      {"POST", slot_path, true, &ModelApi::slot},
      {"GET", "/models", true, &Api::llama_models},
      {"POST", "/v1/completions", true, &ModelApi::completions},
      {"POST", "/v1/chat/completions", true, &ModelApi::chat_completions},
      {"POST", "/v1/chat/completions/input_tokens", true, &ModelApi::count_chat_tokens},
      {"POST", "/v1/responses", true, &ModelApi::responses},
      {"POST", "/v1/responses/input_tokens", true, &ModelApi::count_response_tokens},
      {"POST", "/v1/messages", true, &ModelApi::messages, false, message_error},
      {"POST", "/v1/messages/count_tokens", true, &ModelApi::count_message_tokens, false, message_error},
      {"POST", "/v1/embeddings", true, &ModelApi::embeddings},
      {"POST", "/v1/load_lora_adapter", true, &ModelApi::load_lora_adapter, true},
      {"POST", "/v1/unload_lora_adapter", true, &ModelApi::unload_lora_adapter, true},
      {"GET", "/v1/models", true, &Api::models},
      {"GET", models_path, true, &Api::one_model},
      {"GET", "/", false, &Api::page},
      {"GET", "/openapi.json", false, &Api::openapi},
      {"GET", "/health", false, &Api::health},
      {"GET", "/v1/health", false, &Api::health},
      {"GET", "/ping", false, &Api::health},
      {"GET", "/version", false, &Api::version},
      {"GET", "/load", false, &Api::load},
      {"GET", "/metrics", false, &Api::metrics},
      {"POST", "/tokenize", true, &ModelApi::tokenize},
      {"POST", "/detokenize", true, &ModelApi::detokenize},
      {"GET", "/tokenizer_info", true, &ModelApi::tokenizer_info},
  };
  return all;
}

std::unique_ptr<Exchange> Api::handle(const HttpRequest& request, const std::function<void()>& wake) {
  ErrorForm errors = error_json;
  return or_refused(errors, [&]() -> std::unique_ptr<Exchange> {
    if (request.method == "OPTIONS") return std::make_unique<ReadyExchange>(options(request));
    const Route& route = find(request);
    errors = route.errors;
    if (route.guarded) check_key(request);
    if ((route.path == "/slots" && !options_.slots) || (route.path == "/metrics" && !options_.metrics)) {
      throw Refusal(501, "serve.switched-off", slm::text("This server was started without ", route.path, "."));
    }
    const bool may_be_empty = route.path == slot_path && request.body.empty();
    if (route.method == "POST" && request.content_type != "application/json" && !may_be_empty) {
      throw Refusal(415, "serve.wrong-type", "The body must be application/json.");
    }
    if (const auto* own = std::get_if<Own>(&route.handler)) {
      return std::make_unique<ReadyExchange>((this->**own)(request));
    }
    if (only_ != nullptr) return ModelExchange::begin_on(*only_, route, request, wake);
    auto exchange = std::make_unique<ModelExchange>(route, request, wake);
    exchange->claim(*models_, name_of_model(request));
    return exchange;
  });
}

std::optional<std::string> Api::name_of_model(const HttpRequest& request) const {
  if (auto name = query_value(request.query, "model")) return name;
  if (request.body.empty()) return std::nullopt;
  const slm::Json body = parse_body(request);
  for (const slm::Json* fields : {&body, &options_.reading.defaults}) {
    if (Fields(*fields).has("model")) return Fields(*fields).string("model", "");
  }
  return std::nullopt;
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
  if (route.path == "/" && !options_.page) return false;
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
  return {.type = "", .headers = {{"Allow", methods_of(request.path)}}};
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

Ready Api::models(const HttpRequest&) const {
  OrderedJson json{{"object", "list"}, {"data", only_ != nullptr ? only_->cards() : models_->cards()}};
  return {.body = slm::json_text(json)};
}

Ready Api::llama_models(const HttpRequest& request) const {
  if (only_ == nullptr) return models(request);
  OrderedJson json{{"object", "list"}, {"data", only_->cards(true)}};
  return {.body = slm::json_text(json)};
}

Ready Api::one_model(const HttpRequest& request) const {
  const std::string name = name_in(request.path);
  return {.body = slm::json_text(only_ != nullptr ? only_->card_of(name) : models_->card_of(name))};
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
  if (only_ != nullptr) file["components"]["schemas"]["Token"]["maximum"] = only_->model().info.vocab - 1;
  return {.body = slm::json_text(file)};
}

Ready Api::health(const HttpRequest&) const {
  if (draining_) throw overloaded("serve.draining", "draining", "The server is shutting down.");
  const std::string fault = only_ != nullptr ? only_->fault() : models_->fault();
  if (!fault.empty()) throw failed_by(fault, 503);
  return {.type = "text/plain", .body = ""};
}

Ready Api::version(const HttpRequest&) const {
  return {.body = slm::json_text(OrderedJson{{"version", version_text()}})};
}

Ready Api::load(const HttpRequest&) const {
  std::size_t load = 0;
  if (only_ != nullptr) {
    const slm::EngineStats stats = only_->stats();
    load = stats.waiting + stats.running;
  } else {
    load = models_->load();
  }
  return {.body = slm::json_text(OrderedJson{{"server_load", load}})};
}

Ready Api::metrics(const HttpRequest&) const {
  MetricsPage page;
  if (only_ != nullptr) {
    page.label(only_->model().names.front());
    only_->add_metrics(page);
  } else {
    models_->add_metrics(page);
  }
  if (options_.add_metrics) options_.add_metrics(page);
  page.add_llama(only_ != nullptr ? std::vector{only_->stats()} : models_->stats());
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = page.text(),
          .headers = {{"Process-Start-Time-Unix", std::to_string(started_)}}};  // llama.cpp's
}

}  // namespace serve
