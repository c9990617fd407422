// AdapterLease: a reference to an adapter of an AdapterStore, which keeps it loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "slm/engine/adapter_cache.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// A handle: copies are the same lease. While a lease exists, the store loads the adapter, and evicts it only for a
/// pressed lease. A lease refers to the adapter that the name denoted when the lease was created.
class AdapterLease {
 public:
  AdapterLease() = default;  // empty; only operator bool may be called
  explicit AdapterLease(std::shared_ptr<detail::AdapterLeaseState> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }

  const std::string& name() const { return state_->entry->name; }
  const std::filesystem::path& folder() const { return state_->entry->folder; }

  /// Returns the adapter, or null while it is loading. An adapter is in use, and not evicted, while its handle exists.
  /// Throws the error of loading.
  AdapterRef take() const { return state_->cache->take(*state_, false); }
  /// Waits until the adapter is loaded, then returns it. The wait includes memory that other adapters in use occupy.
  AdapterRef wait() const { return state_->cache->take(*state_, true); }

  /// Whether it waits for memory that adapters in use occupy.
  bool lacks_memory() const {
    const auto lock = state_->cache->lock();
    return state_->entry->lacks_memory;
  }
  /// Raises its priority: it is loaded before all others, and may evict adapters that are leased but not in use.
  void press() const {
    const auto lock = state_->cache->lock();
    state_->cache->press(*state_->entry);
  }
  /// Sets a callback that any thread calls when the adapter is ready, has failed, or lacks room. It may run once after
  /// the lease is destroyed. It must be short and must not throw.
  void on_news(std::function<void()> wake) const {
    auto shared = std::make_shared<const std::function<void()>>(std::move(wake));
    const auto lock = state_->cache->lock();
    state_->wake.swap(shared);
  }

  /// Whether take() returned the adapter or threw its error.
  bool settled() const { return state_->digest != 0 || state_->failed; }
  /// Adapter::digest of the taken adapter; 0: not taken yet.
  std::uint64_t digest() const { return state_->digest; }

 private:
  std::shared_ptr<detail::AdapterLeaseState> state_;
};

}}
