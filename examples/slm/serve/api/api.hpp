// Api: the routes of the server; maps requests to exchanges.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/models.hpp"

namespace serve {

/// How a route writes an error.
using ErrorForm = OrderedJson (*)(const Refusal&);

/// Thread-safe. Must outlive its exchanges.
class Api {
 public:
  /// Serves one model, and its adapters.
  Api(LoadedModel only, ApiOptions options);
  /// Serves several models.
  Api(ModelList list, ApiOptions options);

  /// The Handler of an HTTP server.
  std::unique_ptr<Exchange> handle(const HttpRequest& request, const std::function<void()>& wake);

  /// From now on /health reports that no more requests should be sent.
  void drain() { draining_ = true; }
  /// Cancels waiting and running requests.
  void cancel();

 private:
  // Handlers: routes of a model, those of them with an immediate answer, and routes that need no model.
  using Begin = std::unique_ptr<Exchange> (ModelApi::*)(const HttpRequest&, const std::function<void()>& wake);
  using Answer = Ready (ModelApi::*)(const HttpRequest&) const;
  using Own = Ready (Api::*)(const HttpRequest&) const;
  struct Route {
    std::string_view method, path;
    bool guarded;  // requires a key
    std::variant<Begin, Answer, Own> handler;
    bool loads_adapters = false;
    ErrorForm errors = error_json;
  };
  class ModelExchange;
  static const std::vector<Route>& routes();

  const Route& find(const HttpRequest& request) const;
  bool serves(const Route& route, std::string_view path) const;
  std::string methods_of(const std::string& path) const;  // "*": any path
  Ready options(const HttpRequest& request) const;
  void check_key(const HttpRequest& request) const;
  /// The name of the model that a request chooses, if it chooses one. Throws Refusal.
  std::optional<std::string> name_of_model(const HttpRequest& request) const;

  Ready models(const HttpRequest& request) const;
  Ready llama_models(const HttpRequest& request) const;
  Ready one_model(const HttpRequest& request) const;
  Ready page(const HttpRequest& request) const;
  Ready openapi(const HttpRequest& request) const;
  Ready health(const HttpRequest& request) const;
  Ready version(const HttpRequest& request) const;
  Ready load(const HttpRequest& request) const;
  Ready metrics(const HttpRequest& request) const;

  const ApiOptions options_;
  const std::int64_t started_ = static_cast<std::int64_t>(std::time(nullptr));
  std::atomic<bool> draining_{false};
  slm::CancelSource cancel_;
  std::unique_ptr<ModelApi> only_;  // null: several models
  std::unique_ptr<Models> models_;  // null: one model
};

}  // namespace serve
