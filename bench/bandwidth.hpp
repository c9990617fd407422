// What this machine's memory gives right now: the figure that a memory-bound kernel's speed is a share of.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/thread_pool.hpp"

namespace slm::bench {

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Sums a buffer of its own, far larger than the caches, with wide vectors and four streams per thread.
class BandwidthProbe {
 public:
  explicit BandwidthProbe(int threads, std::size_t bytes = std::size_t{224} << 20)
      : pool_(threads), buffer_(bytes / sizeof(std::uint64_t)) {
    madvise(buffer_.data(), bytes, MADV_HUGEPAGE);
    std::fill_n(buffer_.data(), buffer_.size(), 1u);
  }

  /// GB/s of one pass over the buffer.
  double operator()() {
    constexpr std::size_t piece = std::size_t{1} << 17;  // words: 1 MiB a task
    const std::size_t count = buffer_.size() / piece;
    const double start = seconds();
    pool_.run(static_cast<std::uint32_t>(count),
              [&](std::uint32_t index, int) { sink_ = sum(buffer_.data() + index * piece, piece); });
    return static_cast<double>(count * piece * sizeof(std::uint64_t)) / (seconds() - start) / 1e9;
  }

 private:
#if defined(__x86_64__) && !defined(__clang__)
  __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
  static std::uint64_t
  sum(const std::uint64_t* data, std::size_t count) {
    typedef std::uint64_t Words __attribute__((vector_size(64)));
    Words total[8] = {};
    const std::size_t stream = count / 4;
    for (std::size_t i = 0; i < stream; i += 16) {
      for (std::size_t s = 0; s < 4; ++s) {
        Words low, high;
        std::memcpy(&low, data + s * stream + i, sizeof low);
        std::memcpy(&high, data + s * stream + i + 8, sizeof high);
        total[2 * s] += low;
        total[2 * s + 1] += high;
      }
    }
    for (int i = 1; i < 8; ++i) total[0] += total[i];
    std::uint64_t result = 0;
    for (int i = 0; i < 8; ++i) result += total[0][i];
    return result;
  }

  backend::ThreadPool pool_;
  backend::PageBuffer<std::uint64_t> buffer_;
  volatile std::uint64_t sink_ = 0;
};

/// Samples of one measurement, each between two probes. The bandwidth of a virtual or busy machine jumps, so a sample
/// counts only when the probes around it agree within a tenth.
class ProbedSamples {
 public:
  /// Seconds of action(), for the caller; keeps the sample if it can be trusted.
  template <class Action>
  double measure(BandwidthProbe& probe, Action&& action) {
    const double before = probe();
    const double start = seconds();
    action();
    const double took = seconds() - start;
    const double after = probe();
    all_.push_back(took);
    if (std::abs(before - after) < 0.1 * std::max(before, after)) {
      trusted_.push_back(took);
      probes_.push_back((before + after) / 2);
    }
    return took;
  }

  std::size_t trusted() const { return trusted_.size(); }
  /// Median seconds: of the trusted samples, of all where none is.
  double typical() const { return median(trusted_.empty() ? all_ : trusted_); }
  double probe() const { return median(probes_); }

  /// Median over the trusted samples of (bytes / time) / probe; 0 without any.
  double share(double bytes) const {
    std::vector<double> shares;
    for (std::size_t i = 0; i < trusted_.size(); ++i) shares.push_back(bytes / trusted_[i] / 1e9 / probes_[i]);
    return median(shares);
  }

 private:
  std::vector<double> all_, trusted_, probes_;
};

}  // namespace slm::bench
