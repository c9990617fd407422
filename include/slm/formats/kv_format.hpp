// The elements of a KV cache in each format.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/kv_format.hpp"

namespace slm { inline namespace v0_1 {

/// Calls use(Element{}) with the type of an element or code.
template <class Use>
constexpr decltype(auto) visit(KvFormat format, Use&& use) {
  switch (format) {
    case KvFormat::f16: return use(half_t{});
    case KvFormat::bf16: return use(bfloat16_t{});
    case KvFormat::int8: return use(std::int8_t{});
    default: return use(float{});
  }
}

/// Bytes of a row of a head and position, including its scale.
constexpr std::int64_t kv_row_bytes(KvFormat format, int dim) {
  const std::int64_t scale = format == KvFormat::int8 ? sizeof(float) : 0;
  return dim * visit(format, [](auto element) { return static_cast<std::int64_t>(sizeof element); }) + scale;
}

/// Converts a value for storage. Values beyond the range of a half become its largest value.
template <class Element>
SLM_DEVICE Element kv_element(float value) {
  return from_float<Element>(value);
}
template <>
SLM_DEVICE half_t kv_element<half_t>(float value) {
  return from_float<half_t>(value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value);
}

/// The scale of an int8 row, from its largest magnitude(). A row with an infinity or NaN gets the scale NaN; a row with
/// values below 2^-100 becomes zero.
struct Int8Scale {
  float scale = 0;
  float inverse = 0;

  static SLM_DEVICE float magnitude(float value) {
    const float size = value < 0 ? -value : value;
    return size <= 3.40282347e+38f ? size : INFINITY;
  }

  explicit SLM_DEVICE Int8Scale(float largest) {
    if (largest == INFINITY) {
      scale = NAN;
    } else if (largest >= 0x1p-100f) {
      scale = largest / 127;
      inverse = 127 / largest;
    }
  }

  /// The nearest code, ties to even: the added constant moves it into the lowest bits.
  SLM_DEVICE std::int8_t code(float value) const {
    if (inverse == 0) return 0;
    return static_cast<std::int8_t>(__builtin_bit_cast(std::int32_t, value * inverse + 0x1.8p23f) - 0x4b400000);
  }
};

}}
