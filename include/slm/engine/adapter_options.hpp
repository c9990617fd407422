// Options and statistics of an AdapterStore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "slm/engine/stats.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Budgets are in bytes. 0: no limit, except for host_memory.
struct AdapterStoreOptions {
  std::filesystem::path folder = {};    // each sub-folder is an adapter with its name; empty: no adapters at first
  std::vector<std::string> taken = {};  // reserved names
  std::size_t device_memory = 0;        // used if the device has separate memory
  /// Budget for adapters in host memory; 0: a quarter of the free memory (free_memory()) at construction, at least 64
  /// MiB.
  std::size_t host_memory = 0;
  std::uint64_t disk_memory = 0;  // budget for the weights of all named adapters on disk
  double remember_failure = 10;   // seconds before a failed adapter is loaded again
  /// Copies an adapter from host to device memory and returns the device handle. Empty: the model's place_adapter. On a
  /// CPU, host and device tier are the same.
  std::function<AdapterRef(const AdapterRef&)> place = {};
  std::function<double()> clock = {};  // time in seconds from any origin; empty: the steady clock
};

/// Statistics of one tier: device memory, host memory, or disk. loads = evictions + freed + adapters.
struct AdapterTierStats {
  std::size_t adapters = 0;    // current number
  std::uint64_t bytes = 0;     // current bytes, including an adapter that is loading
  std::uint64_t budget = 0;    // 0: no limit
  std::int64_t loads = 0;      // from the tier below
  std::int64_t evictions = 0;  // adapters removed to make room
  std::int64_t freed = 0;      // adapters freed because no name refers to them
};

/// Counts since construction. hits + misses = number of requests for adapters.
struct AdapterStoreStats {
  AdapterTierStats device = {}, host = {};
  AdapterTierStats disk = {};  // all named adapters; loads is not counted
  std::int64_t hits = 0;       // requests for an adapter in the highest tier
  std::int64_t misses = 0;
  std::int64_t failures = 0;  // failed loads
  std::size_t pinned = 0;     // current number of pinned adapters in memory
  // Current names of adapters in use.
  std::vector<std::string> in_use = {};
  std::vector<std::string> awaited = {};  // requested but not loaded
  Histogram load_seconds{detail::load_bounds};
};

}}
