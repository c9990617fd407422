// Search of activation-aware quantization (AWQ): which input features to scale up, and where to clip weights.
//
// A linear layer's columns are multiplied by `s` before rounding and its input is divided by `s`, so features with
// large activations lose less precision. The candidates are AutoAWQ's grid, which includes s = 1. The best candidate is
// therefore never worse than plain rounding on the calibration text.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/awq/group_quantizer.hpp"

namespace slm { inline namespace v0_1 { namespace awq {

inline constexpr int grid_points = 20;  // ratios 0, 1/20 .. 19/20
inline constexpr int clip_points = 10;  // 1, 19/20 .. 11/20 of a group's largest weight

/// A candidate: s = x_mean^ratio, or x_mean^ratio / w_mean^(1 - ratio) if duo.
struct Candidate {
  bool duo = false;
  int point = 0;  // ratio * grid_points

  bool is_identity() const { return !duo && point == 0; }
};

/// All candidates, starting with the identity.
inline std::vector<Candidate> candidates() {
  std::vector<Candidate> all;
  for (const bool duo : {false, true}) {
    for (int point = 0; point < grid_points; ++point) all.push_back({duo, point});
  }
  return all;
}

/// Sums over rows of |w| divided by the largest in its group.   weight [out, in] -> adds to sums [in]
template <class Real>
void add_relative_weights(std::span<const Real> weight, std::size_t in, std::size_t group, std::vector<Real>& sums) {
  for (std::size_t start = 0; start < weight.size(); start += group) {
    Real largest = 0;
    for (std::size_t i = 0; i < group; ++i) largest = std::max(largest, std::abs(weight[start + i]));
    for (std::size_t i = 0; i < group; ++i) {
      sums[start % in + i] += std::abs(weight[start + i]) / (largest + Real(1e-6));
    }
  }
}

/// The scales of a candidate, normalised so that largest * smallest = 1. x_mean: mean |input| per feature. w_mean:
/// result of add_relative_weights divided by the number of rows.
template <class Real>
std::vector<Real> scales_of(Candidate candidate, std::span<const Real> x_mean, std::span<const Real> w_mean) {
  const Real ratio = Real(candidate.point) / grid_points;
  std::vector<Real> scales(x_mean.size());
  for (std::size_t k = 0; k < scales.size(); ++k) {
    Real scale = std::pow(x_mean[k], ratio);
    if (candidate.duo) scale /= std::pow(w_mean[k], 1 - ratio) + Real(1e-4);
    scales[k] = std::max(scale, Real(1e-4));
  }
  const auto [smallest, largest] = std::minmax_element(scales.begin(), scales.end());
  const Real middle = std::sqrt(*smallest * *largest);
  for (Real& scale : scales) {
    scale /= middle;
    if (!std::isfinite(scale) || scale <= 0) scale = 1;
  }
  return scales;
}

/// weight' = Q(weight * s) / s for one row.   weight, out [in]
template <class Real>
void round_trip_scaled(const GroupQuantizer& quantizer, std::span<const Real> weight, std::span<const Real> scales,
                       std::size_t group, Real* out) {
  for (std::size_t k = 0; k < weight.size(); ++k) out[k] = weight[k] * scales[k];
  for (std::size_t k = 0; k < weight.size(); k += group) {
    quantizer.round_trip(std::span<const Real>(out + k, group), out + k);
  }
  for (std::size_t k = 0; k < weight.size(); ++k) out[k] /= scales[k];
}

template <class Real>
struct Clip {
  int point = 0;   // of clip_points; 0: no clipping
  Real limit = 0;  // weights are clipped to [-limit, limit]
  Real error = 0;  // mean squared error of the group's contribution to the output
};

/// The clipping limit of one group of weights with the least output error. moments [group, group]: X^T X / tokens of
/// the group's inputs, so that error = d^T moments d needs no pass over the tokens.
template <class Real>
Clip<Real> best_clip(const GroupQuantizer& quantizer, std::span<const Real> weight, const Real* moments) {
  const std::size_t group = weight.size();
  Real largest = 0;
  for (const Real w : weight) largest = std::max(largest, std::abs(w));
  std::vector<Real> rounded(group), product(group);
  Clip<Real> best{.point = -1};
  for (int point = 0; point < clip_points; ++point) {
    const Real limit = largest * (1 - Real(point) / (2 * clip_points));
    for (std::size_t k = 0; k < group; ++k) rounded[k] = std::clamp(weight[k], -limit, limit);
    quantizer.round_trip(std::span<const Real>(rounded), rounded.data());
    for (std::size_t k = 0; k < group; ++k) rounded[k] -= weight[k];
    std::fill(product.begin(), product.end(), Real(0));
    // Moments are symmetric: using a row as a column vectorises the sums.
    for (std::size_t k = 0; k < group; ++k) {
      const Real* row = moments + k * group;
      for (std::size_t i = 0; i < group; ++i) product[i] += row[i] * rounded[k];
    }
    Real error = 0;
    for (std::size_t i = 0; i < group; ++i) error += product[i] * rounded[i];
    if (best.point < 0 || error < best.error) best = {point, limit, error};
  }
  return best;
}

}}}
