// One operation on a GPU backend beside the same on Reference, on data that both can read: emulated devices share the
// host's memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "slm/backend/gpu/lanes.hpp"
#include "slm/backend/reference/reference.hpp"
#include "support/random_layer.hpp"

namespace slm::testing {

/// The largest difference, in units of the expected values' root mean square. NaN if anything is NaN.
inline double worst(const std::vector<float>& found, const std::vector<float>& expected) {
  double squares = 0, largest = 0;
  for (const float v : expected) squares += double{v} * double{v};
  const double rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(expected.size(), 1)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double{found[i]} - double{expected[i]});
    if (!(difference <= largest)) largest = difference;
  }
  return rms == 0 ? largest : largest / rms;
}

/// What `worst` of a product of random data may be. An input rounded to p bits is off by at most 2^-p of itself, of
/// random sign, so a sum of n such products by 2^-p / sqrt(3) of its own root mean square; five times that is out of
/// reach of rounding and far below a term left out. fp32 is computed as three bfloat16 terms: 2^-22 remain.
template <class Format>
constexpr double product_tolerance() {
  if (std::is_same_v<Format, Fp32>) return 1e-5;
  if (std::is_same_v<Format, Fp16>) return 5 * 0x1p-12;
  return 5 * 0x1p-9;
}

/// A KV cache of halves, all of it NaN.
struct HalfCache {
  std::vector<half_t> keys, values;
  Heads heads;
  int capacity;

  HalfCache(Heads h, int positions)
      : keys(static_cast<std::size_t>(h.kv * positions * h.dim), half_t{0x7e00}),
        values(keys),
        heads(h),
        capacity(positions) {}
  KvLayer<half_t> layer() {
    return {View<half_t, 3>{keys.data(), heads.kv, capacity, heads.dim},
            View<half_t, 3>{values.data(), heads.kv, capacity, heads.dim}};
  }
};

inline std::vector<float> floats(const std::vector<half_t>& halves) {
  std::vector<float> values;
  for (const half_t half : halves) values.push_back(to_float(half));
  return values;
}

inline View<float, 2> view_of(std::vector<float>& values, int rows) {
  return {values.data(), rows, static_cast<int>(values.size()) / rows};
}

}  // namespace slm::testing
