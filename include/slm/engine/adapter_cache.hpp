// AdapterCache: the implementation of AdapterStore. It lives as long as any lease or adapter in use.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/folder.hpp"
#include "slm/core/os/path.hpp"
#include "slm/engine/adapter_entry.hpp"
#include "slm/engine/adapter_memory.hpp"
#include "slm/engine/adapter_names.hpp"
#include "slm/engine/adapter_options.hpp"
#include "slm/engine/unlocked.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class AdapterCache;

/// The state that copies of a lease share.
struct AdapterLeaseState {
  AdapterLeaseState(std::shared_ptr<AdapterCache> of, EntryRef leased)
      : cache(std::move(of)), entry(std::move(leased)) {}
  AdapterLeaseState(const AdapterLeaseState&) = delete;
  AdapterLeaseState& operator=(const AdapterLeaseState&) = delete;
  inline ~AdapterLeaseState();

  const std::shared_ptr<AdapterCache> cache;
  const EntryRef entry;
  std::shared_ptr<const std::function<void()>> wake = nullptr;  // guarded by the cache's mutex
  std::atomic<std::uint64_t> digest{0};                         // digest of the taken adapter; 0: not taken yet
  std::atomic<bool> failed{false};                              // its error was thrown to a caller
};

/// The state that users of an adapter share.
struct AdapterUse {
  AdapterUse(std::shared_ptr<AdapterCache> of, EntryRef used)
      : cache(std::move(of)), entry(std::move(used)), copies(entry->copies) {}
  AdapterUse(const AdapterUse&) = delete;
  AdapterUse& operator=(const AdapterUse&) = delete;
  inline ~AdapterUse();

  const std::shared_ptr<AdapterCache> cache;
  const EntryRef entry;
  AdapterCopies copies;
};

/// Thread-safe. One thread, the loader, executes run(). The mutex is unlocked while files are read, memory is released
/// and leases are notified. A call that throws changes nothing.
class AdapterCache : public std::enable_shared_from_this<AdapterCache> {
  using State = AdapterEntry::State;
  using Lock = std::unique_lock<std::mutex>;

 public:
  using Read = std::function<AdapterRef(const std::filesystem::path&)>;

  /// read: reads a folder into host memory; may throw Error. Throws adapter.no-folder.
  AdapterCache(AdapterStoreOptions its_options, Read read) : options(std::move(its_options)), read_(std::move(read)) {
    std::error_code fault;
    if (!options.folder.empty() && !std::filesystem::is_directory(options.folder, fault)) {
      throw Error("adapter.no-folder", text("'", options.folder.string(), "': expected a readable folder"),
                  "Name a folder whose sub-folders are adapters");
    }
    scan();
  }

  const AdapterStoreOptions options;

  // See AdapterStore.

  EntryRef find(std::string_view name) {
    Lock lock(mutex_);
    if (!names_.has(name)) {
      const Unlocked unlocked(lock);
      scan();
    }
    return names_.find(name);
  }
  std::shared_ptr<AdapterLeaseState> lease(const EntryRef& entry) {
    auto made = std::make_shared<AdapterLeaseState>(shared_from_this(), entry);
    const Lock lock(mutex_);
    const bool is_ready = entry->state == State::ready;
    entry->leases.insert(made.get());
    enqueue(entry);
    ++(is_ready ? stats_.hits : stats_.misses);
    return made;
  }
  std::shared_ptr<AdapterLeaseState> load(std::string name, const std::filesystem::path& folder, bool replaces,
                                          bool inside, bool pinned) {
    const std::filesystem::path root = inside ? options.folder : std::filesystem::path{};
    const EntryRef entry = make_entry(std::move(name), folder, root, false, replaces);
    entry->publishes = true;
    entry->pinned = pinned;
    {
      const Lock lock(mutex_);
      names_.check_new(*entry);
    }
    return lease(entry);
  }
  void unload(std::string_view name) {
    scan();
    const Lock lock(mutex_);
    forget_name(*names_.hide(name));
  }
  void pin(const EntryRef& entry, bool pinned) {
    const Lock lock(mutex_);
    if (pinned) enqueue(entry);
    entry->pinned = pinned;
    leave_unwanted(*entry);
    release(*entry);
  }
  std::vector<EntryRef> entries() {
    scan();
    const Lock lock(mutex_);
    return names_.entries();
  }
  AdapterStoreStats stats() const {
    const Lock lock(mutex_);
    AdapterStoreStats all = stats_;
    memory_.describe(all);
    all.disk = {.adapters = names_.size(), .bytes = names_.bytes(), .budget = options.disk_memory};
    return all;
  }

  // See AdapterLease.

