// Api: the routes of the server; maps requests to exchanges.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/embedding_exchange.hpp"
#include "api/llama_request.hpp"
#include "api/metrics.hpp"
#include "api/ready_exchange.hpp"
#include "api/reply.hpp"
#include "api/service.hpp"
#include "api/text_request.hpp"

namespace serve {

struct ApiOptions {
  std::vector<std::string> keys = {};  // accepted API keys; empty: no key required
  ReadingOptions reading = {};
  std::size_t most_running = 64;                       // texts at a time
  bool load_adapters = false;                          // whether clients may load and unload adapters
  std::function<void(MetricsPage&)> add_metrics = {};  // adds metrics of other components
};

/// How a route writes an error.
using ErrorForm = OrderedJson (*)(const Refusal&);

/// Thread-safe. Must outlive its exchanges.
class Api {
 public:
  Api(ServedModel model, std::unique_ptr<Service> service, ApiOptions options);

  /// The Handler of an HTTP server.
  std::unique_ptr<Exchange> handle(const HttpRequest& request, const std::function<void()>& wake);

  /// From now on /health reports that no more requests should be sent.
  void drain() { draining_ = true; }
  /// Cancels running requests.
  void cancel() { cancel_.request_stop(); }

 private:
  struct Route {
    std::string_view method, path;
    bool guarded;  // requires a key
    std::unique_ptr<Exchange> (Api::*begin)(const HttpRequest&, const std::function<void()>& wake);
    Ready (Api::*answer)(const HttpRequest&) const;  // for immediate answers
    bool loads_adapters = false;
    ErrorForm errors = error_json;
  };
  static const std::vector<Route>& routes();

  const Route& find(const HttpRequest& request) const;
  bool serves(const Route& route, std::string_view path) const;
  std::string methods_of(const std::string& path) const;  // "*": any path
  Ready options(const HttpRequest& request) const;
  void check_key(const HttpRequest& request) const;

  std::unique_ptr<Exchange> completions(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> chat_completions(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> messages(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> responses(const HttpRequest& request, const std::function<void()>& wake);
  /// reply: the form of the answer; null: that of completions and chats.
  std::unique_ptr<Exchange> begin(TextRequest request, std::unique_ptr<Reply> reply, const std::function<void()>& wake);
  void count(const TextRequest& request);
  std::unique_ptr<Exchange> embeddings(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> load_lora_adapter(const HttpRequest& request, const std::function<void()>& wake);
  Ready count_chat_tokens(const HttpRequest& request) const;
  Ready count_message_tokens(const HttpRequest& request) const;
  Ready count_response_tokens(const HttpRequest& request) const;
  Ready unload_lora_adapter(const HttpRequest& request) const;
  Ready models(const HttpRequest& request) const;
  Ready one_model(const HttpRequest& request) const;
  Ready page(const HttpRequest& request) const;
  Ready openapi(const HttpRequest& request) const;
  Ready health(const HttpRequest& request) const;
  Ready version(const HttpRequest& request) const;
  Ready load(const HttpRequest& request) const;
  Ready metrics(const HttpRequest& request) const;
  Ready tokenize(const HttpRequest& request) const;
  Ready detokenize(const HttpRequest& request) const;
  Ready tokenizer_info(const HttpRequest& request) const;

  // llama.cpp's
  std::unique_ptr<Exchange> completion(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> infill(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> begin(LlamaRequest request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> embedding(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> rerank(const HttpRequest& request, const std::function<void()>& wake);
  std::unique_ptr<Exchange> embed(const slm::Json& body, EmbeddingForm form, HttpHeaders headers,
                                  const std::function<void()>& wake);
  Ready props(const HttpRequest& request) const;
  Ready slots(const HttpRequest& request) const;
  Ready apply_template(const HttpRequest& request) const;

  /// The checked fields of a body. headers: receives the header that lists ignored fields.
  slm::Json read_fields(const HttpRequest& request, FieldRoute route, HttpHeaders& headers) const;
  OrderedJson card(const std::string& name, const std::string& root, bool adapted) const;

  ServedModel model_;
  std::unique_ptr<Service> service_;
  ApiOptions options_;
  std::atomic<bool> draining_{false};
  slm::CancelSource cancel_;
  mutable std::mutex mutex_;  // guards the members below
  slm::Histogram asked_n_{asked_n_bounds};
  slm::Histogram asked_tokens_{asked_tokens_bounds};
};

}  // namespace serve
