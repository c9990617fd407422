// TileProduct: inner loop of products of many rows. A wave multiplies its panel by the rows of a tile, with staged
// inputs that the waves of its block share. Weights are converted once for all rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/staged_rows.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/scales.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Shared memory of a block: inputs of up to two steps, double-buffered. Lanes keep those of their sums here that do
/// not fit into registers.
template <class Format>
struct TileInputs {
  static constexpr bool codes = in_codes<Format>;
  static constexpr int kept = codes ? 7 : 0;  // number of groups of four sums per lane
  alignas(16) std::uint32_t step[2][StagedSlice<Format>::words];
  alignas(16) std::uint32_t total[codes ? kept : 1][codes ? block_threads : 1][4];
  std::conditional_t<codes, WaveScales[most_waves], Nothing> scales;
};

template <class Format, class Lane>
struct TileProduct {
  using L = typename Lane::Matrix;
  using C = Compute<Format>;
  using Slice = StagedSlice<Format>;
  using Weights = StepWeights<Format, L>;
  static constexpr bool codes = in_codes<Format>;

  /// Rows at once: the whole tile if registers suffice for the sums, which are three with codes.
  static constexpr int rows = codes && L::k_groups == 1 ? C::tile_rows / 2 : C::tile_rows;
  static constexpr int columns = rows / L::columns;

  /// Whether weights are prefetched. A lane of a unit with one group along the depth holds four times as much of a
  /// step; only 4-bit codes leave enough registers.
  static constexpr bool ahead = L::k_groups != 1 || std::is_same_v<Format, Int4>;

  /// Half-steps whose weights are converted together.
  static constexpr int halves = L::k_groups == 1 ? 1 : 2;

  const Tiles& tiles;
  typename Weights::Place place;
  Weights next;
  std::conditional_t<codes, ScalesAhead, Nothing> next_scales{};
  FragmentC<L> sum[2][columns], total[2][columns];

  SLM_DEVICE TileProduct(Lane lane, const Tiles& weight, const Panel& panel)
      : tiles(weight), place(lane.lane_index(), weight, panel) {
    place.template keep<Lane>();
    if constexpr (codes) next_scales.begin(lane, weight, panel);
    clear(total);
  }

