// PanelProduct: inner loop of products of few rows. A wave multiplies its panel by the staged inputs of a chunk of
// steps, and scales the sums per block of codes.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/staged_vectors.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/scales.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Whether a block ends after `halves` half-steps of a chunk. No block is longer than a chunk.
template <class Format>
SLM_DEVICE constexpr bool ends_block(int halves, int block_shift) {
  const int inputs = halves * 16;
  if (inputs == Compute<Format>::chunk_steps * slice_depth) return true;
  return inputs % Compute<Format>::least_block == 0 && (inputs & -inputs) >> block_shift != 0;
}

/// A wave's state for its panel: prefetched weights of the next `Chunks` chunks, and the sums of a fragment of rows.
template <class Format, class Lane, int Chunks>
struct PanelProduct {
  using L = typename Lane::Matrix;
  using C = Compute<Format>;
  using Inputs = StagedVectors<Format, L>;
  using Weights = StepWeights<Format, L>;
  static constexpr bool codes = in_codes<Format>;

  /// Whether sums are accumulated outside of the matrix unit, which then restarts at zero. For codes: per block, with
  /// its scale. For fp32 terms: tensor cores truncate addends below the largest, including an old sum.
  static constexpr bool apart = codes || C::w_terms > 1;

  /// Whether weights are loaded one chunk ahead. A lane of a unit with one group along the depth holds four times as
  /// much of a step, which leaves no registers for two chunks and three terms.
  static constexpr bool ahead = L::k_groups != 1 || C::w_terms == 1;

  const Tiles& tiles;
  typename Weights::Place place;
  Weights next[Chunks][ahead ? C::chunk_steps : 1];
  std::conditional_t<codes, ScalesAhead, Nothing> next_scales;
  FragmentC<L> sum[2];

  SLM_DEVICE PanelProduct(Lane lane, const Tiles& weight, const Panel& panel)
      : tiles(weight), place(lane.lane_index(), weight, panel) {
    place.template keep<Lane>();
    if constexpr (codes) next_scales.begin(lane, weight, panel);
    clear(sum);
  }

