// Parts of the operations of backend::Cpu that need no memory of it: what one task of attention works on, and the end
// of qkv for one row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/backend/cpu/rope_table.hpp"

namespace slm::backend::cpu {

/// Where the keys or values (`part`) of a position lie, for one KV head of a layer: [dim].
inline float* kv_entry(std::span<std::byte* const> table, std::int64_t part, const Heads& heads, int head,
                       int position) {
  std::byte* const page = table[static_cast<std::size_t>(position / page_positions)];
  return reinterpret_cast<float*>(page + part) +
         (std::int64_t{head} * page_positions + position % page_positions) * heads.dim;
}

/// Attention of a step as tasks: of each sequence, for each KV head, blocks of the queries that read it.
class AttendTasks {
 public:
  /// group: queries of a row that read the same KV head; kv: their number.
  void share(const StepPlan& plan, int group, int kv, int widest) {
    shares_.clear();
    count_ = 0;
    for (const PlanSequence& sequence : plan.sequences) {
      const RowBlocks blocks(sequence.rows * group, widest);
      shares_.push_back({count_, &sequence, blocks});
      count_ += kv * blocks.blocks;
    }
  }

  int count() const { return count_; }

  /// What task `index` is about: use(sequence, kv_head, first query, queries).
  template <class Use>
  void with(int index, Use use) const {
    const auto after = std::upper_bound(shares_.begin(), shares_.end(), index,
                                        [](int task, const Share& share) { return task < share.first; });
    const Share& share = *std::prev(after);
    const int head = (index - share.first) / share.blocks.blocks, block = (index - share.first) % share.blocks.blocks;
    use(*share.sequence, head, share.blocks.first(block), share.blocks.size(block));
  }

 private:
  struct Share {
    int first;  // of its tasks
    const PlanSequence* sequence;
    RowBlocks blocks;
  };

  int count_ = 0;
  std::vector<Share> shares_;
};

/// The queries first.. first + count - 1 of a sequence that read a KV head, counted row by row and head by head.
inline AttendTask attend_task(const StepPlan& plan, const PlanSequence& sequence, View<const float, 2> q, Heads heads,
                              KvLayer layer, View<float, 2> out, const Attention& attention, int kv_head, int first,
                              int count) {
  const int group = heads.query / heads.kv;
  const std::int64_t head_bytes = std::int64_t{kv_head} * page_positions * heads.dim * std::int64_t{sizeof(float)};
  AttendTask task;
  task.pages = plan.table(sequence, layer.kind).data();
  task.keys = layer.keys + head_bytes;
  task.values = layer.values + head_bytes;
  task.dim = heads.dim;
  task.queries = count;
  task.scale = attention.scale != 0 ? attention.scale : 1.0f / std::sqrt(static_cast<float>(heads.dim));
  for (int m = 0; m < count; ++m) {
    const int r = sequence.first_row + (first + m) / group, h = kv_head * group + (first + m) % group;
    task.query[m] = q.row(r) + std::int64_t{h} * heads.dim;
    task.out[m] = out.row(r) + std::int64_t{h} * heads.dim;
    task.visible[m] = plan.rows[static_cast<std::size_t>(r)].position + 1;  // causal: itself and everything before
    task.first[m] = attention.window != 0 ? std::max(0, task.visible[m] - attention.window) : 0;
    if (attention.slopes != nullptr) task.slope[m] = attention.slopes[h];
  }
  return task;
}

/// Takes row r of the projections [q | k | v] through the norms and the rotation of the first `width` dimensions of
/// every head to q and to the cache. Changes the projections.
inline void finish_qkv_row(const CommonKernels& kernels, float* row, const StepPlan& plan, int r, int width,
                           RopeTable::Angles angles, Heads heads, KvLayer layer, View<float, 2> q,
                           const QkvShaping& shaping) {
  const int half = width / 2;
  const float* cosine = angles.cosine + std::int64_t{r} * half;
  const float* sine = angles.sine + std::int64_t{r} * half;
  const PlanRow& place_of = plan.rows[static_cast<std::size_t>(r)];
  const auto table = plan.table(plan.sequences[static_cast<std::size_t>(place_of.sequence)], layer.kind);
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
  finish(row, heads.kv, shaping.key, [&](int h) { return kv_entry(table, layer.keys, heads, h, place_of.position); });
  row += std::int64_t{heads.kv} * heads.dim;
  for (int h = 0; h < heads.kv; ++h, row += heads.dim) {
    std::copy_n(row, heads.dim, kv_entry(table, layer.values, heads, h, place_of.position));
  }
}

}  // namespace slm::backend::cpu