  SLM_DEVICE static void clear(FragmentC<L> (&sums)[2][columns]) {
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int n = 0; n < columns; ++n) sums[m][n] = {};
    }
  }

  /// Half-steps that are multiplied together: a block of codes, or a divisor of every slice.
  static SLM_DEVICE int halves_at_once(const Tiles& tiles, int slice) {
    if constexpr (codes) return 1 << (tiles.block_shift - 4);
    return C::chunk_steps > 1 && slice % 2 == 0 && tiles.steps % 2 == 0 ? 4 : 2;
  }

  /// Loads the first weights and scales.
  SLM_DEVICE void begin(Lane lane, int slice) {
    if constexpr (ahead) next.template load<Lane>(tiles, place, 0, 0);
    if constexpr (codes) next_scales.load(lane, tiles, 0, slice < tiles.steps ? slice : tiles.steps);
  }

  /// Multiplies all slices, for the rows from `row` of the tile on. staged: of the tile. Halves: half-steps per block
  /// of codes; for floats, half-steps multiplied together.
  template <int Halves>
  SLM_DEVICE void multiply(Lane lane, const Memory<const std::uint32_t>& staged, int row, int slice,
                           TileInputs<Format>& shared, Where where = Where::here()) {
    constexpr int at_once = Halves < 2 ? 1 : Halves / 2;
    const int end = tiles.steps;
    const int lane_place =
        Lane::keep(Slice::template place<L>(lane.lane_index(), row + L::b_column(lane.lane_index())));
    Copies copies;
    copies.begin(lane, staged, 0, shared);
    SLM_UNROLL
    for (int f = 0; f < kept; ++f) keep(lane, shared, f);
    int step = 0, first = 0;
    do {
      const int last = first + slice < end ? first + slice : end;
      clear(sum);
      do {
        int block = 0;
        if constexpr (codes) {
          constexpr int window = WaveScales::blocks * Halves / 2;  // in steps
          const int within = (step - first) & (window - 1);
          if (within == 0) turn_scales<window>(lane, step, last, slice, shared.scales[lane.wave()], where);
          block = within * 2 / Halves;
        }
        group<Halves>(lane, step, staged, copies, lane_place, row, shared, block, where);
        step += at_once;
      } while (step < last);
      add_slice(lane, shared);
      first += slice;
    } while (step < end);
    SLM_UNROLL
    for (int f = 0; f < kept; ++f) load_kept(lane, shared, f);
  }

 private:
  /// Makes the scales from `step` on current, and loads those of the next `window` steps, which may belong to the next
  /// slice.
  template <int window>
  SLM_DEVICE void turn_scales(Lane lane, int step, int last, int slice, WaveScales& to, Where where) {
    const Again again(lane);
    next_scales.first = Lane::keep(next_scales.first);
    const int at = step + window < last ? step + window : last, behind = Lane::keep(last) + slice;
    lane.wave_barrier(where);
    next_scales.template store<Format>(again, tiles, to);
    next_scales.load(again, tiles, at, at < last ? last : behind < tiles.steps ? behind : tiles.steps);
    lane.wave_barrier(where);
  }

  /// A lane that recomputes its index, so that no dependent values occupy registers meanwhile.
  struct Again : Lane {
    int index;
    SLM_DEVICE explicit Again(Lane lane) : Lane(lane), index(Lane::forget(lane.lane_index())) {}
    SLM_DEVICE int lane_index() const { return index; }
  };

  /// Adds a slice's sums to those of earlier slices.
  SLM_DEVICE void add_slice(Lane lane, TileInputs<Format>& shared) {
    SLM_UNROLL
    for (int f = 0; f < 2 * columns; ++f) {
      FragmentC<L>&to = total[f % 2][f / 2], &from = sum[f % 2][f / 2];
      if (f < kept) load_kept(lane, shared, f);
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) to.value[c] += from.value[c];
      if (f < kept) keep(lane, shared, f);
    }
  }

  /// Fragments of `total` in shared memory.
  static constexpr int kept = TileInputs<Format>::kept * 4 / L::c_floats;
  static SLM_DEVICE Word4* kept_at(Lane lane, TileInputs<Format>& shared, int fragment, int c) {
    return reinterpret_cast<Word4*>(shared.total[(fragment * L::c_floats + c) / 4][lane.thread()]);
  }
  SLM_DEVICE void keep(Lane lane, TileInputs<Format>& shared, int f) {
    SLM_UNROLL
    for (int c = 0; c < L::c_floats; c += 4) {
      Word4 four;
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) four.word[i] = bits_of(total[f % 2][f / 2].value[c + i]);
      *kept_at(lane, shared, f, c) = four;
    }
  }
  SLM_DEVICE void load_kept(Lane lane, TileInputs<Format>& shared, int f) {
    SLM_UNROLL
    for (int c = 0; c < L::c_floats; c += 4) {
      const Word4 four = *kept_at(lane, shared, f, c);
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) total[f % 2][f / 2].value[c + i] = float_of(four.word[i]);
    }
  }

  /// Asynchronous copies of a step's inputs by the threads of a block.
  struct Copies {
    static constexpr int pieces = Slice::words / 4, count = (pieces + block_threads - 1) / block_threads;
    typename Lane::Copy copy[count];
    int buffer = 0;

    SLM_DEVICE void begin(Lane lane, const Memory<const std::uint32_t>& staged, int step, TileInputs<Format>& shared) {
      // Each thread computes its first offset once for all pieces.
      const std::int64_t first = Lane::keep(std::int64_t{step} * Slice::words + lane.thread() * 4);
      std::uint32_t* const to = shared.step[buffer] + lane.thread() * 4;
      SLM_UNROLL
      for (int i = 0; i < count; ++i) {
        constexpr int apart = block_threads * 4;
        if (lane.thread() >= pieces - i * block_threads) continue;
        copy[i].begin(to + i * apart, staged.vector<const Word4>(first + i * apart)->word);
      }
    }

    /// Waits for the copies, then starts those of step `behind`.
    SLM_DEVICE const std::uint32_t* turn(Lane lane, const Memory<const std::uint32_t>& staged, int behind, int end,
                                         TileInputs<Format>& shared, Where where) {
      const std::uint32_t* const now = shared.step[buffer];
      SLM_UNROLL
      for (int i = 0; i < count; ++i) {
        const int piece = lane.thread() + i * block_threads;
        if (piece < pieces) copy[i].end(shared.step[buffer] + piece * 4);
      }
      lane.wait_for_copies();
      lane.barrier(where);
      buffer = Lane::keep(buffer) ^ 1;
      if (behind < end) begin(lane, staged, behind, shared);
      return now;
    }
  };

  /// Multiplies the prefetched steps from `step` on, and prefetches the following ones; at the end it reloads the last
  /// ones.
  template <int Halves>
  SLM_DEVICE void group(Lane lane, int step, const Memory<const std::uint32_t>& staged, Copies& copies, int lane_place,
                        int row, TileInputs<Format>& shared, int block, Where where) {
    constexpr int steps = Halves < 2 ? 1 : Halves / 2;
    const int behind = Lane::keep(step + steps < tiles.steps ? step + steps : step);
    FragmentC<L> part[2][codes ? columns : 1];
    SLM_UNROLL
    for (int s = 0; s < steps; ++s) {
      const std::uint32_t* const inputs = copies.turn(lane, staged, step + s + 1, tiles.steps, shared, where);
      if constexpr (!ahead) next.template load<Lane>(tiles, place, step, s);
      SLM_UNROLL
      for (int from = 0; from < 2; from += halves) {
        FragmentA<L> a[halves][2][C::w_terms];
        SLM_UNROLL
        for (int half = 0; half < halves; ++half) {
          SLM_UNROLL
          for (int m = 0; m < 2; ++m) next.template fragments<Lane>(tiles, m, from + half, a[half][m]);
        }
        if (ahead && from + halves == 2) {
          next.template load<Lane>(tiles, place, s + 1 < steps ? step : behind, (s + 1) % steps);
        }
        SLM_UNROLL
        for (int n = 0; n < columns; ++n) {
          FragmentB<L> b[C::x_terms][2];
          SLM_UNROLL
          for (int t = 0; t < C::x_terms; ++t) {
            Slice::template fragments<L>(inputs + t * Slice::term_words + n * (L::columns * Slice::row_words),
                                         lane_place, b[t]);
          }
          SLM_UNROLL
          for (int half = from; half < from + halves; ++half) {
            SLM_UNROLL
            for (int m = 0; m < 2; ++m) {
              if constexpr (codes) {
                FragmentC<L>& to = part[m][n];
                to = lane.template mma<typename C::Element>(a[half - from][m][0], b[0][half],
                                                            (2 * s + half) % Halves == 0 ? FragmentC<L>{} : to, where);
              } else {
                add(lane, a[half - from][m], b, half, sum[m][n], where);
              }
            }
            if constexpr (codes) {
              if ((2 * s + half + 1) % Halves == 0) {
                scale(lane, part, n, inputs + Slice::sum_of(row + n * L::columns, half), shared.scales[lane.wave()],
                      block + (2 * s + half) / Halves);
              }
            }
          }
        }
      }
    }
  }

  /// Floating-point weights only.
  static SLM_DEVICE void add(Lane lane, const FragmentA<L> (&a)[C::w_terms], const FragmentB<L> (&b)[C::x_terms][2],
                             int half, FragmentC<L>& to, Where where) {
    if constexpr (C::w_terms == 1) {
      to = lane.template mma<typename C::Element>(a[0], b[0][half], to, where);
    } else {
      // Tensor cores truncate addends below the largest, including an old sum. So they start at zero, smaller terms
      // first; terms below the last bit of fp32 are omitted.
      FragmentC<L> part{};
      SLM_UNROLL
      for (int order = C::w_terms - 1; order >= 0; --order) {
        SLM_UNROLL
        for (int t = 0; t <= order; ++t) {
          part = lane.template mma<typename C::Element>(a[t], b[order - t][half], part, where);
        }
      }
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) to.value[c] += part.value[c];
    }
  }

  /// Adds the scaled sums of a block to the outputs' sums. inputs: sums of the rows' inputs, from fragment n on.
  SLM_DEVICE void scale(Lane lane, const FragmentC<L> (&part)[2][columns], int n, const std::uint32_t* inputs,
                        const WaveScales& scales, int block) {
    // Two adjacent places are two rows of a fragment if a lane has two, else one row of both fragments.
    constexpr bool two_rows = L::row_slots == 2;
    // If registers are scarce, scales are reloaded for other rows.
    const int i = L::k_groups == 1 ? Lane::forget(lane.lane_index()) : lane.lane_index();
    SLM_UNROLL
    for (int g = 0; g < (two_rows ? 2 : L::c_floats); ++g) {
      const Word4 two = scales.two(block, place_of<Format, L>(two_rows ? g : 0, L::c_row(i, two_rows ? 0 : g)));
      SLM_UNROLL
      for (int k = 0; k < (two_rows ? 4 : 2); ++k) {
        const int m = two_rows ? g : k, c = two_rows ? k : g, of = two_rows ? k / 2 : k;
        float& to = sum[m][n].value[c];
        const float offset = fmaf(float_of(two.word[2 * of + 1]), float_of(inputs[L::c_column(i, c)]), to);
        to = fmaf(float_of(two.word[2 * of]), part[m][n].value[c], offset);
      }
    }
  }
};

}}}
