// Weight formats: how the elements of a matrix are stored. Backends keep a Matrix<Format> for each.
#pragma once

#include <concepts>
#include <string_view>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

struct Fp32 {
  using Source = Tensor;
  using Element = float;
  static constexpr std::string_view name = "f32";
  static constexpr DType dtype = DType::f32;
};

struct Fp16 {
  using Source = Tensor;
  using Element = half_t;
  static constexpr std::string_view name = "f16";
  static constexpr DType dtype = DType::f16;
};

struct Bf16 {
  using Source = Tensor;
  using Element = bfloat16_t;
  static constexpr std::string_view name = "bf16";
  static constexpr DType dtype = DType::bf16;
};

/// Four-bit linear layers of an AWQ checkpoint, of whichever published layout, or matrices in GGUF's blocks; what the
/// checkpoint left in floating point (embedding, head, single layers) stays as it is stored. Group, of AWQ: input
/// features that share a scale and a zero point; any_group takes what the checkpoint says, whole_row is one group per
/// output.
inline constexpr int any_group = 0;
inline constexpr int whole_row = -1;

template <int Group = any_group>
struct AwqInt4 {
  using Source = LinearSource;
  static constexpr std::string_view name = "int4";
  static constexpr int group = Group;
};

/// Matrices that each know their own type: a quantized checkpoint's as they are stored, all others of the type that
/// LoadOptions::weights names. So whatever load() gives is one type.
struct AnyFormat {
  using Source = LinearSource;
  static constexpr std::string_view name = "any";
  static constexpr int group = any_group;
};

/// Source is what Backend::pack makes a matrix of.
template <class F>
concept WeightFormat = requires {
  typename F::Source;
  { F::name } -> std::convertible_to<std::string_view>;
};

/// One element after the other, row by row.
template <class F>
concept DenseFormat = WeightFormat<F> && requires {
  typename F::Element;
  { F::dtype } -> std::convertible_to<DType>;
};

}}
