// Parallel loop over independent rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/core/float_environment.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Calls f(index) for each index in [0, count), in any order. After all calls it rethrows the first exception; in that
/// case some indices may be skipped. The pool runs one loop at a time.
template <class F>
void parallel_for(backend::ThreadPool& pool, std::int64_t count, F&& f) {
  constexpr std::int64_t at_once = 16;  // rows per claim of a thread
  const auto claims = static_cast<std::uint32_t>((count + at_once - 1) / at_once);
  const detail::FloatEnvironment environment;
  pool.run(claims, [&](std::uint32_t claim, int) {
    const std::int64_t first = claim * at_once;
    for (std::int64_t index = first; index < std::min(first + at_once, count); ++index) f(index);
  });
}

}}}
