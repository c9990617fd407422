// The storage type of a checkpoint's weights, and their default type in memory.
#pragma once

#include <algorithm>

#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/model/load_options.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Returns true if any matrix has a GGUF block format, which that of MXFP4 in folders becomes at load.
inline bool has_blocks(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& named) {
    return is_blocked(named.second->dtype) || named.first.ends_with(".weight_blocks");
  });
}

/// The embedding's type. If other matrices of a GGUF file differ: fp32, which represents every weight exactly.
inline WeightType stored_type(const Checkpoint& checkpoint) {
  const TensorName table = checkpoint.names().weights(Role::embedding).front();
  const DType type = checkpoint.tensor(table.name, table.shape).dtype;
  const auto differs = [type](const auto& named) {
    return named.second->shape.size() == 2 && named.second->dtype != type;
  };
  const auto& tensors = checkpoint.tensors();
  if (checkpoint.gguf() && std::any_of(tensors.begin(), tensors.end(), differs)) return WeightType::f32;
  switch (type) {
    case DType::f16: return WeightType::f16;
    case DType::bf16: return WeightType::bf16;
    default: return WeightType::f32;
  }
}

}}}
