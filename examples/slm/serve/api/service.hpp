// Service: the engine and its thread, and the description of the served model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/constraint_cache.hpp"
#include "api/refusal.hpp"
#include "api/slots.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_store.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/stats.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/text/tokenizer.hpp"
#include "tools/cli/chat_format.hpp"

namespace serve {

struct ServedModel {
  std::vector<std::string> names;  // accepted names; answers use the first
  std::string root;                // its path
  bool any_name = false;           // other names that no adapter has mean this model
  bool prefills = false;           // an assistant's message at the end of a chat is continued
  slm::ModelInfo info;
  slm::Tokenizer tokenizer;
  std::optional<cli::ChatFormat> chat;  // empty: chats are refused
  std::optional<slm::Error> no_chat{};  // the reason
  std::string chat_notice{};            // printed at start-up: why chats are refused, or which template was guessed
  slm::Pooling pooling = slm::Pooling::mean;  // default for embeddings
  std::optional<slm::Error> no_pooling{};     // why requests must set the pooling
  std::string fingerprint;                    // fingerprint of everything besides the request that affects an answer
  OrderedJson tokenizer_info;
  std::int64_t created = 0;                               // Unix time
  std::shared_ptr<slm::AdapterStore> adapters = nullptr;  // adapters served as models; null: none
  slm::SuggestedSampling suggested = {};                  // sampling defaults for requests
  std::shared_ptr<Slots> slots = nullptr;                 // null: texts of `id_slot` are not kept
  std::shared_ptr<ConstraintCache> constraints = std::make_shared<ConstraintCache>();
};

/// Thread-safe.
class Service {
 public:
  virtual ~Service() = default;
  /// See Engine::submit.
  virtual slm::Answer submit(slm::Request request, const slm::Scheduling& scheduling, std::function<void()> wake) = 0;
  virtual slm::EngineStats stats() const = 0;
  /// The id of the engine's last fault; empty: none, or a step has succeeded since. During a fault without other
  /// requests, each call submits a test token, so that polling /health detects recovery.
  virtual std::string fault() = 0;
};

/// Makes an engine and the thread that steps it. A device error ends running and queued requests; later requests are
/// attempted.
std::unique_ptr<Service> make_service(slm::Drafter draft, slm::AnyModel target, const slm::EngineOptions& options);

}  // namespace serve
