// SharesExperts, ExpertShares: mixtures of experts over the ranks of a stage, and in one process.
#pragma once

#include <cstdint>

#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 {

/// A step that can compute a mixture of experts from a rank's rows of each matrix, with an object that has:
///   gather(weight, parts, mine, out)   out [rows, parts * width] = the ranks' mine [rows, parts * own], combined
///   row_of(weight, own)                the row of the whole weight that is row `own` of the rank's
///   shares                             see HostShares and DeviceShares
template <class Step>
concept SharesExperts = Step::shares_experts;

/// The rows of a weight in this process: all, or those of a rank.
template <class Weight>
const auto& held_of(const Weight& weight) {
  if constexpr (requires { weight.held; }) {
    return weight.held;
  } else {
    return weight;
  }
}

/// The experts' matrices are in this process.
struct WholeExperts {
  template <class Weight>
  static std::int64_t row_of(const Weight&, std::int64_t row) {
    return row;
  }
};

namespace backend {

/// See SharesExperts.
template <class Shares>
struct ExpertShares {
  Shares& shares;
  int lane;

  template <class Matrix>
  void gather(const Matrix& weight, int parts, View<const float, 2> mine, View<float, 2> out) const {
    shares.gather(weight.cut, parts, mine, out);
  }
  template <class Matrix>
  std::int64_t row_of(const Matrix& weight, std::int64_t own) const {
    const std::int64_t count = weight.cut.count(lane);
    return own / count * weight.cut.width + weight.cut.first(lane) + own % count;
  }
};

}  // namespace backend
}}
