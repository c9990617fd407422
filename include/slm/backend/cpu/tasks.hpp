// Parts of backend::Cpu's operations without its memory: division of attention into tasks, and the end of qkv for one
// row.
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
#include "slm/backend/kv_rows.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// Divides a step's attention into tasks: per sequence and KV head, blocks of the queries that read it.
class AttendTasks {
 public:
  /// group: queries of a row per KV head. kv: number of KV heads.
  void share(const StepPlan& plan, int group, int kv, const CommonKernels& kernels) {
    shares_.clear();
    blocks_.clear();
    count_ = 0;
    for (const PlanSequence& sequence : plan.sequences) {
      const std::size_t first = blocks_.size();
      const int queries = sequence.rows * group;
      for (int at = 0; at < queries; at += blocks_.back().count) {
        blocks_.push_back({at, block_of(queries - at, kernels.row_block, kernels.lanes)});
      }
      const int blocks = static_cast<int>(blocks_.size() - first);
      shares_.push_back({count_, &sequence, first, blocks});
      count_ += kv * blocks;
    }
  }

  int count() const { return count_; }

  /// Calls use(sequence, kv_head, first query, queries) for task `index`.
  template <class Use>
  void with(int index, Use use) const {
    const auto after = std::upper_bound(shares_.begin(), shares_.end(), index,
                                        [](int task, const Share& share) { return task < share.first; });
    const Share& share = *std::prev(after);
    const int head = (index - share.first) / share.blocks, block = (index - share.first) % share.blocks;
    const Block& queries = blocks_[share.first_block + static_cast<std::size_t>(block)];
    use(*share.sequence, head, queries.first, queries.count);
  }

 private:
  struct Block {
    int first;
    int count;
  };
  struct Share {
    int first;  // index of its first task
    const PlanSequence* sequence;
    std::size_t first_block;
    int blocks;
  };

  /// The number of remaining queries for the next task: vectors that are more than half full, else a block that shares
  /// a pass lane by lane.
  static int block_of(int left, int row_block, int lanes) {
    if (left <= lanes / 2) return RowBlocks(left, RowHeights::up_to(row_block)).size(0);
    if (left >= most_queries || left % lanes > lanes / 2) return std::min(left, most_queries);
    return std::max(left / lanes * lanes, std::min(left, lanes));
  }

  int count_ = 0;
  std::vector<Share> shares_;
  std::vector<Block> blocks_;
};

/// The task for queries first.. first + count - 1 of a sequence that read one KV head, numbered by row, then by head.
inline AttendTask attend_task(const StepPlan& plan, const PlanSequence& sequence, View<const float, 2> q, Heads heads,
                              KvLayer layer, View<float, 2> out, const Attention& attention, int kv_head, int first,
                              int count) {
  const int group = heads.query / heads.kv;
  const std::int64_t before = kv_head * kv_head_bytes(plan.format, heads.dim);
  AttendTask task;
  task.pages = plan.table(sequence, layer.kind).data();
  task.keys = layer.keys + before;
  task.values = layer.values + before;
  task.dim = heads.dim;
  task.queries = count;
  task.cap = attention.cap;
  task.sinks = attention.sinks != nullptr;
  for (int m = 0; m < count; ++m) {
    const int r = sequence.first_row + (first + m) / group, h = kv_head * group + (first + m) % group;
    task.query[m] = q.row(r) + std::int64_t{h} * heads.dim;
    task.out[m] = out.row(r) + std::int64_t{h} * heads.dim;
    task.visible[m] = plan.rows[static_cast<std::size_t>(r)].position + 1;  // causal: itself and all earlier positions
    task.first[m] = attention.window != 0 ? std::max(0, task.visible[m] - attention.window) : 0;
    task.scale[m] = attention.scale_at(task.visible[m] - 1, heads.dim);
    if (attention.slopes != nullptr) task.slope[m] = attention.slopes[h];
    if (attention.sinks != nullptr) task.sink[m] = attention.sinks[h];
  }
  return task;
}

/// Rotates the pairs (x[0], x[1]), (x[2], x[3]), ... as (i, i + half) of a copy.
inline void rotate_pairs(const CommonKernels& kernels, const float* cosine, const float* sine, int half, float* x) {
  float first[512] = {}, second[512] = {};  // head_dim is at most 1024
  for (int i = 0; i < half; ++i) first[i] = x[2 * i], second[i] = x[2 * i + 1];
  kernels.rotate(first, second, cosine, sine, half, first, second);
  for (int i = 0; i < half; ++i) x[2 * i] = first[i], x[2 * i + 1] = second[i];
}

/// Applies clip, norms and the rotation of each head to row r of the projections [q | k | v], of `width` numbers, then
/// stores it in q and the cache. Modifies the projections.
inline void finish_qkv_row(const CommonKernels& kernels, float* row, std::int64_t width, const StepPlan& plan, int r,
                           const Rope& rope, RopeTable::Angles angles, Heads heads, KvLayer layer, View<float, 2> q,
                           const QkvShaping& shaping) {
  const int half = rope.rotating(heads.dim) / 2;
  const float* cosine = angles.cosine + std::int64_t{r} * half;
  const float* sine = angles.sine + std::int64_t{r} * half;
  const PlanRow& place = plan.rows[static_cast<std::size_t>(r)];
  const int clipped = shaping.clips_normed ? (heads.query + heads.kv) * heads.dim : 0;
  if (shaping.clip != 0) kernels.clip(row + clipped, static_cast<int>(width) - clipped, shaping.clip);
  const auto finish = [&](float* heads_of_row, int count, const Norm& norm) {
    if (shaping.norm == QkNorm::whole) {
      kernels.normalize(norm, heads_of_row, std::int64_t{count} * heads.dim, heads_of_row);
    }
    if (shaping.clips_normed) kernels.clip(heads_of_row, count * heads.dim, shaping.clip);
    for (int h = 0; h < count; ++h) {
      float* const x = heads_of_row + std::int64_t{h} * heads.dim;
      const Norm own = shaping.of_head(norm, h, heads.dim);
      if (shaping.per_head() && shaping.norm != QkNorm::rotated) kernels.normalize(own, x, heads.dim, x);
      if (half > 0 && rope.pairs) rotate_pairs(kernels, cosine, sine, half, x);
      if (half > 0 && !rope.pairs) kernels.rotate(x, x + half, cosine, sine, half, x, x + half);
      if (shaping.norm == QkNorm::rotated) kernels.normalize(own, x, heads.dim, x);
    }
  };
  const auto put = [&](const float* from, std::int64_t part) {
    for (int h = 0; h < heads.kv; ++h, from += heads.dim)
      kv_row(plan, place.sequence, layer.kind, part, heads.dim, h, place.position).put(from);
  };
  finish(row, heads.query, shaping.query);
  if (q.row(r) != row) std::copy_n(row, std::int64_t{heads.query} * heads.dim, q.row(r));
  const int parts = qkv_parts(width, heads);
  if (parts == 1) return;
  row += std::int64_t{heads.query} * heads.dim;
  const float* values = parts == 3 ? row + std::int64_t{heads.kv} * heads.dim : row;
  for (int h = 0; h < heads.kv && layer.values != layer.keys; ++h, values += heads.dim) {
    float normed[1024];  // head_dim is at most 1024
    const bool norms = shaping.value.kind != NormKind::none;
    if (norms) kernels.normalize(shaping.value, values, heads.dim, normed);
    kv_row(plan, place.sequence, layer.kind, layer.values, heads.dim, h, place.position).put(norms ? normed : values);
  }
  finish(row, heads.kv, shaping.key);
  put(row, layer.keys);
}

}}}
