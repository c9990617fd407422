// BandwidthProbe: measures the current memory bandwidth, the reference for memory-bound kernels.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "tools/system_clones.hpp"

namespace slm::bench {

/// Sums a private buffer much larger than the caches, with wide vectors and four streams per thread.
class BandwidthProbe {
 public:
  explicit BandwidthProbe(int threads)
      : pool_(threads), buffer_(bytes / sizeof(std::uint64_t), backend::PageSize::huge) {
    std::fill_n(buffer_.data(), buffer_.size(), 1u);
  }

  /// Bytes per second of one pass over the buffer.
  double operator()() {
    constexpr std::size_t piece = std::size_t{1} << 17;  // words: 1 MiB per task
    const std::size_t count = buffer_.size() / piece;
    const auto start = std::chrono::steady_clock::now();
    pool_.run(static_cast<std::uint32_t>(count),
              [&](std::uint32_t index, int) { sink_ = sum(buffer_.data() + index * piece, piece); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return static_cast<double>(count * piece * sizeof(std::uint64_t)) / took.count();
  }

 private:
  static constexpr std::size_t bytes = std::size_t{224} << 20;

  SLM_CLONES("avx512f", "avx2", "default")
  static std::uint64_t sum(const std::uint64_t* data, std::size_t count) {
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

}  // namespace slm::bench
