// Kernel arguments made from the operands of a step's operations.
#pragma once

#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

inline NormArgs norm_args(const Norm& norm, std::int64_t width) {
  return {.weight = memory(norm.weight, width),
          .bias = memory(norm.bias, width),
          .epsilon = norm.epsilon,
          .kind = norm.kind};
}

/// The norm of queries or of keys, `heads` heads of `dim` dimensions.
inline NormArgs norm_args(const QkvShaping& shaping, const Norm& norm, int heads, int dim) {
  const bool of_all = shaping.norm == QkNorm::whole || shaping.norm == QkNorm::own_weights;
  return shaping.norm == QkNorm::none ? NormArgs{} : norm_args(norm, of_all ? heads * dim : dim);
}

/// Panels of tiles whose outputs are finished one by one.
template <class Matrix>
Panels neighbours(const Linear<Matrix>& linear) {
  return {.tiles = linear.weight.tiles().tiles()};
}

}}}
