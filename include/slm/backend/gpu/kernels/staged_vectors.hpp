// StagedVectors: a wave normalises, rounds and stages its slice's inputs of few rows for the matrix unit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Up to vector_rows rows in shared memory, each a run of 16-byte lines. Each lane of a wave has one line, for one row
/// as for many. RDNA3 has less shared memory per wave, so with more than half of the rows it stages half of the lines
/// at once.
template <class Format, class L>
struct StagedVectors {
  static constexpr int terms = Compute<Format>::x_terms, most_steps = terms == 1 ? 8 : 2;
  static constexpr int most_lines = most_steps * step_lines;
  static constexpr bool halved = L::k_groups == 1;
  // Lanes that read at once use different banks: for mma.sync four lines of two rows, otherwise eight rows.
  static constexpr int gap = L::row_slots == 2 ? 16 : 4;
  alignas(16) std::uint32_t word[terms][vector_rows * (most_lines * 4 / (halved ? 2 : 1) + gap)];

  static SLM_DEVICE int steps_at_once(int count) {
    return halved && count > vector_rows / 2 ? most_steps / 2 : most_steps;
  }

  /// Offset of a row in words.
  static SLM_DEVICE int row_at(int row, int steps) { return row * (steps * step_lines * 4 + gap); }

  /// Stages `count` rows from first_row on: the steps from `at` on that fit at once, up to `end`. Called by a wave. X:
  /// Rows, or ListedRows, which have no norm.
  template <class Lane, class X>
  SLM_DEVICE void put(Lane lane, int at, int end, int count, const X& rows, int first_row,
                      const RowStatistics* statistics, const NormArgs& norm) {
    constexpr int half = most_lines / 2;
    const unsigned i = static_cast<unsigned>(lane.lane_index());
    const int steps = steps_at_once(count), width = rows.width;
    const bool all = steps == most_steps;
    const int line = static_cast<int>(all ? i % most_lines : i % half);
    if (at + line / step_lines >= end) return;
    const int first = static_cast<int>(all ? i / most_lines : i / half), step = Lane::width / (all ? most_lines : half);
    const int k = at * slice_depth + line * line_depth;
    std::uint32_t to = row_at(first, steps) + line * 4;
    const std::uint32_t further = row_at(step, steps);
    std::int64_t from = std::int64_t{first_row + first} * width + k;
    const std::int64_t next = std::int64_t{step} * width;
    float v[8];
    if (norm.kind == NormKind::none) {
      SLM_ROLLED
      for (int row = first; row < count; row += step, from += next, to += further) {
        if constexpr (std::is_same_v<X, ListedRows>) from = rows.begin(first_row + row) + k;
        load8_at(rows.data, from, width, k, v);
        store<Lane>(to, v);
      }
      return;
    }
    float weight[8] = {1, 1, 1, 1, 1, 1, 1, 1}, bias[8] = {};
    if (norm.weight) load8(norm.weight, 0, width, k, weight);
    if (norm.bias) load8(norm.bias, 0, width, k, bias);
    SLM_ROLLED
    for (int row = first; row < count; row += step, from += next, to += further) {
      load8_at(rows.data, from, width, k, v);
      const RowStatistics of = statistics[row];
      if (norm.kind == NormKind::layer) {
        SLM_UNROLL
        for (int n = 0; n < 8; ++n) v[n] = v[n] - of.mean;
      }
      SLM_UNROLL
      for (int n = 0; n < 8; ++n) v[n] = fmaf(v[n] * of.scale, weight[n], bias[n]);
      if (k + 8 > width) {
        SLM_UNROLL
        for (int n = 0; n < 8; ++n) v[n] = k + n < width ? v[n] : 0.0f;
      }
      store<Lane>(to, v);
    }
  }

  /// Loads B of half a staged step, for the row at `row`; loads both halves with the first if a lane reads them at
  /// once.
  SLM_DEVICE void fragments(int term, int step, int half, int lane_index, int row, FragmentB<L> (&b)[2]) const {
    const std::uint32_t* const from = word[term] + row + step * (step_lines * 4);
    if constexpr (L::k_groups == 1) {
      SLM_UNROLL
      for (int l = 0; l < 2; ++l) {
        const Word4 four = *reinterpret_cast<const Word4*>(from + (2 * half + l) * 4);
        SLM_UNROLL
        for (int p = 0; p < 4; ++p) b[half].word[4 * l + p] = four.word[p];
      }
    } else if constexpr (std::is_same_v<Format, Int8>) {
      // A group takes half a line of each half-step, since a half-step may be a block.
      const Word2 two = *reinterpret_cast<const Word2*>(from + 8 * half + L::k_group(lane_index) * 2);
      b[half] = {two.word[0], two.word[1]};
    } else if (half == 0) {
      const Word4 four = *reinterpret_cast<const Word4*>(from + L::k_group(lane_index) * 4);
      b[0] = {four.word[0], four.word[1]};
      b[1] = {four.word[2], four.word[3]};
    }
  }

 private:
  template <class Lane>
  SLM_DEVICE void store(std::uint32_t to, const float (&v)[8]) {
    using Element = typename Compute<Format>::Element;
    float slot[8];
    SLM_UNROLL
    for (int i = 0; i < 8; ++i) slot[slot_of<Format>(i)] = v[i];
    SLM_UNROLL
    for (int t = 0; t < terms; ++t) {
      Word4 four;
      SLM_UNROLL
      for (int p = 0; p < 4; ++p) {
        four.word[p] = Lane::template pack2<Element>(slot[2 * p], slot[2 * p + 1]);
        if (t + 1 == terms) continue;
        slot[2 * p] -= Lane::template unpack_low<Element>(four.word[p]);
        slot[2 * p + 1] -= Lane::template unpack_high<Element>(four.word[p]);
      }
      *reinterpret_cast<Word4*>(&word[t][to]) = four;
    }
  }
};

}}}
