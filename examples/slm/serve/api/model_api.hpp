// ModelApi: a loaded model, and the routes that need one.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api/api_options.hpp"
#include "api/embedding_exchange.hpp"
#include "api/llama_request.hpp"
#include "api/ready_exchange.hpp"
#include "api/reply.hpp"
#include "api/service.hpp"

namespace serve {

struct LoadedModel {
  ServedModel model;
  std::unique_ptr<Service> service;
};

/// Thread-safe. Must outlive its exchanges; the options must outlive it.
class ModelApi {
 public:
  using Wake = std::function<void()>;

  ModelApi(LoadedModel loaded, const ApiOptions& options, slm::CancelToken cancel)
      : model_(std::move(loaded.model)),
        service_(std::move(loaded.service)),
        options_(options),
        cancel_(std::move(cancel)) {
    if (!options.slot_folder.empty()) {
      model_.slots = std::make_shared<Slots>(options.slot_folder, options.most_running);
    }
  }

  std::unique_ptr<Exchange> completions(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> chat_completions(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> messages(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> responses(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> embeddings(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> load_lora_adapter(const HttpRequest& request, const Wake& wake);
  Ready count_chat_tokens(const HttpRequest& request) const;
  Ready count_message_tokens(const HttpRequest& request) const;
  Ready count_response_tokens(const HttpRequest& request) const;
  Ready unload_lora_adapter(const HttpRequest& request) const;
  Ready tokenize(const HttpRequest& request) const;
  Ready detokenize(const HttpRequest& request) const;
  Ready tokenizer_info(const HttpRequest& request) const;

  // llama.cpp's
  std::unique_ptr<Exchange> completion(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> infill(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> embedding(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> rerank(const HttpRequest& request, const Wake& wake);
  std::unique_ptr<Exchange> slot(const HttpRequest& request, const Wake& wake);
  Ready props(const HttpRequest& request) const;
  Ready slots(const HttpRequest& request) const;
  Ready apply_template(const HttpRequest& request) const;

  const ServedModel& model() const { return model_; }
  slm::EngineStats stats() const { return service_->stats(); }
  std::string fault() const { return service_->fault(); }
  void add_metrics(MetricsPage& page) const;
  /// The entries of /v1/models: the names of the model and its adapters.
  /// as_one: the model's names are one entry with `aliases` and `tags`, as in llama.cpp's list.
  OrderedJson cards(bool as_one = false) const;
  OrderedJson card_of(const std::string& name) const;

 private:
  /// reply: the form of the answer; null: that of completions and chats.
  std::unique_ptr<Exchange> begin(TextRequest request, std::unique_ptr<Reply> reply, const Wake& wake);
  std::unique_ptr<Exchange> begin(LlamaRequest request, const Wake& wake);
  void count(const TextRequest& request);
  std::unique_ptr<Exchange> embed(const slm::Json& body, EmbeddingForm form, HttpHeaders headers, const Wake& wake);
  /// The checked fields of a body. headers: receives the header that lists ignored fields.
  slm::Json read_fields(const HttpRequest& request, FieldRoute route, HttpHeaders& headers) const;
  OrderedJson card(const std::string& name, const std::string& root, bool adapted) const;

  ServedModel model_;
  std::unique_ptr<Service> service_;
  const ApiOptions& options_;
  slm::CancelToken cancel_;
  mutable std::mutex mutex_;  // guards the members below
  slm::Histogram asked_n_{asked_n_bounds};
  slm::Histogram asked_tokens_{asked_tokens_bounds};
};

}  // namespace serve