  AdapterRef take(AdapterLeaseState& lease, bool waits) {
    Lock lock(mutex_);
    AdapterEntry& entry = *lease.entry;
    while (entry.state != State::ready) {
      const bool failed = entry.state == State::failed && options.clock() < entry.retry_from;
      if (failed || closed_) lease.failed = true;
      if (failed) std::rethrow_exception(entry.failure);
      if (closed_) {
        throw Error("adapter.unknown", text("the store of the adapter ", quote(entry.name), " is gone"),
                    "Keep the store alive while leases are used");
      }
      enqueue(lease.entry);
      if (!waits) return nullptr;
      press(entry);
      changed_.wait(lock, [&] { return closed_ || (entry.state != State::queued && entry.state != State::loading); });
    }
    AdapterRef adapter = entry.in_use.lock();
    if (adapter == nullptr) {
      const auto use = std::make_shared<const AdapterUse>(shared_from_this(), lease.entry);
      adapter = AdapterRef(use, (use->copies.on_device != nullptr ? use->copies.on_device : use->copies.on_host).get());
      entry.in_use = adapter;
      ++entry.uses;
    }
    lease.digest = entry.copies.on_host->digest;
    memory_.mark_used(entry);
    return adapter;
  }
  Lock lock() { return Lock(mutex_); }
  /// The caller must hold the lock.
  void press(AdapterEntry& entry) noexcept {
    if (entry.state == State::queued && !std::exchange(entry.pressed, true)) notify_loader();
  }
  /// The loader thread: loads queued adapters one at a time, and frees adapters without name, lease and user.
  void run() noexcept {
    for (Lock lock(mutex_); !stopping_;) {
      news_.wait(lock, [&] { return has_news_; });
      has_news_ = false;
      const EntryRef unwanted = memory_.next_unwanted(), queued = memory_.next_queued();
      AdapterCopies freed;
      std::exception_ptr failure;
      if (unwanted != nullptr) {
        freed = memory_.give_up(*unwanted, &AdapterTierStats::freed, true);
        has_news_ = true;
      } else if (queued != nullptr) {
        try {
          advance(queued, freed, lock);
        } catch (...) {
          failure = std::current_exception();
        }
      }
      {
        const Unlocked unlocked(lock);
        freed = {};
      }
      if (failure) fail(*queued, std::move(failure));
      if (queued != nullptr && std::exchange(queued->has_news, false)) wake_leases(*queued, lock);
    }
  }
  /// Ends run().
  void stop() noexcept {
    const Lock lock(mutex_);
    stopping_ = true;
    notify_loader();
  }
  /// After run(): stops loading. From then on, only users keep adapters alive.
  void close() noexcept {
    Lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    while (const EntryRef entry = memory_.first()) {
      AdapterCopies freed = memory_.give_up(*entry, &AdapterTierStats::freed, true);
      const Unlocked unlocked(lock);
      freed = {};
    }
    while (const EntryRef entry = memory_.next_queued()) {
      memory_.leave_queue(*entry, State::absent);
      wake_leases(*entry, lock);
    }
  }

 private:
  friend AdapterLeaseState;
  friend AdapterUse;

  static EntryRef make_entry(std::string name, const std::filesystem::path& folder, std::filesystem::path root,
                             bool found, bool replaces) {
    return EntryRef(new AdapterEntry{std::move(name), folder, std::move(root), found, replaces, weights_bytes(folder)});
  }

  /// Without the mutex. Scans the folder if its modification time has changed, or is too recent to exclude a second
  /// change.
  void scan() {
    namespace fs = std::filesystem;
    if (options.folder.empty()) return;
    const std::lock_guard alone(scanning_);
    std::error_code fault, ignored;
    const auto changed = fs::last_write_time(options.folder, fault);
    if (fault || scanned_ == changed) return;
    const bool settled = fs::file_time_type::clock::now() - changed > std::chrono::seconds(2);
    std::set<std::string, std::less<>> found;
    for (std::string& name : names_in(options.folder, fault)) {
      if (names_.may_be_found(name) && fs::is_directory(options.folder / path_of(name), ignored))
        found.insert(std::move(name));
    }
    if (fault) return;  // keeps the known names
    Lock lock(mutex_);
    for (const EntryRef& entry : names_.entries()) {
      if (!entry->found || found.contains(entry->name)) continue;
      names_.remove(*entry);
      forget_name(*entry);
    }
    for (const std::string& name : found) {
      if (!names_.is_new(name)) continue;
      lock.unlock();
      const EntryRef entry = make_entry(name, options.folder / path_of(name), options.folder, true, false);
      lock.lock();
      if (names_.is_new(name)) names_.give(entry);
    }
    scanned_ = settled ? std::optional(changed) : std::nullopt;
  }

  // The following functions require the mutex.

