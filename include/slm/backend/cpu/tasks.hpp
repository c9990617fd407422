// Parts of the operations of backend::Cpu that need no memory of it: what one task of attention works on, and the end
// of qkv for one row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/backend/cpu/rope_table.hpp"

namespace slm::backend::cpu {

/// The queries first.. first + count - 1 of those that read a KV head, counted row by row and head by head.
inline AttendTask attend_task(View<const float, 2> q, Heads heads, int position, KvLayer<float> kv, View<float, 2> out,
                              const Attention& attention, int kv_head, int first, int count) {
  const int group = heads.query / heads.kv;
  AttendTask task;
  task.keys = kv.keys.row(kv_head);
  task.values = kv.values.row(kv_head);
  task.key_stride = kv.keys.stride(1);
  task.value_stride = kv.values.stride(1);
  task.capacity = kv.keys.extent(1);
  task.dim = heads.dim;
  task.queries = count;
  task.scale = attention.scale != 0 ? attention.scale : 1.0f / std::sqrt(static_cast<float>(heads.dim));
  for (int m = 0; m < count; ++m) {
    const int r = (first + m) / group, h = kv_head * group + (first + m) % group;
    task.query[m] = q.row(r) + std::int64_t{h} * heads.dim;
    task.out[m] = out.row(r) + std::int64_t{h} * heads.dim;
    task.visible[m] = position + r + 1;  // causal: itself and everything before
    task.first[m] = attention.window != 0 ? std::max(0, task.visible[m] - attention.window) : 0;
    if (attention.slopes != nullptr) task.slope[m] = attention.slopes[h];
  }
  return task;
}

/// Takes row r of the projections [q | k | v] through the norms and the rotation of the first `width` dimensions of
/// every head to q and to the cache. Changes the projections.
inline void finish_qkv_row(const CommonKernels& kernels, float* row, int r, int width, RopeTable::Angles angles,
                           Heads heads, int position, View<float, 2> q, KvLayer<float> kv, const QkvShaping& shaping) {
  const int half = width / 2;
  const float* cosine = angles.cosine + std::int64_t{r} * half;
  const float* sine = angles.sine + std::int64_t{r} * half;
  const std::int64_t slot = (position + r) % kv.keys.extent(1);
  const auto finish = [&](float* from, int count, const Norm& norm, const auto& place) {
    if (shaping.norm == QkNorm::whole) kernels.normalize(norm, from, std::int64_t{count} * heads.dim, from);
    for (int h = 0; h < count; ++h, from += heads.dim) {
      if (shaping.norm == QkNorm::per_head) kernels.normalize(norm, from, heads.dim, from);
      float* to = place(h);
      if (half > 0) kernels.rotate(from, from + half, cosine, sine, half, to, to + half);
      std::copy(from + width, from + heads.dim, to + width);
    }
  };
  finish(row, heads.query, shaping.query, [&](int h) { return q.row(r) + std::int64_t{h} * heads.dim; });
  row += std::int64_t{heads.query} * heads.dim;
  finish(row, heads.kv, shaping.key, [&](int h) { return kv.keys.row(h) + slot * kv.keys.stride(1); });
  row += std::int64_t{heads.kv} * heads.dim;
  for (int h = 0; h < heads.kv; ++h, row += heads.dim) {
    std::copy_n(row, heads.dim, kv.values.row(h) + slot * kv.values.stride(1));
  }
}

}  // namespace slm::backend::cpu
