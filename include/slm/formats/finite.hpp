// first_non_finite: finds a NaN or an infinity in a stored tensor.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"

namespace slm { inline namespace v0_1 {

/// Index of the first NaN or infinity of a floating-point tensor. Reads eight bytes at a time, fast enough for every
/// scale of a model.
inline std::optional<std::int64_t> first_non_finite(const Tensor& tensor) {
  // Adding one to an exponent of all ones carries into the sign bit, which the mask has cleared.
  std::uint64_t exponent = 0x7f8000007f800000u, one = 0x0080000000800000u, sign = 0x8000000080000000u;
  if (tensor.dtype == DType::f16) exponent = 0x7c007c007c007c00u, one = 0x0400040004000400u;
  if (tensor.dtype == DType::bf16) exponent = 0x7f807f807f807f80u, one = 0x0080008000800080u;
  if (tensor.dtype != DType::f32) sign = 0x8000800080008000u;
  const auto width = static_cast<std::int64_t>(bytes_of(tensor.dtype));
  const std::int64_t count = tensor.elements();
  const std::int64_t per_word = 8 / width;
  constexpr std::int64_t at_once = 256;
  std::int64_t first = 0;
  for (; first + at_once * per_word <= count; first += at_once * per_word) {
    std::uint64_t found = 0;
    const std::byte* bytes = tensor.bytes + first * width;
    for (std::int64_t i = 0; i < at_once; ++i) {
      found |= (load_unaligned<std::uint64_t>(bytes + 8 * i) & exponent) + one;
    }
    if (found & sign) break;
  }
  for (; first < count; ++first) {
    float value = 0;
    convert(tensor, first, 1, &value);
    if (!std::isfinite(value)) return first;
  }
  return std::nullopt;
}

}}
