// AdapterStore: many adapters of one model, by names, of which those that are asked for are in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "slm/core/free_memory.hpp"
#include "slm/core/start_thread.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_cache.hpp"
#include "slm/engine/adapter_lease.hpp"
#include "slm/engine/adapter_options.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// How an adapter comes by a name.
struct AdapterLoading {
  bool replace = false;  // the adapter that has the name so far, once the new one is ready
  bool inside = false;   // its files must lie in the store's folder
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
        loader_(detail::start_thread([cache = cache_](const std::stop_token& stop) { cache->run(stop); })) {}
  ~AdapterStore() {
    loader_.request_stop();
    loader_.join();
    cache_->close();
  }
  AdapterStore(const AdapterStore&) = delete;
  AdapterStore& operator=(const AdapterStore&) = delete;

  /// Asks for an adapter, so that it is loaded meanwhile. The lease reports what is wrong with its files. Throws
  /// adapter.unknown, and adapter.name or adapter.no-room where the name cannot be served.
  AdapterLease ask(std::string_view name) { return AdapterLease(cache_->lease(cache_->find(name))); }

  /// Loads an adapter from any folder; its name stands for it from when it is ready. It is not loaded if the lease is
  /// gone before, unless it is pinned. Throws adapter.name.
  AdapterLease load(std::string name, const std::filesystem::path& folder, const AdapterLoading& how = {}) {
    return AdapterLease(cache_->load(std::move(name), folder, how.replace, how.inside, how.pinned));
  }

  /// From now on the name stands for no adapter, also where a sub-folder has it. Texts and leases keep the adapter; it
  /// is freed with the last of them. Throws adapter.unknown.
  void unload(std::string_view name) { cache_->unload(name); }

  /// pinned: the adapter is loaded and not evicted; else it may be evicted again. Throws as ask().
  void pin(std::string_view name, bool pinned = true) { cache_->pin(cache_->find(name), pinned); }

  /// What may be asked for, in order, whatever is wrong with their files.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : cache_->entries()) names.push_back(entry->name);
    return names;
  }
  /// The same, and the folder of each.
  std::vector<std::pair<std::string, std::filesystem::path>> folders() {
    std::vector<std::pair<std::string, std::filesystem::path>> folders;
    for (const auto& entry : cache_->entries()) folders.emplace_back(entry->name, entry->folder);
    return folders;
  }
  /// AdapterStoreOptions::folder.
  const std::filesystem::path& folder() const { return cache_->options.folder; }
  /// Throws as ask().
  std::filesystem::path folder_of(std::string_view name) { return cache_->find(name)->folder; }

  AdapterStoreStats stats() const { return cache_->stats(); }

 private:
  static AdapterStoreOptions complete(AdapterStoreOptions options, const ModelInfo& model) {
    if (options.host_memory == 0) options.host_memory = detail::usual_budget(4);
    if (model.own_memory && !options.place) options.place = model.place_adapter;
    if (!options.clock) options.clock = steady_seconds;
    return options;
  }

  /// Where host and device share memory, reading an adapter also places it.
  static AdapterRef read(const std::filesystem::path& folder, const ModelInfo& model) {
    return model.own_memory && model.read_adapter ? model.read_adapter(folder) : load_adapter(folder, model);
  }

  std::shared_ptr<detail::AdapterCache> cache_;
  std::jthread loader_;
};

}}
