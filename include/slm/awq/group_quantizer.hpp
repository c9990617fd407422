// GroupQuantizer: quantizes one group of weights to 4-bit codes, a scale and a zero point.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// The stored type of scales. Codes are chosen for the rounded scale, so the file matches the search; `exact` does not
/// round.
enum class ScaleType { exact, f16, bf16 };

/// Rounds to nearest: q = round(w / scale) + zero, w ~ (q - zero) * scale. Real is float, or double for tests.
struct GroupQuantizer {
  ScaleType scale_type = ScaleType::f16;
  bool symmetric = false;  // zero point 8 for every group

  template <class Real>
  struct Grid {
    Real scale = 1;
    int zero = 8;
  };

  /// The range always includes 0: otherwise a group with one sign would saturate at one code.
  template <class Real>
  Grid<Real> grid(std::span<const Real> group) const {
    Real low = 0, high = 0;
    for (const Real weight : group) {
      low = std::min(low, weight);
      high = std::max(high, weight);
    }
    Grid<Real> grid;
    grid.scale = stored(symmetric ? std::max(high, -low) / Real(7.5) : (high - low) / 15);
    if (!symmetric) grid.zero = static_cast<int>(std::clamp(round(-low / grid.scale), Real(0), Real(15)));
    return grid;
  }

  template <class Real>
  static int code(Real weight, const Grid<Real>& grid) {
    return static_cast<int>(position(weight, grid));
  }

  /// Quantizes and dequantizes weights; out may be the group itself.
  template <class Real>
  void round_trip(std::span<const Real> group, Real* out) const {
    const Grid<Real> to = grid(group);
    for (std::size_t i = 0; i < group.size(); ++i) out[i] = (position(group[i], to) - Real(to.zero)) * to.scale;
  }

 private:
  /// Ties to even, without a library call per weight; |value| is far below the constant.
  template <class Real>
  static Real round(Real value) {
    constexpr Real shift = sizeof(Real) == 4 ? Real(0x1.8p23) : Real(0x1.8p52);
    return (value + shift) - shift;
  }

  template <class Real>
  static Real position(Real weight, const Grid<Real>& grid) {
    const Real steps = std::clamp(weight / grid.scale, Real(-32), Real(32));
    return std::clamp(round(steps) + Real(grid.zero), Real(0), Real(15));
  }

  /// A scale that rounds to zero is replaced by the smallest normal number; such weights become zero.
  template <class Real>
  Real stored(Real scale) const {
    if (scale_type == ScaleType::f16)
      scale = static_cast<Real>(to_float(from_float<half_t>(static_cast<float>(scale))));
    if (scale_type == ScaleType::bf16) {
      scale = static_cast<Real>(to_float(from_float<bfloat16_t>(static_cast<float>(scale))));
    }
    return scale > 0 ? scale : Real(0x1p-14);
  }
};

}}
