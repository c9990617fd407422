// Kernel arguments made from the operands of a step's operations.
#pragma once

#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/rows.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/device_buffer.hpp"

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

inline KvPages kv_pages(PageTable tables, KvFormat format, const Heads& heads, const KvLayer& layer) {
  return {.tables = tables,
          .layer = layer,
          .format = format,
          .dim = heads.dim,
          .head_bytes = kv_head_bytes(format, heads.dim)};
}

/// Arguments without bias.
inline QkvArgs qkv_args(const KvPages& pages, Memory<const StepRow> rows, const Rope& rope, const Heads& heads,
                        View<float, 2> q, const QkvShaping& shaping) {
  const int rotating = rope.rotating(heads.dim);
  return {.q = memory(q),
          .pages = pages,
          .rows = rows,
          .inverse_frequency = {memory(rope.inverse_frequency[0], rotating / 2),
                                memory(rope.inverse_frequency[1], rotating / 2)},
          .bias = {},
          .query = heads.query,
          .kv = heads.kv,
          .dim = heads.dim,
          .q_stride = static_cast<int>(q.stride(0)),
          .rotating = rotating,
          .factor = rope.factor,
          .clip = shaping.clip,
          .pairs = rope.pairs};
}

/// The rest of qkv after its product. to: without bias
inline ShapeQkvArgs shape_qkv_args(View<const float, 2> projected, const QkvArgs& to, const Heads& heads,
                                   const QkvShaping& shaping) {
  return {.projected = memory(projected),
          .to = to,
          .query_norm = norm_args(shaping, shaping.query, heads.query, heads.dim),
          .key_norm = norm_args(shaping, shaping.key, heads.kv, heads.dim),
          .value_norm = norm_args(shaping.value, heads.dim),
          .over = shaping.norm,
          .rows = static_cast<int>(projected.extent(0)),
          .width = static_cast<int>(projected.extent(1)),
          .parts = qkv_parts(projected.extent(1), heads),
          .clips_normed = shaping.clips_normed};
}

/// Panels of tiles whose outputs are finished one by one.
template <class Matrix>
Panels neighbours(const Linear<Matrix>& linear) {
  return {.tiles = linear.weight.tiles().tiles()};
}

}}}
