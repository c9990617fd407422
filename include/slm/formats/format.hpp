// Weight formats: storage of a matrix's elements. Backends define a Matrix<Format> for each.
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

/// 4-bit linear layers of an AWQ checkpoint in any published layout, or matrices in GGUF block formats. Layers in
/// floating point (embedding, head, single layers) stay as stored. Group: AWQ's input features per scale and zero
/// point; any_group accepts the checkpoint's value, whole_row is one group per output.
inline constexpr int any_group = 0;
inline constexpr int whole_row = -1;

template <int Group = any_group>
struct AwqInt4 {
  using Source = LinearSource;
  static constexpr std::string_view name = "int4";
  static constexpr int group = Group;
};

/// Matrices with individual types: as stored for a quantized checkpoint, otherwise the type in LoadOptions::weights.
/// All models of load() have this format.
struct AnyFormat {
  using Source = LinearSource;
  static constexpr std::string_view name = "any";
  static constexpr int group = any_group;
};

/// Source is the type that Backend::pack converts to a matrix.
template <class F>
concept WeightFormat = requires {
  typename F::Source;
  { F::name } -> std::convertible_to<std::string_view>;
};

/// A format with plain elements in row-major order.
template <class F>
concept DenseFormat = WeightFormat<F> && requires {
  typename F::Element;
  { F::dtype } -> std::convertible_to<DType>;
};

}}
