// FP8 in the form E4M3: a sign, four bits of exponent with bias 7, and three of mantissa, without infinities.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

struct float8_t {
  std::uint8_t bits = 0;
};

/// Exact. An exponent and mantissa of all ones is NaN.
inline float to_float(float8_t value) {
  const std::uint32_t sign = (value.bits & 0x80u) << 24;
  const std::uint32_t rest = value.bits & 0x7fu;
  if (rest == 0x7f) return __builtin_bit_cast(float, sign | 0x7fc00000u);
  if (rest >= 8) return __builtin_bit_cast(float, sign | ((rest << 20) + (120u << 23)));  // normal
  return std::copysign(static_cast<float>(rest) * 0x1p-9f, __builtin_bit_cast(float, sign | 0x3f800000u));
}

}}
