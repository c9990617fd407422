// Service: the engine as the API sees it, whatever drafts for it. And the model that it serves, by its names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/refusal.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/ngram_drafter.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/stats.hpp"
#include "slm/model/any_model.hpp"
#include "slm/text/tokenizer.hpp"
#include "tools/cli/chat_format.hpp"

namespace serve {

struct ServedModel {
  std::vector<std::string> names;  // that clients may use; answers say the first
  std::string root;                // where it lies
  slm::ModelInfo info;
  slm::Tokenizer tokenizer;
  std::optional<cli::ChatFormat> chat;  // nothing: chats are refused
  std::optional<slm::Error> no_chat{};  // why they are
  std::string chat_notice{};            // printed at the start: why chats are refused, or which template was guessed
  slm::Pooling pooling = slm::Pooling::mean;  // of embeddings, where a request names none
  std::optional<slm::Error> no_pooling{};     // why a request must name one
  std::string fingerprint;                    // of what an answer depends on besides its request
  OrderedJson tokenizer_info;
  std::int64_t created = 0;                               // Unix time
  std::shared_ptr<slm::AdapterStore> adapters = nullptr;  // which make models of it, by their names; null: none
  slm::SuggestedSampling suggested = {};                  // of requests that do not name these settings
};

/// May be called by any thread.
class Service {
 public:
  virtual ~Service() = default;
  /// As Engine::submit.
  virtual slm::Answer submit(slm::Request request, const slm::Scheduling& scheduling, std::function<void()> wake) = 0;
  virtual slm::EngineStats stats() const = 0;
  /// The id of the fault that the engine's thread met; empty: none, or a step has succeeded since. While there is one,
  /// and no request that would show its end, each call has the model try a token: who looks at /health before he sends
  /// requests learns that way when the server is well again.
  virtual std::string fault() = 0;
};

using Draft = std::variant<slm::NoDrafter, slm::NgramDrafter, slm::AnyModel>;

/// Makes an engine and the thread that steps it. A device error ends running and queued requests; later requests are
/// attempted.
std::unique_ptr<Service> make_service(Draft draft, slm::AnyModel target, const slm::EngineOptions& options);

}  // namespace serve
