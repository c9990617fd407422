// Options and statistics of an AdapterStore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "slm/engine/stats.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Budgets are bytes; 0: no limit, but for host_memory.
struct AdapterStoreOptions {
  std::filesystem::path folder = {};    // each sub-folder is an adapter by its name; empty: there are none at first
  std::vector<std::string> taken = {};  // what none may be called
  std::size_t device_memory = 0;        // where the device has memory of its own
  /// Of adapters that were read and checked; 0: a quarter of the free memory (free_memory()) when the store is made,
  /// and at least 64 MiB.
  std::size_t host_memory = 0;
  std::uint64_t disk_memory = 0;  // of the weights that all names together may mean
  double remember_failure = 10;   // seconds in which an adapter that could not be loaded is not tried again
  /// Brings an adapter from the host to a device that has memory of its own, and returns what texts use there. Empty:
  /// the model's own way; on a processor texts use it where the host holds it, and the two tiers are one.
  std::function<AdapterRef(const AdapterRef&)> place = {};
  std::function<double()> clock = {};  // seconds since any moment; empty: the steady clock
};

/// Of one tier: a device's memory, the host's, or disk. loads = evictions + freed + adapters.
struct AdapterTierStats {
  std::size_t adapters = 0;    // now
  std::uint64_t bytes = 0;     // now, with those of the adapter that is being loaded
  std::uint64_t budget = 0;    // 0: no limit
  std::int64_t loads = 0;      // from the tier below
  std::int64_t evictions = 0;  // to make room
  std::int64_t freed = 0;      // as no name means them any more
};

/// Counts since the store began. hits + misses = how often adapters were asked for.
struct AdapterStoreStats {
  AdapterTierStats device = {}, host = {};
  AdapterTierStats disk = {};  // all that names mean; it has no loads
  std::int64_t hits = 0;       // the adapter was in the highest tier
  std::int64_t misses = 0;
  std::int64_t failures = 0;  // to load one
  std::size_t pinned = 0;     // now, of those that are there
  // Names, now.
  std::vector<std::string> in_use = {};
  std::vector<std::string> awaited = {};  // asked for, and not there
  Histogram load_seconds{detail::load_bounds};
};

}}
