// Measures each rank's processor while all ranks compute, and the time of a gather.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/os/memory.hpp"
#include "slm/ranks/communicator.hpp"
#include "tools/arithmetic.hpp"
#include "tools/bandwidth.hpp"
#include "tools/cli/system.hpp"

namespace cli {

/// SI units; the minimum over ranks of each rank's median.
struct RankSpeed {
  double memory = 0;      // bytes: the machine's memory divided by its ranks
  double bandwidth = 0;   // bytes per second
  double arithmetic = 0;  // operations per second, of float
  double latency = 0;     // seconds of a gather of almost no data; 0: one rank
  double link = 0;        // bytes per second from another rank; 0: one rank
};

namespace detail {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median seconds of a gather with `bytes` bytes per rank.
template <slm::ranks::Communicator C>
double gather_seconds(const C& ranks, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(ranks.size());
  const std::vector<std::byte> share(bytes);
  std::vector<std::byte> all(count * bytes);
  const std::vector<std::size_t> sizes(count, bytes);
  std::vector<double> times;
  for (int i = 0; i < 301; ++i) {
    const auto began = std::chrono::steady_clock::now();
    ranks.all_gather(share, sizes, all);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return median(std::move(times));
}

/// Number of ranks on this rank's machine.
template <slm::ranks::Communicator C>
int ranks_here(const C& ranks) {
  const std::uint64_t mine = std::hash<std::string>{}(host_name());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> sizes(all.size(), sizeof mine);
  ranks.all_gather(std::as_bytes(std::span(&mine, 1)), sizes, std::as_writable_bytes(std::span(all)));
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

}  // namespace detail

/// Collective. threads: per rank. Returns the same figures on every rank.
template <slm::ranks::Communicator C>
RankSpeed rank_speed(const C& ranks, int threads) {
  const auto measure = [&](auto probe) {
    std::vector<double> rates;
    for (int i = 0; i < 25; ++i) {
      ranks.barrier();
      rates.push_back(probe());
    }
    return detail::median(std::move(rates));
  };
  RankSpeed speed;
  speed.memory = static_cast<double>(slm::detail::physical_memory()) / detail::ranks_here(ranks);
  speed.bandwidth = measure(slm::bench::BandwidthProbe(threads));
  speed.arithmetic = measure(slm::bench::ArithmeticProbe(threads));
  if (ranks.size() > 1) {
    constexpr std::size_t little = 64, much = 1 << 18;
    speed.latency = detail::gather_seconds(ranks, little);
    const double longer = std::max(1e-9, detail::gather_seconds(ranks, much) - speed.latency);
    speed.link = static_cast<double>(much) * (ranks.size() - 1) / longer;
  }
  std::vector<RankSpeed> all(static_cast<std::size_t>(ranks.size()));
  const std::vector<std::size_t> sizes(all.size(), sizeof speed);
  ranks.all_gather(std::as_bytes(std::span(&speed, 1)), sizes, std::as_writable_bytes(std::span(all)));
  for (const RankSpeed& other : all) {
    speed.memory = std::min(speed.memory, other.memory);
    speed.bandwidth = std::min(speed.bandwidth, other.bandwidth);
    speed.arithmetic = std::min(speed.arithmetic, other.arithmetic);
    speed.latency = std::max(speed.latency, other.latency);
    speed.link = std::min(speed.link, other.link);
  }
  return speed;
}

}  // namespace cli
