// SharesExperts, ExpertShares: mixtures of experts over the ranks of a stage.
#pragma once

#include <cstdint>

#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 {

/// A step that can compute a mixture of experts from a rank's rows of each matrix, with an object that has:
///   gather(weight, parts, mine, out)   out [rows, parts * width] = the ranks' mine [rows, parts * own], combined
///   row_of(weight, own)                the row of the whole weight that is row `own` of the rank's
template <class Step>
concept SharesExperts = Step::shares_experts;

namespace backend {

/// See SharesExperts. Shares: see HostShares.
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
