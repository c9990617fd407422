// AdapterFloors: the inside of an AdapterStore, which lives as long as anybody who uses its adapters.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_floor.hpp"
#include "slm/engine/adapter_options.hpp"
#include "slm/engine/stored_adapter.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class AdapterFloors;

/// That somebody wants an adapter; what all copies of a ticket share.
struct AdapterWish {
  AdapterWish(std::shared_ptr<AdapterFloors> of, StoredRef wanted) : floors(std::move(of)), one(std::move(wanted)) {}
  AdapterWish(const AdapterWish&) = delete;
  AdapterWish& operator=(const AdapterWish&) = delete;
  inline ~AdapterWish();

  const std::shared_ptr<AdapterFloors> floors;
  const StoredRef one;
  std::function<void()> wake = {};       // when there is news of it; the store's mutex guards it
  std::atomic<std::uint64_t> digest{0};  // of what was taken; 0: nothing yet
  std::atomic<bool> failed{false};       // it could not be taken
};

/// What the users of an adapter share.
struct AdapterLease {
  AdapterLease(std::shared_ptr<AdapterFloors> of, StoredRef leased)
      : floors(std::move(of)), one(std::move(leased)), adapter(one->adapter), placed(one->placed) {}
  AdapterLease(const AdapterLease&) = delete;
  AdapterLease& operator=(const AdapterLease&) = delete;
  inline ~AdapterLease();

  const std::shared_ptr<AdapterFloors> floors;
  const StoredRef one;
  AdapterRef adapter, placed;
};

/// Any thread may use it, and one runs it. Nothing slow is done under its mutex: neither reading nor giving back
/// memory.
class AdapterFloors : public std::enable_shared_from_this<AdapterFloors> {
  using Stage = StoredAdapter::Stage;
  using Dropped = std::vector<std::shared_ptr<const void>>;  // to be given back once the mutex is free
  using Wakes = std::vector<std::function<void()>>;

 public:
  using Read = std::function<AdapterRef(const std::filesystem::path&)>;
  using Publish = std::function<StoredRef(const StoredRef&)>;

  /// read: throws Error. publish: lets a name mean what was loaded for it, and says what it meant; throws Error.
  AdapterFloors(AdapterStoreOptions options, Read read, Publish publish)
      : options_(with_clock(std::move(options))), read_(std::move(read)), publish_(std::move(publish)) {}

  /// Somebody wants it from now on, so that it is brought.
  std::shared_ptr<AdapterWish> wish(const StoredRef& one) {
    auto made = std::make_shared<AdapterWish>(shared_from_this(), one);
    const std::lock_guard lock(mutex_);
    one->wishes.insert(made.get());
    ++(one->stage == Stage::there ? hits_ : misses_);
    enqueue(one);
    return made;
  }
  void forget(AdapterWish& wish) {
    const std::lock_guard lock(mutex_);
    StoredAdapter& one = *wish.one;
    one.wishes.erase(&wish);
    if (one.wishes.empty() && !one.pinned && one.stage == Stage::queued) {
      queue_.remove(wish.one);
      leave_queue(one, Stage::away);
    }
    tell();
  }
  void on_news(AdapterWish& wish, std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wish.wake.swap(wake);
  }

  /// The adapter, which stays as long as anybody holds the handle. Null while it is on its way; throws why it cannot be
  /// had.
  AdapterRef take(AdapterWish& wish) {
    StoredAdapter& one = *wish.one;
    const Stage known = one.stage;
    if ((known == Stage::queued || known == Stage::loading) && !closed_) return nullptr;
    const std::lock_guard lock(mutex_);
    if (one.stage == Stage::there) return lease(wish);
    const bool remembered = one.stage == Stage::failed && options_.clock() < one.forget_failure;
    if (remembered || closed_) wish.failed = true;
    if (remembered) std::rethrow_exception(one.failure);
    if (closed_) {
      throw Error("adapter.unknown", text("the store of the adapter ", quote(one.name), " is gone"),
                  "Keep the store as long as it is asked for adapters");
    }
    enqueue(wish.one);
    return nullptr;
  }
  /// The same, as soon as it is there.
  AdapterRef wait(AdapterWish& wish) {
    for (;;) {
      if (AdapterRef adapter = take(wish)) return adapter;
      press(*wish.one);
      std::unique_lock lock(mutex_);
      arrived_.wait(lock,
                    [&] { return closed_ || (wish.one->stage != Stage::queued && wish.one->stage != Stage::loading); });
    }
  }

  /// It comes before others, and in place of what is wished for but not used.
  void press(StoredAdapter& one) {
    if (one.stage != Stage::queued) return;
    const std::lock_guard lock(mutex_);
    if (one.stage != Stage::queued || one.pressed) return;
    one.pressed = true;
    tell();
  }
  void pin(const StoredRef& one, bool pinned) {
    const std::lock_guard lock(mutex_);
    one->pinned = pinned;
    if (pinned) enqueue(one);
    tell();
  }
  /// No name means it any more: it goes with the last who uses it or wishes for it.
  void unname(const StoredRef& one) {
    const std::lock_guard lock(mutex_);
    one->pinned = false;
    unnamed_.push_back(one);
    tell();
  }
  void released(StoredAdapter& one) {
    const std::lock_guard lock(mutex_);
    --one.leases;
    touch(one);
    tell();
  }

