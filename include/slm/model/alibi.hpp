// ALiBi: the slope of each head.
#pragma once

#include <cmath>
#include <vector>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

/// Slopes 2^(-bias_max m / n) for m = 1..n, where n is the head count rounded up to a power of two. If n exceeds the
/// head count, the even m come first, then the odd ones. -> [heads]
inline std::vector<float> alibi_slopes(int heads, const ModelSettings& settings) {
  int steps = heads;
  if (settings.alibi_power_of_two) {
    for (steps = 1; steps < heads;) steps *= 2;
  }
  const auto slope = [&](int m) { return static_cast<float>(std::exp2(-double{settings.alibi_bias_max} * m / steps)); };
  std::vector<float> slopes;
  if (steps == heads) {
    for (int m = 1; m <= steps; ++m) slopes.push_back(slope(m));
    return slopes;
  }
  for (int m = 2; m <= steps; m += 2) slopes.push_back(slope(m));
  for (int m = 1; m <= steps; m += 2) slopes.push_back(slope(m));
  slopes.resize(static_cast<std::size_t>(heads));
  return slopes;
}

}}
