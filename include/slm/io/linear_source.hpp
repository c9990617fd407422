// linear_source: finds a linear layer of a checkpoint by its module's name, in any supported quantization layout.
#pragma once

#include <cstdint>
#include <string>

#include "slm/core/macros.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/stored_linear.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 {

/// Finds the linear layer [out, in] of a module such as "model.layers.0.mlp.up_proj". Returns codes if the checkpoint
/// has them, else the floating-point weight. Checks all tensors against each other, the settings and [out,
/// in]. The result refers to the checkpoint. Throws Error naming folder, layer and tensor.
StoredLinear linear_source(const Checkpoint& checkpoint, const std::string& module, std::int64_t out, std::int64_t in);

namespace detail {

/// Whether a checkpoint stores a transposed matrix [in, out]. Such a matrix has no 4-bit codes, but in MXFP4 it may be
/// stored [out, in].
inline bool is_stored_transposed(const Checkpoint& checkpoint, const TensorName& weight) {
  return weight.transposed && !checkpoint.has(weight.module() + ".weight_blocks");
}

}  // namespace detail

/// Overload for a matrix of the model's tensor list.
inline StoredLinear linear_source(const Checkpoint& checkpoint, const TensorName& weight) {
  if (detail::is_stored_transposed(checkpoint, weight)) return checkpoint.tensor(weight.name, weight.shape);
  if (weight.transposed) return linear_source(checkpoint, weight.module(), weight.shape.at(1), weight.shape.at(0));
  return linear_source(checkpoint, weight.module(), weight.shape.at(0), weight.shape.at(1));
}

}}

#if SLM_COMPILES
#include "slm/io/linear_search.hpp"
#endif