  void notify_loader() noexcept {
    has_news_ = true;
    news_.notify_all();
  }
  void enqueue(const EntryRef& entry) {
    const bool again = entry->state == State::failed && options.clock() >= entry->retry_from;
    if (closed_ || (entry->state != State::absent && !again)) return;
    memory_.enqueue(entry);
    notify_loader();
  }
  void leave_unwanted(AdapterEntry& entry) noexcept {
    if (entry.state == State::queued && entry.leases.empty() && !entry.pinned)
      memory_.leave_queue(entry, State::absent);
  }
  /// Removes the name from an entry, which is freed with its last user or lease.
  void forget_name(AdapterEntry& entry) noexcept {
    entry.pinned = false;
    leave_unwanted(entry);
    release(entry);
  }
  void release(const AdapterEntry& entry) noexcept {
    if (!entry.named) memory_.look_for_unwanted();
    notify_loader();
  }
  void end(AdapterLeaseState& lease) noexcept {
    const Lock lock(mutex_);
    lease.entry->leases.erase(&lease);
    leave_unwanted(*lease.entry);
    release(*lease.entry);
  }
  void end(AdapterUse& use) noexcept {
    const Lock lock(mutex_);
    --use.entry->uses;
    memory_.mark_used(*use.entry);
    release(*use.entry);
  }

  /// Notifies the leases of an entry, without the mutex.
  static void wake_leases(const AdapterEntry& entry, Lock& lock) noexcept {
    for (auto lease = entry.leases.begin(); lease != entry.leases.end();) {
      AdapterLeaseState* const one = *lease;
      if (auto wake = one->wake) {
        const Unlocked unlocked(lock);
        try {
          if (*wake) (*wake)();
        } catch (...) {  // thrown by the caller's function, which then gets no notification
        }
        wake = nullptr;
      }
      lease = entry.leases.upper_bound(one);  // the set may have changed meanwhile
    }
  }

  /// Loads a queued entry, or evicts one adapter to make room, or finds that it must wait. freed: receives the copies
  /// to release. Throws the error of loading.
  void advance(const EntryRef& entry, AdapterCopies& freed, Lock& lock) {
    std::uint64_t bytes = 0;  // an upper bound: the file has a header
    {
      const Unlocked unlocked(lock);
      bytes = weights_bytes(entry->folder);
    }
    if (entry->state != State::queued) return;
    switch (memory_.make_space(*entry, bytes, freed)) {
      case AdapterMemory::Space::lacking: entry->has_news = !std::exchange(entry->lacks_memory, true); return;
      case AdapterMemory::Space::growing: return notify_loader();
      case AdapterMemory::Space::enough: memory_.reserve(entry, bytes); return load(entry, freed, lock);
    }
  }
  void load(const EntryRef& entry, AdapterCopies& loaded, Lock& lock) {
    const double began = options.clock();
    loaded.on_host = entry->copies.on_host;
    {
      const std::size_t reserved = entry->host_bytes;
      const Unlocked unlocked(lock);
      check_inside(*entry);
      if (loaded.on_host == nullptr) loaded.on_host = read_(entry->folder);
      if (loaded.on_host->bytes > reserved) {
        throw Error("adapter.changed",
                    text("the files of the adapter ", quote(entry->name), " changed while they were read"),
                    "Request it again when the files are complete");
      }
      if (options.place) loaded.on_device = options.place(loaded.on_host);
    }
    if (entry->publishes) {
      names_.check_new(*entry);
      if (const EntryRef before = names_.give(entry)) forget_name(*before);
      entry->publishes = false;
    }
    memory_.put(*entry, std::exchange(loaded, {}));
    stats_.load_seconds.add(options.clock() - began);
    settle(*entry, State::ready);
  }
  void fail(AdapterEntry& entry, std::exception_ptr why) noexcept {
    memory_.leave_queue(entry, State::failed);
    memory_.cancel(entry);
    entry.failure = std::move(why);
    entry.retry_from = options.clock() + options.remember_failure;
    ++stats_.failures;
    settle(entry, State::failed);
  }
  void settle(AdapterEntry& entry, State state) noexcept {
    entry.state = state;
    entry.has_news = true;
    changed_.notify_all();
    notify_loader();
  }

  const Read read_;

  std::mutex scanning_;                                     // serialises folder scans; locked before mutex_
  std::optional<std::filesystem::file_time_type> scanned_;  // modification time of the folder at the last scan

  mutable std::mutex mutex_;  // guards the members below and the entries
  std::condition_variable news_;
  std::condition_variable changed_;  // signals a change of an entry's state or of closed_
  bool has_news_ = false;            // the loader may have work
  bool stopping_ = false;            // the loader must end
  bool closed_ = false;
  AdapterNames names_{options.taken, options.disk_memory};
  AdapterMemory memory_{options.host_memory, options.device_memory, options.place != nullptr};
  AdapterStoreStats stats_;  // the counters that belong to no tier
};

AdapterLeaseState::~AdapterLeaseState() { cache->end(*this); }
AdapterUse::~AdapterUse() {
  copies = {};  // released before the cache considers the entry unused
  cache->end(*this);
}

}}}
