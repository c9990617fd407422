// What the weights of a checkpoint are stored as, and held in memory as unless something else is asked for.
#pragma once

#include <algorithm>

#include "slm/formats/format.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/model/load_options.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Whether any matrix lies in GGUF's blocks.
inline bool has_blocks(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& named) { return is_blocked(named.second->dtype); });
}

/// That of the embedding; fp32, which holds every weight exactly, where a GGUF file has matrices of other types too.
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
