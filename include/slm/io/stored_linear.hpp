// StoredLinear: a linear layer as a checkpoint stores it.
#pragma once

#include <variant>

#include "slm/core/tensor.hpp"
#include "slm/formats/int4_tensor.hpp"
#include "slm/formats/scaled_tensor.hpp"
#include "slm/io/checkpoint.hpp"

namespace slm { inline namespace v0_1 {

/// A linear layer as a checkpoint stores it. ScaledTensor is dequantized at load.
using StoredLinear = std::variant<Tensor, Int4Tensor, ScaledTensor>;

/// Returns true if any layer has 4-bit codes; config.json is not consulted.
inline bool has_int4_layers(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (name.ends_with(".qweight") || name.ends_with(".weight_packed")) return true;
    if (name.ends_with(".weight") && tensor->dtype == DType::i32) return true;
  }
  return false;
}

/// Returns true if any layer has FP8 or 8-bit integer weights.
inline bool has_scaled_layers(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool codes = tensor->dtype == DType::f8_e4m3 || tensor->dtype == DType::i8;
    if (codes && name.ends_with(".weight")) return true;
  }
  return false;
}

}}
