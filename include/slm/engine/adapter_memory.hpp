// AdapterMemory: the adapters of a store in memory, and the queue of those to load.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/engine/adapter_entry.hpp"
#include "slm/engine/adapter_options.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// One memory tier. Budget in bytes; 0: no limit. Entries are passed least recently used first.
struct AdapterTier {
  std::size_t AdapterEntry::*bytes_of;
  AdapterTierStats stats = {};  // except stats.adapters

  void resize(AdapterEntry& entry, std::size_t bytes) noexcept {
    stats.bytes = stats.bytes - entry.*bytes_of + bytes;
    entry.*bytes_of = bytes;
  }

  /// Whether `bytes` fit after evicting all entries for which stays(entry) is false.
  bool can_fit(std::size_t bytes, const std::list<EntryRef>& entries, auto stays) const {
    for (const EntryRef& other : entries) bytes += stays(*other) ? (*other).*bytes_of : 0;
    return stats.budget == 0 || bytes <= stats.budget;
  }
  /// The next entry to evict so that `bytes` fit; null if they fit. Leased entries are evicted last.
  EntryRef victim(std::size_t bytes, const std::list<EntryRef>& entries, auto stays) const {
    if (stats.budget == 0 || stats.bytes + bytes <= stats.budget) return nullptr;
    for (const bool leased : {false, true}) {
      for (const EntryRef& entry : entries) {
        if ((*entry).*bytes_of > 0 && entry->leases.empty() != leased && !stays(*entry)) return entry;
      }
    }
    return nullptr;
  }
};

/// Not thread-safe. A call that throws changes nothing.
class AdapterMemory {
  using State = AdapterEntry::State;

 public:
  enum class Space { lacking, growing, enough };

  /// places: whether adapters are copied to device memory.
  AdapterMemory(std::size_t host_budget, std::size_t device_budget, bool places) : places_(places) {
    host_.stats.budget = host_budget;
    device_.stats.budget = places ? device_budget : 0;
  }

  void enqueue(const EntryRef& entry) {
    queue_.push_back(entry);
    entry->state = State::queued;
  }
  void leave_queue(AdapterEntry& entry, State to) noexcept {
    queue_.remove_if([&](const EntryRef& queued) { return queued.get() == &entry; });
    entry.state = to;
    entry.pressed = entry.lacks_memory = false;
  }
  /// The first pressed entry, else the first entry; null: the queue is empty.
  EntryRef next_queued() const noexcept {
    if (queue_.empty()) return nullptr;
    const auto found = std::find_if(queue_.begin(), queue_.end(), [](const EntryRef& entry) { return entry->pressed; });
    return found == queue_.end() ? queue_.front() : *found;
  }

  void mark_used(AdapterEntry& entry) noexcept {
    if (entry.resident) resident_.splice(resident_.end(), resident_, entry.at);
  }
  EntryRef first() const noexcept { return resident_.empty() ? nullptr : resident_.front(); }
  /// An adapter without name, user and lease. Null: none until the next look_for_unwanted().
  EntryRef next_unwanted() noexcept {
    if (!has_unwanted_) return nullptr;
    const auto found = std::find_if(resident_.begin(), resident_.end(), [](const EntryRef& entry) {
      return !entry->named && entry->uses == 0 && entry->leases.empty();
    });
    has_unwanted_ = found != resident_.end();
    return has_unwanted_ ? *found : nullptr;
  }
  void look_for_unwanted() noexcept { has_unwanted_ = true; }

