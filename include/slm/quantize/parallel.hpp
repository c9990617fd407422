// A loop over independent rows on several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace slm::quantize {

/// Calls f(index) once for each index in [0, count); every thread has one contiguous run of them. f must not throw.
template <class F>
void parallel_for(int threads, std::int64_t count, F&& f) {
  const auto run = [&f](std::int64_t first, std::int64_t last) {
    for (std::int64_t index = first; index < last; ++index) f(index);
  };
  const std::int64_t parts = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(count, 1));
  std::vector<std::jthread> workers;
  for (std::int64_t part = 1; part < parts; ++part) {
    workers.emplace_back(run, count * part / parts, count * (part + 1) / parts);
  }
  run(0, count / parts);
}

}  // namespace slm::quantize
