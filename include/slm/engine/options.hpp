// Options of an engine and of a request's scheduling.
#pragma once

#include <chrono>
#include <cstddef>

#include "slm/decode/draft_length.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_lease.hpp"

namespace slm { inline namespace v0_1 {

struct EngineOptions {
  Speculation speculation = {};
  /// Bytes of the target's KV cache. 0: half of the free memory (free_memory()) at construction, at least 64 MiB; on a
  /// device with separate memory: no limit besides that memory.
  std::size_t cache_memory = 0;
  bool share_prefixes = true;        // sequences with a common prefix compute its pages once
  std::size_t max_requests = 12800;  // maximum number of queued and running requests
  std::size_t max_running = 64;      // maximum number of running requests
  double step_seconds = 0.1;         // target for the duration of a step; limits prompt rows per step
  std::size_t prompt_rows = 2048;    // maximum number of prompt rows per step; at least 1
  std::size_t max_unread = 4096;     // maximum number of unread tokens; the request then pauses
};

/// Scheduling of one request.
struct Scheduling {
  int priority = 0;  // lower values start first; ties in order of arrival
  /// Ends the request at this time: FinishReason::deadline.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// Replaces Request::adapter: the request starts when the adapter is loaded; other requests continue meanwhile.
  AdapterLease adapter = {};
};

}}
