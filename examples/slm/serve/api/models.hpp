// Models: several models in one process, loaded when requests name them, within a memory budget.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/model_api.hpp"
#include "slm/core/start_thread.hpp"

namespace serve {

/// A model of the command line.
struct ModelSource {
  std::string name, path;
  std::string draft = {};  // path; empty: none
};

/// Facts of a model that is not loaded, from the headers of its files.
struct ModelOutline {
  std::uint64_t bytes = 0;  // of the loaded model with its draft and its KV cache
  int context = 0;
};

struct ModelList {
  std::vector<ModelSource> sources = {};  // with different names; the first one is the default
  std::uint64_t budget = 0;               // bytes of all loaded models
  bool any_name = false;                  // unknown names mean the first model
  // Both throw slm::Error. They run on the thread that loads models. is_over: whether the load should end by an error,
  // since the server ends.
  std::function<ModelOutline(const ModelSource&)> outline = {};
  std::function<LoadedModel(const ModelSource&, const std::function<bool()>& is_over)> load = {};
};

/// Throws serve.model-memory if a model is larger than the budget of all.
void check_budget(const std::string& name, std::uint64_t bytes, std::uint64_t budget);

/// A request's claim on a model. The model stays loaded until the claim is destroyed.
class ModelClaim;

/// Thread-safe. One thread loads and unloads, one model after another in the order of requests. If the budget has no
/// room, it unloads the models that are idle, the least recently used first. If these do not suffice, the least
/// recently used of the others take no further requests before they are unloaded.
class Models {
 public:
  Models(ModelList list, const ApiOptions& options, const slm::CancelSource& cancel);
  ~Models();  // ends a load in progress
  Models(const Models&) = delete;
  Models& operator=(const Models&) = delete;

  /// Claims the model of this name, and the first one if there is none. wake: called when the claim's state changes.
  /// Throws Refusal.
  std::unique_ptr<ModelClaim> claim(const std::optional<std::string>& name, std::function<void()> wake);
  /// Refuses waiting claims.
  void cancel();

  /// The entries of /v1/models.
  OrderedJson cards() const;
  /// Throws Refusal.
  OrderedJson card_of(const std::string& name) const;
  void add_metrics(MetricsPage& page) const;
  /// The fault of a loaded model; empty: none.
  std::string fault() const;
  /// The number of waiting and running requests.
  std::size_t load() const;
  /// Of the loaded models.
  std::vector<slm::EngineStats> stats() const;

 private:
  friend class ModelClaim;
  struct Entry {
    ModelSource source;
    std::optional<int> context = {};
    std::uint64_t bytes = 0;
    std::shared_ptr<ModelApi> api = nullptr;  // null: not loaded
    std::optional<slm::Error> failure = {};   // of the last load
    bool loading = false;                     // a request waits for it
    bool closing = false;                     // takes no further requests, since another model needs its memory
    std::size_t uses = 0;                     // claims that hold the model
    std::uint64_t last_use = 0;
    std::vector<ModelClaim*> waiting = {};
    std::uint64_t loads = 0, evictions = 0, failures = 0;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Wakes = std::vector<std::function<void()>>;

  void run();
  void load(Entry& entry, Lock& lock);
  /// Unloads models until the budget has room. Returns false if no request waits any more.
  bool make_room(Entry& entry, Lock& lock);
  void unload(Entry& entry, Lock& lock);
  void grant(Entry& entry, ModelClaim& claim);
  /// Ends the wait of all claims.
  void settle(Entry& entry, const std::optional<slm::Error>& failure, Lock& lock);
  void release(ModelClaim& claim);
  /// Throws Refusal.
  std::size_t index_of(const std::string& name) const;
  OrderedJson card(const Entry& entry) const;
  std::vector<std::pair<std::string, std::shared_ptr<ModelApi>>> loaded() const;

  const ModelList list_;
  const ApiOptions& options_;
  const slm::CancelToken cancelled_;
  const std::int64_t created_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable news_;
  std::vector<Entry> entries_;
  std::deque<Entry*> queue_;  // with waiting claims, or with claims that have gone
  std::size_t waiting_ = 0;   // claims
  std::uint64_t clock_ = 0;
  bool stopped_ = false;
  slm::detail::JoinedThread thread_;  // the last member: it ends before the others
};

class ModelClaim {
 public:
  ~ModelClaim() { models_.release(*this); }
  ModelClaim(const ModelClaim&) = delete;
  ModelClaim& operator=(const ModelClaim&) = delete;

  /// Null while the model is loading. Throws the refusal of a failed load.
  ModelApi* model() const;

 private:
  friend class Models;
  ModelClaim(Models& models, Models::Entry& entry, std::function<void()> wake)
      : models_(models), entry_(entry), wake_(std::move(wake)) {}

  Models& models_;
  Models::Entry& entry_;
  std::function<void()> wake_;
  // Guarded by the mutex of the models.
  ModelApi* model_ = nullptr;
  std::optional<Refusal> refusal_ = {};
};

}  // namespace serve
