// Integer arithmetic on sizes.
#pragma once

#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

template <class Integer>
constexpr Integer ceil_div(Integer value, Integer unit) {
  return (value + unit - 1) / unit;
}

}}