  SLM_DEVICE static void clear(FragmentC<L> (&sums)[2]) {
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int i = 0; i < L::c_floats; ++i) sums[m].value[i] = 0;
    }
  }

  /// Loads the weights of steps at .. last - 1, at most one chunk, into slot `c`.
  SLM_DEVICE void load(int c, int at, int last) {
    if constexpr (ahead) {
      if (at >= last) return;
      if (at + C::chunk_steps <= last) {
        SLM_UNROLL
        for (int s = 0; s < C::chunk_steps; ++s) next[c][s].template load<Lane>(tiles, place, at, s);
      } else {
        SLM_UNROLL
        for (int s = 0; s < C::chunk_steps; ++s) {
          if (at + s < last) next[c][s].template load<Lane>(tiles, place, at, s);
        }
      }
    }
  }
  SLM_DEVICE void load_scales(Lane lane, int at, int last) {
    if constexpr (codes) next_scales.load(lane, tiles, at, last);
  }

  /// Multiplies the loaded weights of `steps` steps from `at` on, slot `c`, by the staged inputs from step `staged` on.
  /// Then loads the weights from `behind` on into the slot, up to `end`. first_block: of the available scales. row: of
  /// this lane's staged inputs. Nearly all chunks are complete, so the complete case avoids tests per step. (AMD's
  /// compiler has too few registers for that.)
  SLM_DEVICE void chunk(Lane lane, int c, int staged, int at, int steps, int behind, int end, const Inputs& inputs,
                        const WaveScales* scales, int first_block, int row, Where where = Where::here()) {
    if (L::row_slots != 2 || steps < C::chunk_steps) {
      multiply<false, 0>(lane, c, staged, at, steps, behind, end, inputs, scales, first_block, row, where);
    } else if constexpr (codes) {
      constexpr int least = std::countr_zero(static_cast<unsigned>(C::least_block));
      if (tiles.block_shift > least + 1) {
        multiply<true, least + 2>(lane, c, staged, at, steps, behind, end, inputs, scales, first_block, row, where);
      } else if (tiles.block_shift == least + 1) {
        multiply<true, least + 1>(lane, c, staged, at, steps, behind, end, inputs, scales, first_block, row, where);
      } else {
        multiply<true, least>(lane, c, staged, at, steps, behind, end, inputs, scales, first_block, row, where);
      }
      load(c, behind, end);
    } else {
      multiply<true, 0>(lane, c, staged, at, steps, behind, end, inputs, scales, first_block, row, where);
    }
  }

 private:
  /// Sums that are accumulated outside of the matrix unit, and sums of inputs.
  struct Parts {
    FragmentC<L> of[2];
    InputSums<L> inputs;
  };

  /// Whole: the chunk is complete. Shift: block shift if known at compile time, which avoids tests.
  template <bool Whole, int Shift>
  SLM_DEVICE void multiply(Lane lane, int c, int staged, int at, int steps, int behind, int end, const Inputs& inputs,
                           const WaveScales* scales, int first_block, int row, Where where) {
    Parts part;
    if constexpr (apart) clear(part.of);
    if constexpr (codes) part.inputs.clear();
    behind = Lane::keep(behind);
    SLM_UNROLL
    for (int s = 0; s < C::chunk_steps; ++s) {
      if constexpr (ahead) {
        if (Whole || s == 0 || s < steps) {
          step<Shift>(lane, staged + s, s, next[c][s], part, inputs, scales, first_block, row, where);
        }
        if constexpr (Shift == 0) {
          if (behind + s < end) next[c][s].template load<Lane>(tiles, place, behind, s);
        }
      } else if (Whole || s < steps) {
        Weights weights;
        weights.template load<Lane>(tiles, place, at, s);
        step<Shift>(lane, staged + s, s, weights, part, inputs, scales, first_block, row, where);
      }
    }
  }

  /// Step s of a chunk, with the inputs of step `staged`.
  template <int Shift>
  SLM_DEVICE void step(Lane lane, int staged, int s, const Weights& weights, Parts& part, const Inputs& inputs,
                       const WaveScales* scales, int first_block, int row, Where where) {
    const int i = lane.lane_index();
    FragmentB<L> b[C::x_terms][2];
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      SLM_UNROLL
      for (int t = 0; t < C::x_terms; ++t) inputs.fragments(t, staged, half, i, row, b[t]);
      if constexpr (codes) part.inputs.add(lane, b[0][half], where);
      SLM_UNROLL
      for (int m = 0; m < 2; ++m) {
        FragmentA<L> a[C::w_terms];
        weights.template fragments<Lane>(tiles, m, half, a);
        FragmentC<L>& to = apart ? part.of[m] : sum[m];
        // Smaller terms first; terms below the last bit of fp32 are omitted.
        SLM_UNROLL
        for (int order = C::w_terms - 1; order >= 0; --order) {
          SLM_UNROLL
          for (int t = 0; t <= order; ++t) {
            to = lane.template mma<typename C::Element>(a[t], b[order - t][half], to, where);
          }
        }
        if constexpr (C::w_terms > 1) {
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) {
            sum[m].value[c] += to.value[c];
            to.value[c] = 0;
          }
        }
      }
      if constexpr (codes) {
        const int shift = Shift != 0 ? Shift : tiles.block_shift;
        if (ends_block<Format>(2 * s + half + 1, shift)) {
          const int block = ((2 * s + half + 1) * 16 >> shift) - 1;
          scale(i, part, *scales, first_block + block);
          part.inputs.clear();
        }
      }
    }
  }

  /// Adds the scaled sums of a block to the outputs' sums, and clears them.
  SLM_DEVICE void scale(int lane_index, Parts& part, const WaveScales& scales, int block) {
    // Two adjacent places are two rows of a fragment if a lane has two, else one row of both fragments.
    constexpr bool rows = L::row_slots == 2;
    SLM_UNROLL
    for (int g = 0; g < (rows ? 2 : L::c_floats); ++g) {
      const Word4 two = scales.two(block, place_of<Format, L>(rows ? g : 0, L::c_row(lane_index, rows ? 0 : g)));
      SLM_UNROLL
      for (int k = 0; k < (rows ? 4 : 2); ++k) {
        const int m = rows ? g : k, c = rows ? k : g, of = rows ? k / 2 : k;
        float& to = sum[m].value[c];
        const float offset = fmaf(float_of(two.word[2 * of + 1]), part.inputs.sum.value[c], to);
        to = fmaf(float_of(two.word[2 * of]), part.of[m].value[c], offset);
        part.of[m].value[c] = 0;
      }
    }
  }
};

}}}
