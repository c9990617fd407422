// What an engine is told.
#pragma once

#include <chrono>
#include <cstddef>

#include "slm/decode/draft_length.hpp"
#include "slm/decode/request.hpp"
#include "slm/engine/adapter_lease.hpp"

namespace slm { inline namespace v0_1 {

struct EngineOptions {
  /// How far to draft follows what it brings under the present load, down to nothing.
  Speculation speculation = {.draft_length = draft_length::ThroughputAdaptive{}};
  /// Bytes of the target's keys and values; 0: on a processor half of the free memory (free_memory()) when the engine
  /// is made, and at least 64 MiB; on a device with memory of its own what that has.
  std::size_t cache_memory = 0;
  bool share_prefixes = true;        // texts that begin alike compute their common pages once
  std::size_t max_requests = 12800;  // waiting and running together
  std::size_t max_running = 64;      // texts in a step
  double step_seconds = 0.1;      // that a step should take at most: prompts are read in pieces as large as that allows
  std::size_t max_unread = 4096;  // tokens that a reader may leave; then its text pauses
};

/// How a request stands to others, and what it waits for.
struct Scheduling {
  int priority = 0;  // lower begins first; among equals the earlier one
  /// Ends the answer if it is not over then: FinishReason::deadline.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  /// Instead of Request::adapter: the request begins when the adapter is there; others go on meanwhile.
  AdapterLease adapter = {};
};

}}
