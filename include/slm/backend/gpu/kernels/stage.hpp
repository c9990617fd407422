// Activations on their way to the matrix unit: normalised, rounded to its elements, laid out in shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/core/architecture.hpp"

namespace slm::inline v0_1::gpu {

/// Threads of a block of every kernel that works on rows; waves are 8 of 32 or 4 of 64.
inline constexpr int block_threads = 256;
inline constexpr int most_waves = block_threads / 32;

/// Rows of activations, one after the other.
struct Rows {
  Memory<const float> data;  // [count, width]
  int width = 0;
  int count = 0;
};

struct NormArgs {
  Memory<const float> weight;  // [width]; may be empty
  Memory<const float> bias;    // [width]; may be empty
  float epsilon = 0;
  NormKind kind = NormKind::none;
};

/// x becomes (x - mean) * scale.
struct RowStatistics {
  float mean, scale;
};

/// Eight values of a row from `k` on, zero behind its end.
SLM_DEVICE void load8(const Memory<const float>& data, std::int64_t row, int width, int k, float (&v)[8]) {
  if (width % 4 == 0) {
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const bool inside = k + 4 * half < width;
      const Word4 four = inside ? *data.vector<const Word4>(row * width + k + 4 * half) : Word4{};
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) v[4 * half + i] = float_of(four.word[i]);
    }
  } else {
    SLM_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = k + i < width ? data[row * width + k + i] : 0.0f;
  }
}

/// Sums of up to vector_rows rows over the whole block, in an order that depends on the width alone.
struct BlockSums {
  float partial[vector_rows][most_waves];
  RowStatistics row[vector_rows];
};

/// Fills shared.row for rows first .. first + count of `rows`. Ends with a barrier. Called by whole blocks of
/// block_threads.
template <class Lane>
SLM_DEVICE void row_statistics(Lane lane, const Rows& rows, const NormArgs& norm, int first, int count,
                               BlockSums& shared, Where where = Where::here()) {
  const int t = lane.thread();
  if (t < vector_rows) shared.row[t] = {0.0f, 1.0f};
  if (norm.kind == NormKind::none) {
    lane.barrier(where);
    return;
  }
  const auto sum_rows = [&](bool squares) {
    for (int r = 0; r < count; ++r) {
      const float mean = squares ? shared.row[r].mean : 0.0f;
      float sum = 0;
      for (int k = t * 8; k < rows.width; k += block_threads * 8) {
        float v[8];
        load8(rows.data, first + r, rows.width, k, v);
        SLM_UNROLL
        for (int i = 0; i < 8; ++i) {
          const float d = k + i < rows.width ? v[i] - mean : 0.0f;
          sum = squares ? fmaf(d, d, sum) : sum + d;
        }
      }
      sum = lane.wave_sum(sum, where);
      if (lane.lane_index() == 0) shared.partial[r][lane.wave()] = sum;
    }
    lane.barrier(where);
  };
  const auto total = [&](int r) {
    float sum = 0;
    for (int w = 0; w < lane.waves(); ++w) sum += shared.partial[r][w];
    return sum / static_cast<float>(rows.width);
  };
  lane.barrier(where);
  if (norm.kind == NormKind::layer) {
    sum_rows(false);
    if (t < count) shared.row[t].mean = total(t);
    lane.barrier(where);
  }
  sum_rows(true);
  if (t < count) shared.row[t].scale = 1.0f / sqrtf(total(t) + norm.epsilon);
  lane.barrier(where);
}

SLM_DEVICE float normalized(float v, int k, const RowStatistics& row, const NormArgs& norm) {
  // One fused operation in every kernel: whether a compiler fuses must not depend on where this is inlined.
  return fmaf((v - row.mean) * row.scale, norm.weight ? norm.weight[k] : 1.0f, norm.bias ? norm.bias[k] : 0.0f);
}

/// The inputs of `Count` rows for a chunk of steps. A line has 16 bytes for each row and 32 more, which sets the lanes
/// of a wave on different banks.
template <class Format, int Count>
struct Staged {
  static constexpr int lines = Compute<Format>::chunk_steps * step_lines;
  static constexpr int line_words = Count * 4 + 8;
  static constexpr bool sums = in_codes<Format>;
  alignas(16) std::uint32_t word[Compute<Format>::x_terms][lines][line_words];
  float line_sum[sums ? lines : 1][sums ? Count : 1];
  float block_sum[sums ? WaveScales::blocks : 1][sums ? Count : 1];  // of the rounded inputs of a block

  /// Line `line` of the chunk, of staged row `to`. Rows that are not there are zero.
  template <class Lane>
  SLM_DEVICE void put(int line, int to, bool exists, const Rows& rows, std::int64_t row, int k,
                      const RowStatistics& statistics, const NormArgs& norm) {
    using Element = typename Compute<Format>::Element;
    float v[8] = {}, slot[8] = {};
    if (exists) load8(rows.data, row, rows.width, k, v);
    SLM_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (exists && norm.kind != NormKind::none && k + i < rows.width) v[i] = normalized(v[i], k + i, statistics, norm);
      slot[slot_of<Format>(i)] = v[i];
    }
    float sum = 0;
    SLM_UNROLL
    for (int t = 0; t < Compute<Format>::x_terms; ++t) {
      Word4 four;
      SLM_UNROLL
      for (int p = 0; p < 4; ++p) {
        four.word[p] = Lane::template pack2<Element>(slot[2 * p], slot[2 * p + 1]);
        const float low = Lane::template unpack_low<Element>(four.word[p]);
        const float high = Lane::template unpack_high<Element>(four.word[p]);
        if constexpr (sums) sum += low + high;
        slot[2 * p] -= low;
        slot[2 * p + 1] -= high;
      }
      *reinterpret_cast<Word4*>(&word[t][line][to * 4]) = four;
    }
    if constexpr (sums) line_sum[line][to] = sum;
  }

  SLM_DEVICE void sum_block(int block, int lines_of_block, int to) {
    float sum = 0;
    for (int l = 0; l < lines_of_block; ++l) sum += line_sum[block * lines_of_block + l][to];
    block_sum[block][to] = sum;
  }

  /// B of half a step, for the row `column`.
  template <class L>
  SLM_DEVICE FragmentB<L> fragment(int term, int step, int half, int lane_index, int column) const {
    FragmentB<L> b;
    if constexpr (L::k_groups == 1) {
      SLM_UNROLL
      for (int l = 0; l < 2; ++l) {
        const auto four = *reinterpret_cast<const Word4*>(&word[term][step * step_lines + 2 * half + l][column * 4]);
        SLM_UNROLL
        for (int p = 0; p < 4; ++p) b.word[4 * l + p] = four.word[p];
      }
    } else {
      // A group takes half a line: of its own one, or, of eight bits, whose halves of a step may be blocks, the
      // group-th.
      const int group = L::k_group(lane_index);
      const int line = std::is_same_v<Format, Int8> ? 2 * half + group / 2 : group;
      const int pair = std::is_same_v<Format, Int8> ? 2 * (group % 2) : 2 * half;
      const auto two = *reinterpret_cast<const Word2*>(&word[term][step * step_lines + line][column * 4 + pair]);
      b.word[0] = two.word[0];
      b.word[1] = two.word[1];
    }
    return b;
  }
};

}  // namespace slm::gpu
