// Computations of the first of several ranks with models over all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/load.hpp"
#include "slm/model/rank_group.hpp"
#include "slm/ranks/team.hpp"
#include "slm/ranks/threads.hpp"

namespace slm::testing {

/// Numbers of any type, by their bits.
struct Bits {
  std::vector<std::byte> bytes;
  template <class Number>
  void add(const Number* numbers, std::int64_t count) {
    const auto more = std::as_bytes(std::span(numbers, static_cast<std::size_t>(count)));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  bool operator==(const Bits&) const = default;
};

/// Ranks and their pipeline stages, optionally without the first rank, and whether they use partial sums.
struct Ranks {
  int size;
  int stages = 1;
  bool first_only_controls = false;
  bool fast_reduce = false;
};

/// The result of the first rank while the others assist: run(load), where load(folder, options) is a model.
template <class B>
Bits over_ranks(Ranks how, const auto& device, const auto& run) {
  Bits found;
  ranks::run_threads(how.size, [&](const ranks::Threads& ranks) {
    const auto team = std::make_shared<ranks::Team<ranks::Threads>>(ranks);
    RankGroup group(B{device()}, team);
    if (ranks.rank() > 0) return group.follow();
    found = run([&](const std::filesystem::path& folder, const LoadOptions& options) {
      return group.load(
          folder, options,
          {.stages = how.stages, .first_only_controls = how.first_only_controls, .fast_reduce = how.fast_reduce});
    });
  });
  return found;
}

inline const auto one_thread = [] { return backend::CpuOptions{.threads = 1}; };

}  // namespace slm::testing
