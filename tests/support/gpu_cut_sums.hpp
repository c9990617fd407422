// Matrix units with truncated sums, since tensor cores truncate addends and the emulation's sums are more exact.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/gpu.hpp"
#include "slm/backend/gpu/runtime/runtime_lanes.hpp"

namespace slm::testing {

/// Some products at a time are added to the previous sum: all are truncated toward zero, to the 24 bits of a float and
/// some more below the largest, and the result to a float. After Fasi, Higham, Mikaitis and Pranesh, Numerical behavior
/// of NVIDIA tensor cores (2021).
template <int AtOnce, int MoreBits>
struct CutSums {
  static float add(float c, const float* a, const float* b, int depth) {
    for (int first = 0; first < depth; first += AtOnce) c = some(c, a + first, b + first);
    return c;
  }

 private:
  static float some(float c, const float* a, const float* b) {
    int largest = c == 0 ? -1000 : std::ilogb(c);
    for (int k = 0; k < AtOnce; ++k) {
      if (a[k] != 0 && b[k] != 0) largest = std::max(largest, std::ilogb(a[k]) + std::ilogb(b[k]));
    }
    if (largest == -1000) return 0;
    const int shift = 23 + MoreBits - largest;
    auto sum = static_cast<std::int64_t>(std::ldexp(double{c}, shift));
    for (int k = 0; k < AtOnce; ++k) sum += static_cast<std::int64_t>(std::ldexp(double{a[k]} * double{b[k]}, shift));
    int scale = -shift;
    for (; std::abs(sum) >= 1 << 24; sum /= 2) ++scale;
    return static_cast<float>(std::ldexp(static_cast<double>(sum), scale));
  }
};

using LanesA100 = backend::Gpu<backend::LanesRuntime<gpu::MmaSync16x8x16, CutSums<8, 1>>>;
using LanesH100 = backend::Gpu<backend::LanesRuntime<gpu::MmaSync16x8x16, CutSums<16, 2>>>;

}  // namespace slm::testing
