// ArithmeticProbe: measures the processor's current multiply-add throughput.
#pragma once

#include <chrono>
#include <cstdint>

#include "slm/backend/cpu/thread_pool.hpp"
#include "tools/system_clones.hpp"

namespace slm::bench {

/// Multiplies and adds floats in registers, on all threads, with the widest vectors that the compiler can select at run
/// time.
class ArithmeticProbe {
 public:
  explicit ArithmeticProbe(int threads) : pool_(threads), threads_(threads) {}

  /// Operations per second.
  double operator()() {
    const auto start = std::chrono::steady_clock::now();
    pool_.run(static_cast<std::uint32_t>(threads_), [&](std::uint32_t, int) { sink_ = multiply_and_add(); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return 2.0 * threads_ * steps * sums * lanes / took.count();
  }

 private:
  static constexpr int steps = 400'000, sums = 8, lanes = 16;  // enough sums to hide the latency of one

  SLM_CLONES("avx512f", "fma", "default")
  static float multiply_and_add() {
    typedef float Floats __attribute__((vector_size(4 * lanes)));
    const Floats factor = Floats{} + 0.5f, term = Floats{} + 1.0f;
    Floats a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};  // not an array, which an unoptimised build keeps in memory
    for (int step = 0; step < steps; ++step) {
      a = a * factor + term, b = b * factor + term, c = c * factor + term, d = d * factor + term;
      e = e * factor + term, f = f * factor + term, g = g * factor + term, h = h * factor + term;
    }
    const Floats total = ((a + b) + (c + d)) + ((e + f) + (g + h));
    float result = 0;
    for (int i = 0; i < lanes; ++i) result += total[i];
    return result;
  }

  backend::ThreadPool pool_;
  int threads_;
  volatile float sink_ = 0;
};

}  // namespace slm::bench
