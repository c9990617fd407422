// Preparation of activations for the matrix unit: norms, and sums of the rounded values.
#pragma once

#include <cmath>
#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Threads per block of every kernel over rows: 8 waves of 32 or 4 waves of 64.
inline constexpr int block_threads = 256;
inline constexpr int most_waves = block_threads / 32;

/// Contiguous rows of activations.
struct Rows {
  Memory<const float> data;  // [count, width]
  int width = 0;
  int count = 0;

  SLM_DEVICE std::int64_t begin(int row) const { return std::int64_t{row} * width; }
};

/// Rows of activations anywhere.
struct ListedRows {
  Memory<const float> data;
  int width = 0;
  int stride = 0;               // elements from a row to the next one
  const int* places = nullptr;  // [rows]: the place of each row, in shared memory

  SLM_DEVICE std::int64_t begin(int row) const { return std::int64_t{places[row]} * stride; }
};

struct NormArgs {
  Memory<const float> weight;  // [width]; may be empty
  Memory<const float> bias;    // [width]; may be empty
  float epsilon = 0;
  NormKind kind = NormKind::none;
};

/// A norm maps x to (x - mean) * scale.
struct RowStatistics {
  float mean, scale;
};

/// Loads eight values of a row from `k` on, zero after its end. at: their offset. aligned: whether rows of a width
/// divisible by four are at multiples of 16 bytes.
SLM_DEVICE void load8_at(const Memory<const float>& data, std::int64_t at, int width, int k, float (&v)[8],
                         bool aligned = true) {
  if (aligned && width % 4 == 0 && k + 8 <= width) {
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

/// Sums of up to vector_rows rows over the whole block, in an order that depends on the width only.
struct BlockSums {
  float partial[vector_rows][most_waves];
  RowStatistics row[vector_rows];
};

/// Fills shared.row for rows first .. first + count of `rows`. Ends with a barrier. Called by all block_threads
/// threads. aligned: see load8_at().
template <class Lane>
SLM_DEVICE void row_statistics(Lane lane, const Rows& rows, const NormArgs& norm, int first, int count,
                               BlockSums& shared, Where where = Where::here(), bool aligned = true) {
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
        load8_at(rows.data, rows.begin(first + r) + k, rows.width, k, v, aligned);
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
  // An explicit fma, since a compiler's choice to fuse must not depend on the inlining context.
  return fmaf((v - row.mean) * row.scale, weight, bias);
}
SLM_DEVICE float normalized(float v, int k, const RowStatistics& row, const NormArgs& norm) {
  return normalized(v, row, norm.weight ? norm.weight[k] : 1.0f, norm.bias ? norm.bias[k] : 0.0f);
}

/// Sums of the rounded inputs of a chunk's blocks, by the matrix unit: a row of ones times the inputs.
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
    for (int w = 0; w < L::a_words; ++w) ones.word[w] = 0x3f803f80u;  // 1.0 in bfloat16, twice
    sum = lane.template mma<bfloat16_t>(ones, b, sum, where);
  }
};

}}}
