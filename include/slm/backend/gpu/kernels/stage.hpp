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

/// Eight values of a row from `k` on, zero behind its end. at: where they are.
SLM_DEVICE void load8_at(const Memory<const float>& data, std::int64_t at, int width, int k, float (&v)[8]) {
  if (width % 4 == 0 && k + 8 <= width) {
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Word4 four = *data.vector<const Word4>(at + 4 * half);
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) v[4 * half + i] = float_of(four.word[i]);
    }
  } else {
    SLM_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = k + i < width ? data[at + i] : 0.0f;
  }
}
SLM_DEVICE void load8(const Memory<const float>& data, std::int64_t row, int width, int k, float (&v)[8]) {
  load8_at(data, row * width + k, width, k, v);
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
        if (k + 8 > rows.width) {
          SLM_UNROLL
          for (int i = 0; i < 8; ++i) v[i] = k + i < rows.width ? v[i] : mean;
        }
        SLM_UNROLL
        for (int i = 0; i < 8; ++i) {
          const float d = v[i] - mean;
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

SLM_DEVICE float normalized(float v, const RowStatistics& row, float weight, float bias) {
  // One fused operation in every kernel: whether a compiler fuses must not depend on where this is inlined.
  return fmaf((v - row.mean) * row.scale, weight, bias);
}
SLM_DEVICE float normalized(float v, int k, const RowStatistics& row, const NormArgs& norm) {
  return normalized(v, row, norm.weight ? norm.weight[k] : 1.0f, norm.bias ? norm.bias[k] : 0.0f);
}

/// The inputs of `Count` rows for a chunk of steps. A line has 16 bytes for each row and 32 more, which sets the lanes
/// of a wave on different banks.
template <class Format, int Count>
struct Staged {
  static constexpr int lines = Compute<Format>::chunk_steps * step_lines;
  static constexpr int line_words = Count * 4 + 8;
  alignas(16) std::uint32_t word[Compute<Format>::x_terms][lines][line_words];

  /// Lines 0 .. last - 1 of the chunk that begins at input k, of staged rows 0 .. end - 1, by `threads` threads, a
  /// multiple of the lines. Rows from `count` on are zero.
  template <class Lane>
  SLM_DEVICE void put(int thread, int threads, int last, int end, int count, const Rows& rows, int first_row, int k,
                      const RowStatistics* statistics, const NormArgs& norm) {
    const int line = static_cast<int>(static_cast<unsigned>(thread) % lines), width = rows.width;
    if (line >= last) return;
    k += line * line_depth;
    for (int to = static_cast<int>(static_cast<unsigned>(thread) / lines); to < end; to += threads / lines) {
      float v[8] = {};
      if (to < count) {
        load8(rows.data, first_row + to, width, k, v);
        if (norm.kind != NormKind::none) {
          const RowStatistics row = statistics[to];
          float weight[8] = {1, 1, 1, 1, 1, 1, 1, 1}, bias[8] = {};
          if (norm.weight) load8(norm.weight, 0, width, k, weight);
          if (norm.bias) load8(norm.bias, 0, width, k, bias);
          SLM_UNROLL
          for (int i = 0; i < 8; ++i) v[i] = normalized(v[i], row, weight[i], bias[i]);
          if (k + 8 > width) {
            SLM_UNROLL
            for (int i = 0; i < 8; ++i) v[i] = k + i < width ? v[i] : 0.0f;
          }
        }
      }
      store<Lane>(line, to, v);
    }
  }

  /// B of half a step, for the row `column`; of both halves with the first where a lane reads them at once.
  template <class L>
  SLM_DEVICE void fragments(int term, int step, int half, int lane_index, int column, FragmentB<L> (&b)[2]) const {
    if constexpr (L::k_groups == 1) {
      SLM_UNROLL
      for (int l = 0; l < 2; ++l) {
        const Word4 four = at(term, step, 2 * half + l, column);
        SLM_UNROLL
        for (int p = 0; p < 4; ++p) b[half].word[4 * l + p] = four.word[p];
      }
    } else if constexpr (std::is_same_v<Format, Int8>) {
      // A group takes half a line of each half of a step, which may be blocks.
      const int group = L::k_group(lane_index);
      const std::uint32_t* const line = word[term][step * step_lines + 2 * half + group / 2];
      const Word2 two = *reinterpret_cast<const Word2*>(line + column * 4 + group % 2 * 2);
      b[half] = {two.word[0], two.word[1]};
    } else if (half == 0) {
      const Word4 four = at(term, step, L::k_group(lane_index), column);
      b[0] = {four.word[0], four.word[1]};
      b[1] = {four.word[2], four.word[3]};
    }
  }

 private:
  SLM_DEVICE Word4 at(int term, int step, int line, int column) const {
    return *reinterpret_cast<const Word4*>(&word[term][step * step_lines + line][column * 4]);
  }

  template <class Lane>
  SLM_DEVICE void store(int line, int to, const float (&v)[8]) {
    using Element = typename Compute<Format>::Element;
    float slot[8];
    SLM_UNROLL
    for (int i = 0; i < 8; ++i) slot[slot_of<Format>(i)] = v[i];
    SLM_UNROLL
    for (int t = 0; t < Compute<Format>::x_terms; ++t) {
      Word4 four;
      SLM_UNROLL
      for (int p = 0; p < 4; ++p) {
        four.word[p] = Lane::template pack2<Element>(slot[2 * p], slot[2 * p + 1]);
        if (t + 1 == Compute<Format>::x_terms) continue;
        slot[2 * p] -= Lane::template unpack_low<Element>(four.word[p]);
        slot[2 * p + 1] -= Lane::template unpack_high<Element>(four.word[p]);
      }
      *reinterpret_cast<Word4*>(&word[t][line][to * 4]) = four;
    }
  }
};

/// The sums of the rounded inputs of a chunk's blocks, by the matrix unit: a row of ones times the inputs.
template <class L>
struct InputSums {
  FragmentC<L> sum;

  SLM_DEVICE void clear() {
    SLM_UNROLL
    for (int c = 0; c < L::c_floats; ++c) sum.value[c] = 0;
  }
  template <class Lane>
  SLM_DEVICE void add(Lane lane, const FragmentB<L>& b, Where where) {
    FragmentA<L> ones;
    SLM_UNROLL
    for (int w = 0; w < L::a_words; ++w) ones.word[w] = 0x3f803f80u;  // of bfloat16
    sum = lane.template mma<bfloat16_t>(ones, b, sum, where);
  }
};

}  // namespace slm::gpu
