// Weight formats: how the elements of a matrix are stored. Backends keep a Matrix<Format> for each.
#pragma once

#include <concepts>
#include <string_view>

#include "slm/core/types.hpp"

namespace slm {

struct Fp32 {
  using Element = float;
  static constexpr std::string_view name = "f32";
  static constexpr DType dtype = DType::f32;
};

struct Fp16 {
  using Element = half_t;
  static constexpr std::string_view name = "f16";
  static constexpr DType dtype = DType::f16;
};

struct Bf16 {
  using Element = bfloat16_t;
  static constexpr std::string_view name = "bf16";
  static constexpr DType dtype = DType::bf16;
};

template <class F>
concept WeightFormat = requires {
  { F::name } -> std::convertible_to<std::string_view>;
};

/// One element after the other, row by row.
template <class F>
concept DenseFormat = WeightFormat<F> && requires {
  typename F::Element;
  { F::dtype } -> std::convertible_to<DType>;
};

}  // namespace slm