  /// Loads what is wished for, one after the other, and gives back what nobody wants.
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      StoredRef one;
      Wakes wakes;
      {
        Dropped dropped;  // gone before there is more to be held
        std::unique_lock lock(mutex_);
        changed_.wait(lock, stop, [&] { return news_; });
        news_ = false;
        free_unnamed(dropped);
        if (dropped.empty() && !queue_.empty()) one = next(lock, dropped, wakes);
        if (one != nullptr || !dropped.empty()) news_ = true;  // there may be more to do
        lock.unlock();
      }
      for (const auto& wake : wakes) wake();
      if (one != nullptr) load(one);
    }
  }
  /// Nothing is loaded any more, and nothing kept but by those who use it.
  void close() {
    Dropped dropped;
    Wakes wakes;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      while (!host_.all().empty()) {
        const StoredRef one = host_.all().front();
        give_up(*one, dropped, &AdapterFloorStats::freed, true);
      }
      for (const StoredRef& one : queue_) add_wakes(*one, wakes);
      arrived_.notify_all();
    }
    for (const auto& wake : wakes) wake();
  }

  /// Of all but the disk.
  AdapterStoreStats stats() const {
    const std::lock_guard lock(mutex_);
    AdapterStoreStats all{.device = device_counts_,
                          .host = host_counts_,
                          .hits = hits_,
                          .misses = misses_,
                          .failures = failures_,
                          .load_seconds = load_seconds_};
    all.device.bytes = device_.used(), all.device.budget = device_.budget();
    all.host.bytes = host_.used(), all.host.budget = host_.budget();
    for (const StoredRef& one : host_.all()) {
      all.host.adapters += one->adapter != nullptr;
      all.device.adapters += one->placed != nullptr;
      all.pinned += one->pinned && one->adapter != nullptr;
      if (one->in_use()) all.in_use.push_back(one->name);
      if (one->stage == Stage::loading) all.awaited.push_back(one->name);
    }
    for (const StoredRef& one : queue_) all.awaited.push_back(one->name);
    return all;
  }

 private:
  static AdapterStoreOptions with_clock(AdapterStoreOptions options) {
    if (!options.clock) options.clock = steady_seconds;
    return options;
  }

  void tell() {
    news_ = true;
    changed_.notify_all();
  }
  void touch(StoredAdapter& one) {
    host_.touch(one);
    device_.touch(one);
  }
  static void add_wakes(const StoredAdapter& one, Wakes& wakes) {
    for (const AdapterWish* wish : one.wishes) {
      if (wish->wake) wakes.push_back(wish->wake);
    }
  }

  AdapterRef lease(AdapterWish& wish) {
    StoredAdapter& one = *wish.one;
    touch(one);
    wish.digest = one.adapter->digest;
    if (AdapterRef shared = one.lease.lock()) return shared;
    const auto made = std::make_shared<const AdapterLease>(shared_from_this(), wish.one);
    AdapterRef adapter(made, (made->placed != nullptr ? made->placed : made->adapter).get());
    one.lease = adapter;
    ++one.leases;
    return adapter;
  }

  void enqueue(const StoredRef& one) {
    const bool again = one->stage == Stage::failed && options_.clock() >= one->forget_failure;
    if (closed_ || (one->stage != Stage::away && !again)) return;
    one->stage = Stage::queued;
    queue_.push_back(one);
    tell();
  }
  static void leave_queue(StoredAdapter& one, Stage to) {
    one.stage = to;
    one.pressed = false;
    one.lacks_room = false;
  }

  /// Takes it from the device's floor, and from the host's too.
  void give_up(StoredAdapter& one, Dropped& dropped, std::int64_t AdapterFloorStats::*counter, bool from_host) {
    if (one.placed != nullptr) ++(device_counts_.*counter);
    device_.remove(one);
    dropped.push_back(std::move(one.placed));
    if (from_host) {
      if (one.adapter != nullptr) ++(host_counts_.*counter);
      host_.remove(one);
      dropped.push_back(std::move(one.adapter));
    }
    if (one.stage == Stage::there) one.stage = Stage::away;
  }
  void free_unnamed(Dropped& dropped) {
    unnamed_.remove_if([&](const StoredRef& one) {
      if (!one->wishes.empty() || one->in_use()) return false;
      give_up(*one, dropped, &AdapterFloorStats::freed, true);
      return true;
    });
  }

  void fail(StoredAdapter& one, std::exception_ptr why, Wakes& wakes) {
    leave_queue(one, Stage::failed);
    one.failure = std::move(why);
    one.forget_failure = options_.clock() + options_.remember_failure;
    ++failures_;
    add_wakes(one, wakes);
    arrived_.notify_all();
  }
  std::exception_ptr no_room(const StoredAdapter& one, std::uint64_t bytes) const {
    return std::make_exception_ptr(
        Error("adapter.no-room",
              text("the adapter ", quote(one.name), " has ", bytes, " bytes, which the budget (", host_.budget(),
                   " bytes of the host, ", device_.budget(), " of the device; 0 is no limit) never has beside what is ",
                   "pinned"),
              "Raise the budget, or unpin other adapters"));
  }

  /// The next adapter to be loaded, with room for it on its floors, or null. Not locked while it looks at the files.
  StoredRef next(std::unique_lock<std::mutex>& lock, Dropped& dropped, Wakes& wakes) {
    const auto pressed = std::find_if(queue_.begin(), queue_.end(), [](const auto& one) { return one->pressed; });
    const StoredRef one = pressed == queue_.end() ? queue_.front() : *pressed;
    lock.unlock();
    const std::uint64_t bytes = weights_bytes(one->folder);  // more than it takes: the file has a header
    lock.lock();
    if (one->stage != Stage::queued) return nullptr;  // and there is news of that
    const std::uint64_t on_host = host_.holds(*one) ? 0 : bytes, on_device = options_.place ? bytes : 0;
    if (host_.refuses(on_host, *one) || device_.refuses(on_device, *one)) {
      queue_.remove(one);
      fail(*one, no_room(*one, bytes), wakes);
      news_ = true;
      return nullptr;
    }
    const auto host = host_.victims(on_host, one->pressed), device = device_.victims(on_device, one->pressed);
    if (!host || !device) {
      if (!one->lacks_room.exchange(true)) add_wakes(*one, wakes);
      return nullptr;
    }
    for (const StoredRef& other : *host) give_up(*other, dropped, &AdapterFloorStats::evictions, true);
    for (const StoredRef& other : *device) give_up(*other, dropped, &AdapterFloorStats::evictions, false);
    if (!host_.holds(*one)) host_.put(one, on_host);
    if (options_.place) device_.put(one, on_device);
    queue_.remove(one);
    leave_queue(*one, Stage::loading);
    return one;
  }

  void load(const StoredRef& one) {
    const double began = options_.clock();
    const std::size_t room = one->host.bytes;
    AdapterRef adapter = one->adapter;
    const bool held = adapter != nullptr;
    AdapterRef placed;
    std::exception_ptr failure;
    try {
      check_inside(*one);
      if (!held) adapter = read_(one->folder);
      if (adapter->bytes > room) {
        throw Error("adapter.changed",
                    text("the files of the adapter ", quote(one->name), " changed while it was read"),
                    "Ask for it again when they are complete");
      }
      if (options_.place) placed = options_.place(adapter);
      if (std::exchange(one->to_publish, false)) {
        if (const StoredRef before = publish_(one)) unname(before);
      }
    } catch (...) {
      failure = std::current_exception();
      adapter = nullptr;  // before anybody is told
      placed = nullptr;
    }
    Wakes wakes;
    {
      const std::lock_guard lock(mutex_);
      if (failure) {
        device_.remove(*one);
        if (!held) host_.remove(*one);
        fail(*one, std::move(failure), wakes);
      } else {
        host_.resize(*one, adapter->bytes);
        host_counts_.loads += !held;
        if (placed != nullptr) {
          device_.resize(*one, placed->bytes);
          ++device_counts_.loads;
        }
        one->adapter = std::move(adapter);
        one->placed = std::move(placed);
        one->stage = Stage::there;
        load_seconds_.add(options_.clock() - began);
        add_wakes(*one, wakes);
        arrived_.notify_all();
      }
      tell();
    }
    for (const auto& wake : wakes) wake();
  }

  const AdapterStoreOptions options_;
  const Read read_;
  const Publish publish_;

  mutable std::mutex mutex_;  // of what follows, and of what StoredAdapter says
  std::condition_variable_any changed_;
  std::condition_variable arrived_;
  std::atomic<bool> closed_{false};
  bool news_ = false;             // that may let something be loaded
  std::list<StoredRef> queue_;    // in the order in which they were wished for
  std::list<StoredRef> unnamed_;  // no name means them any more; those who use them or wish for them still do
  AdapterFloor host_{&StoredAdapter::host, options_.host_memory};
  AdapterFloor device_{&StoredAdapter::device, options_.place ? options_.device_memory : 0};
  AdapterFloorStats host_counts_, device_counts_;
  std::int64_t hits_ = 0, misses_ = 0, failures_ = 0;
  Histogram load_seconds_{load_bounds};
};

AdapterWish::~AdapterWish() { floors->forget(*this); }
AdapterLease::~AdapterLease() {
  adapter = nullptr;  // before the store takes it for one that can go
  placed = nullptr;
  floors->released(*one);
}

}}}
