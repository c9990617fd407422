// AdapterLease: a claim to an adapter of an AdapterStore.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "slm/engine/adapter_cache.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// A handle: copies are the same lease. The store loads the adapter as long as there is one, and evicts it only for a
/// lease that is pressed. A lease stays with the adapter that the name stood for when it was asked for.
class AdapterLease {
 public:
  AdapterLease() = default;  // of no adapter; only operator bool may be called
  explicit AdapterLease(std::shared_ptr<detail::AdapterLeaseState> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }

  const std::string& name() const { return state_->entry->name; }
  const std::filesystem::path& folder() const { return state_->entry->folder; }

  /// The adapter; null while it is being loaded. It is in use, and so not evicted, as long as anybody holds the handle.
  /// Throws the error for which it could not be loaded.
  AdapterRef take() const { return state_->cache->take(*state_, false); }
  /// The same, once it is loaded. Waits while adapters in use leave no room for it.
  AdapterRef wait() const { return state_->cache->take(*state_, true); }

  /// Whether it waits for memory that other adapters use.
  bool lacks_room() const {
    const auto lock = state_->cache->lock();
    return state_->entry->lacks_room;
  }
  /// It is loaded before all others, and may evict adapters that are not in use though they have leases.
  void press() const {
    const auto lock = state_->cache->lock();
    state_->cache->press(*state_->entry);
  }
  /// Called by any thread when the adapter is ready, could not be loaded, or lacks room; at any time until the lease is
  /// gone, and maybe once after. Must not take long nor throw.
  void on_news(std::function<void()> wake) const {
    auto shared = std::make_shared<const std::function<void()>>(std::move(wake));
    const auto lock = state_->cache->lock();
    state_->wake.swap(shared);
  }

  /// Whether it was taken, or its error was thrown.
  bool settled() const { return state_->digest != 0 || state_->failed; }
  /// Adapter::digest of what was taken; 0: nothing yet.
  std::uint64_t digest() const { return state_->digest; }

 private:
  std::shared_ptr<detail::AdapterLeaseState> state_;
};

}}