  /// Makes room to load an entry of `bytes` bytes. enough: there is room. growing: one adapter was evicted into
  /// `freed`; call again. lacking: all adapters that it could evict are in use. Throws adapter.no-room if pinned
  /// adapters leave too little room.
  Space make_space(const AdapterEntry& entry, std::size_t bytes, AdapterCopies& freed) {
    const std::size_t on_host = entry.resident ? 0 : bytes, on_device = places_ ? bytes : 0;
    const auto all_fit = [&](auto stays) {
      return host_.can_fit(on_host, resident_, stays) && device_.can_fit(on_device, resident_, stays);
    };
    if (!all_fit([&](const AdapterEntry& other) { return other.pinned && &other != &entry; })) {
      throw Error("adapter.no-room",
                  text("the adapter ", quote(entry.name), " has ", bytes, " bytes; expected at most the budget (",
                       host_.stats.budget, " bytes of host memory, ", device_.stats.budget,
                       " bytes of device memory; 0: no limit) without the pinned adapters"),
                  "Raise the budget, or unpin other adapters");
    }
    const auto stays = [&](const AdapterEntry& other) {
      return other.uses > 0 || other.pinned || (!other.leases.empty() && !entry.pressed);
    };
    if (!all_fit(stays)) return Space::lacking;
    const EntryRef from_host = host_.victim(on_host, resident_, stays);
    const EntryRef other = from_host ? from_host : device_.victim(on_device, resident_, stays);
    if (other == nullptr) return Space::enough;
    freed = give_up(*other, &AdapterTierStats::evictions, from_host != nullptr);
    return Space::growing;
  }
  /// Marks the entry as loading, with a size of `bytes`.
  void reserve(const EntryRef& entry, std::size_t bytes) {
    if (!entry->resident) {
      entry->at = resident_.insert(resident_.end(), entry);
      entry->resident = true;
      host_.resize(*entry, bytes);
    }
    device_.resize(*entry, places_ ? bytes : 0);
    leave_queue(*entry, State::loading);
  }
  void put(AdapterEntry& entry, AdapterCopies loaded) noexcept {
    host_.stats.loads += entry.copies.on_host == nullptr;
    device_.stats.loads += loaded.on_device != nullptr;
    host_.resize(entry, loaded.on_host->bytes);
    device_.resize(entry, loaded.on_device != nullptr ? loaded.on_device->bytes : 0);
    entry.copies = std::move(loaded);
    mark_used(entry);
  }
  /// Reverts reserve() instead of put().
  void cancel(AdapterEntry& entry) noexcept {
    static_cast<void>(give_up(entry, &AdapterTierStats::freed, entry.copies.on_host == nullptr));  // it has no copies
  }
  /// Removes it from device memory, and from host memory if from_host.
  [[nodiscard]] AdapterCopies give_up(AdapterEntry& entry, std::int64_t AdapterTierStats::*counter,
                                      bool from_host) noexcept {
    AdapterCopies freed{.on_host = nullptr, .on_device = std::exchange(entry.copies.on_device, nullptr)};
    if (freed.on_device != nullptr) ++(device_.stats.*counter);
    device_.resize(entry, 0);
    if (from_host) {
      freed.on_host = std::exchange(entry.copies.on_host, nullptr);
      if (freed.on_host != nullptr) ++(host_.stats.*counter);
      host_.resize(entry, 0);
      if (std::exchange(entry.resident, false)) resident_.erase(entry.at);
    }
    if (entry.state == State::ready) entry.state = State::absent;
    return freed;
  }

  void describe(AdapterStoreStats& all) const {
    all.device = device_.stats;
    all.host = host_.stats;
    for (const EntryRef& entry : resident_) {
      all.host.adapters += entry->copies.on_host != nullptr;
      all.device.adapters += entry->copies.on_device != nullptr;
      all.pinned += entry->pinned && entry->copies.on_host != nullptr;
      if (entry->uses > 0) all.in_use.push_back(entry->name);
      if (entry->state == State::loading) all.awaited.push_back(entry->name);
    }
    for (const EntryRef& entry : queue_) all.awaited.push_back(entry->name);
  }

 private:
  bool places_;
  bool has_unwanted_ = false;     // may be a false positive
  std::list<EntryRef> queue_;     // in order of requests
  std::list<EntryRef> resident_;  // in host memory or loading; least recently used first
  AdapterTier host_{&AdapterEntry::host_bytes}, device_{&AdapterEntry::device_bytes};
};

}}}
