// AdapterStore: named LoRA adapters of one model; requested ones are kept in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/free_memory.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_cache.hpp"
#include "slm/engine/adapter_lease.hpp"
#include "slm/engine/adapter_options.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Options of AdapterStore::load().
struct AdapterLoading {
  bool replace = false;  // replace an adapter of the same name once the new one is ready
  bool inside = false;   // require its files to be inside the store's folder
  bool pinned = false;
};

/// Adapters live in three tiers: on disk, as PEFT saves them; in host memory, read and checked; in device memory, if
/// the device has its own. One loader thread loads requested adapters. When a budget is spent, it evicts the least
/// recently used adapters, except those that are pinned or in use. Any thread may use a store. Leases and adapters may
/// outlive it.
class AdapterStore {
 public:
  /// Throws adapter.no-folder, backend.no-thread.
  template <LanguageModel M>
  explicit AdapterStore(const M& model, AdapterStoreOptions options = {})
      : cache_(std::make_shared<detail::AdapterCache>(
            complete(std::move(options), model.info()),
            [info = model.info()](const std::filesystem::path& folder) { return read(folder, info); })),
        loader_(detail::start_thread([cache = cache_] { cache->run(); })) {}
  ~AdapterStore() {
    cache_->stop();
    loader_.join();
    cache_->close();
  }
  AdapterStore(const AdapterStore&) = delete;
  AdapterStore& operator=(const AdapterStore&) = delete;

  /// Requests an adapter; the loader thread loads it. The lease reports errors of its files. Throws adapter.unknown,
  /// and adapter.name or adapter.no-room if the name cannot be served.
  AdapterLease lease(std::string_view name) { return AdapterLease(cache_->lease(cache_->find(name))); }

  /// Loads an adapter from any folder; it takes the name when it is ready. If the lease ends before, it is not loaded
  /// unless pinned. Throws adapter.name.
  AdapterLease load(std::string name, const std::filesystem::path& folder, const AdapterLoading& how = {}) {
    return AdapterLease(cache_->load(std::move(name), folder, how.replace, how.inside, how.pinned));
  }

  /// Removes the name, and hides a sub-folder of that name. Requests and leases keep the adapter; it is freed with the
  /// last of them. Throws adapter.unknown.
  void unload(std::string_view name) { cache_->unload(name); }

  /// pinned: load the adapter and never evict it; false: allow eviction again. Throws like lease().
  void pin(std::string_view name, bool pinned = true) { cache_->pin(cache_->find(name), pinned); }

  /// Names that lease() accepts, sorted. Their files may still be invalid.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : cache_->entries()) names.push_back(entry->name);
    return names;
  }
  /// Names and folders, sorted by name.
  std::vector<std::pair<std::string, std::filesystem::path>> folders() {
    std::vector<std::pair<std::string, std::filesystem::path>> folders;
    for (const auto& entry : cache_->entries()) folders.emplace_back(entry->name, entry->folder);
    return folders;
  }
  /// AdapterStoreOptions::folder.
  const std::filesystem::path& folder() const { return cache_->options.folder; }
  /// Throws like lease().
  std::filesystem::path folder_of(std::string_view name) { return cache_->find(name)->folder; }

  AdapterStoreStats stats() const { return cache_->stats(); }

 private:
  static AdapterStoreOptions complete(AdapterStoreOptions options, const ModelInfo& model) {
    if (options.host_memory == 0) options.host_memory = detail::usual_budget(4);
    if (model.own_memory && !options.place) options.place = model.place_adapter;
    if (!options.clock) options.clock = steady_seconds;
    return options;
  }

  /// If host and device share memory, reading also places.
  static AdapterRef read(const std::filesystem::path& folder, const ModelInfo& model) {
    return model.own_memory && model.read_adapter ? model.read_adapter(folder) : load_adapter(folder, model);
  }

  std::shared_ptr<detail::AdapterCache> cache_;
  detail::JoinedThread loader_;
};

}}
