// Tokens, the element types of weights, and their conversions to and from float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

using Token = std::int32_t;

/// Maximum vocabulary size, so that the sum of weights in a draw fits into 64 bits (core/draw.hpp).
inline constexpr int most_vocab = 1000000;

/// Positions per KV cache page. Every backend splits attention at multiples of it, so page locations do not affect
/// sums.
inline constexpr int page_positions = 64;

/// Storage for a bfloat16: the upper half of a float.
struct bfloat16_t {
  std::uint16_t bits = 0;
};

/// Storage for an IEEE binary16.
struct half_t {
  std::uint16_t bits = 0;
};

SLM_DEVICE float to_float(float value) { return value; }

SLM_DEVICE float to_float(bfloat16_t value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

SLM_DEVICE float to_float(half_t value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t rest = value.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | ((rest & 0x3ffu) << 13));  // inf, nan
  if (rest >= 0x0400u) return __builtin_bit_cast(float, sign | ((rest << 13) + 0x38000000u));           // normal
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;                                          // subnormal
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(std::uint32_t, magnitude));
}

/// Rounds to nearest, ties to even; keeps infinities and NaN.
template <class T>
SLM_DEVICE T from_float(float value);

template <>
SLM_DEVICE float from_float<float>(float value) {
  return value;
}

template <>
SLM_DEVICE bfloat16_t from_float<bfloat16_t>(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
SLM_DEVICE half_t from_float<half_t>(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};   // nan
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {                                                      // subnormal or zero
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;                // 0.5f has an ulp of 2^-24
    return {static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

/// Element types of a checkpoint. Types from q4_0 on are block formats: a block encodes 32 or 256 adjacent values of a
/// row (formats/gguf_blocks.hpp). Block formats, f32, f16 and bf16 can be weights.
enum class DType {
  f32,
  f16,
  bf16,
  f64,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  f8_e4m3,  // see formats/float8.hpp
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  iq4_nl,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs,
  iq3_xxs,
  iq3_s,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq1_s,
  iq1_m,
  tq1_0,
  tq2_0,
  mxfp4,
};

namespace detail {

struct DTypeLayout {
  std::string_view name;
  int values;  // per block
  int bytes;   // per block
};

constexpr DTypeLayout layout_of(DType type) {
  switch (type) {
    case DType::f32: return {"F32", 1, 4};
    case DType::f16: return {"F16", 1, 2};
    case DType::bf16: return {"BF16", 1, 2};
    case DType::f64: return {"F64", 1, 8};
    case DType::i64: return {"I64", 1, 8};
    case DType::i32: return {"I32", 1, 4};
    case DType::i16: return {"I16", 1, 2};
    case DType::i8: return {"I8", 1, 1};
    case DType::u8: return {"U8", 1, 1};
    case DType::boolean: return {"BOOL", 1, 1};
    case DType::f8_e4m3: return {"F8_E4M3", 1, 1};
    case DType::q4_0: return {"Q4_0", 32, 18};
    case DType::q4_1: return {"Q4_1", 32, 20};
    case DType::q5_0: return {"Q5_0", 32, 22};
    case DType::q5_1: return {"Q5_1", 32, 24};
    case DType::q8_0: return {"Q8_0", 32, 34};
    case DType::iq4_nl: return {"IQ4_NL", 32, 18};
    case DType::q2_k: return {"Q2_K", 256, 84};
    case DType::q3_k: return {"Q3_K", 256, 110};
    case DType::q4_k: return {"Q4_K", 256, 144};
    case DType::q5_k: return {"Q5_K", 256, 176};
    case DType::q6_k: return {"Q6_K", 256, 210};
    case DType::iq4_xs: return {"IQ4_XS", 256, 136};
    case DType::iq3_xxs: return {"IQ3_XXS", 256, 98};
    case DType::iq3_s: return {"IQ3_S", 256, 110};
    case DType::iq2_xxs: return {"IQ2_XXS", 256, 66};
    case DType::iq2_xs: return {"IQ2_XS", 256, 74};
    case DType::iq2_s: return {"IQ2_S", 256, 82};
    case DType::iq1_s: return {"IQ1_S", 256, 50};
    case DType::iq1_m: return {"IQ1_M", 256, 56};
    case DType::tq1_0: return {"TQ1_0", 256, 54};
    case DType::tq2_0: return {"TQ2_0", 256, 66};
    case DType::mxfp4: return {"MXFP4", 32, 17};
  }
  return {"?", 1, 0};
}

}  // namespace detail

constexpr std::string_view name_of(DType type) { return detail::layout_of(type).name; }

/// Values per block, along a row; 1 for plain types.
constexpr int values_of_block(DType type) { return detail::layout_of(type).values; }

constexpr bool is_blocked(DType type) { return values_of_block(type) > 1; }

constexpr bool is_floating_point(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

/// Bytes per value, or per block.
constexpr std::size_t bytes_of(DType type) { return static_cast<std::size_t>(detail::layout_of(type).bytes); }

}}
