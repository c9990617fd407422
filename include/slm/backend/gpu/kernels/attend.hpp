// The attention kernels, with and without adjusted scores.
#pragma once

#include "slm/backend/gpu/kernels/attention.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

template <int Dim, int Queries, class Element>
struct Attend : AttendRows<false, Dim, Queries, Element> {};

/// Scores have a soft cap, or a factor by position. A separate kernel, since these take half as many instructions
/// again.
template <int Dim, class Element>
struct AttendAdjusted : AttendRows<true, Dim, 16, Element> {
  static constexpr int least_blocks = 1;
};

}}}
