// norm(x) . weight^T and what follows it, for few rows and for many, with the same bits.
//
// Weights are operand A of the matrix unit and rows its columns, so one row costs no more reading than eight and a
// row's sum never sees another row. The depth is cut into as many slices as a block has waves. In ProductVectors each
// wave sums one slice and the slices' sums are added in order; in ProductTiles each wave has outputs of its own, sums
// slice after slice and adds those sums in the same order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/low_rank.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm::inline v0_1::gpu {

struct NoScales {};
/// Of the wave's panel for a chunk.
template <class Format>
using ScalesOf = std::conditional_t<in_codes<Format>, WaveScales, NoScales>;

/// What a wave holds of its panel: the weights of the next chunk on their way, and the sums of `Columns` fragments of
/// rows.
template <class Format, class Lane, int Columns>
struct PanelProduct {
  using L = typename Lane::Matrix;
  using C = Compute<Format>;
  static constexpr bool codes = in_codes<Format>;

  /// Whether the matrix unit begins at zero again and again, and its sums are added up outside of it: by block and
  /// scale for codes, and for the terms of a float because tensor cores cut what they add below the largest, an old sum
  /// too.
  static constexpr bool apart = codes || C::w_terms > 1;

  /// Whether weights are asked for a chunk ahead. A lane of a unit with one group along the depth holds four times as
  /// much of a step: there are no registers for two chunks beside the sums of many rows, or beside three terms.
  static constexpr bool ahead = L::k_groups != 1 || codes || (Columns == 1 && C::w_terms == 1);

  StepWeights<Format, L> next[ahead ? C::chunk_steps : 1];
  std::conditional_t<codes, ChunkScales, NoScales> next_scales;
  FragmentC<L> sum[2][Columns];

  SLM_DEVICE static void clear(FragmentC<L> (&sums)[2][Columns]) {
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int n = 0; n < Columns; ++n) {
        SLM_UNROLL
        for (int i = 0; i < L::c_floats; ++i) sums[m][n].value[i] = 0;
      }
    }
  }

  /// Asks for the weights of steps at .. last, at most a chunk.
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int at, int last) {
    if constexpr (ahead) {
      SLM_UNROLL
      for (int s = 0; s < C::chunk_steps; ++s) {
        if (at + s < last) next[s].load(lane, tiles, panel, at + s);
      }
    }
    if constexpr (codes) {
      const int steps = last - at < C::chunk_steps ? last - at : C::chunk_steps;
      next_scales.load(lane, tiles, panel, at, steps);
    }
  }

  /// Multiplies what was loaded for `steps` steps from `at` on by x, and asks for the weights behind them. `column`
  /// gives the staged row of a fragment's column.
  template <class X, class Column>
  SLM_DEVICE void chunk(Lane lane, const Tiles& tiles, const Panel& panel, int at, int steps, int last, const X& x,
                        const ScalesOf<Format>& scales, Column column, Where where = Where::here()) {
    const int i = lane.lane_index();
    StepWeights<Format, L> now[ahead ? C::chunk_steps : 1];
    if constexpr (ahead) {
      SLM_UNROLL
      for (int s = 0; s < C::chunk_steps; ++s) now[s] = next[s];
    }
    if (at + steps < last) load(lane, tiles, panel, at + steps, last);

    FragmentC<L> part[2][apart ? Columns : 1];
    if constexpr (apart) clear(part);
    SLM_UNROLL
    for (int s = 0; s < C::chunk_steps; ++s) {
      if (s >= steps) continue;
      if constexpr (!ahead) now[0].load(lane, tiles, panel, at + s);
      SLM_UNROLL
      for (int half = 0; half < 2; ++half) {
        FragmentB<L> b[Columns][C::x_terms];
        SLM_UNROLL
        for (int n = 0; n < Columns; ++n) {
          SLM_UNROLL
          for (int t = 0; t < C::x_terms; ++t) {
            b[n][t] = x.template fragment<L>(t, s, half, i, column(n, L::b_column(i)));
          }
        }
        SLM_UNROLL
        for (int m = 0; m < 2; ++m) {
          FragmentA<L> a[C::w_terms];
          now[ahead ? s : 0].template fragments<Lane>(tiles, m, half, a);
          SLM_UNROLL
          for (int n = 0; n < Columns; ++n) {
            FragmentC<L>& to = [&]() -> FragmentC<L>& {
              if constexpr (apart) {
                return part[m][n];
              } else {
                return sum[m][n];
              }
            }();
            // Smaller terms first; those below the last bit of fp32 are left out.
            SLM_UNROLL
            for (int order = C::w_terms - 1; order >= 0; --order) {
              SLM_UNROLL
              for (int t = 0; t <= order; ++t) {
                to = lane.template mma<typename C::Element>(a[t], b[n][order - t], to, where);
              }
            }
            if constexpr (C::w_terms > 1) {
              SLM_UNROLL
              for (int c = 0; c < L::c_floats; ++c) {
                sum[m][n].value[c] += to.value[c];
                to.value[c] = 0;
              }
            }
          }
        }
        if constexpr (codes) {
          const int inputs = (2 * s + half + 1) * 16;  // of the chunk, so far
          if (inputs % C::least_block == 0 && (inputs & ((1 << tiles.block_shift) - 1)) == 0) {
            scale(i, part, (inputs >> tiles.block_shift) - 1, x, scales, column);
          }
        }
      }
    }
  }

 private:
  /// The sums of a block become parts of the outputs' sums, and begin anew.
  template <class X, class Column>
  SLM_DEVICE void scale(int lane_index, FragmentC<L> (&part)[2][Columns], int block, const X& x,
                        const WaveScales& scales, Column column) {
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int n = 0; n < Columns; ++n) {
        SLM_UNROLL
        for (int c = 0; c < L::c_floats; ++c) {
          const int place = place_of<Format, L>(m, L::c_row(lane_index, c));
          const float inputs = x.block_sum[block][column(n, L::c_column(lane_index, c))];
          float& to = sum[m][n].value[c];
          to = fmaf(scales.scale[block][place], part[m][n].value[c], fmaf(scales.offset[block][place], inputs, to));
          part[m][n].value[c] = 0;
        }
      }
    }
  }
};

/// Steps of one of `count` slices; a slice ends where a scale does.
SLM_DEVICE int steps_of_slice(const Tiles& tiles, int count) {
  const int shift = tiles.block_shift > 5 ? tiles.block_shift - 5 : 0;  // of the steps of a block
  const int units = (tiles.steps + (1 << shift) - 1) >> shift;
  return ((units + count - 1) / count) << shift;
}

template <class Format, class Epilogue>
struct ProductArgs {
  Tiles weight;
  Panels panels;
  Rows x;
  NormArgs norm;
  Memory<const RowStatistics> statistics;  // [rows], for ProductTiles with a norm
  LowRankRows low_rank;
  typename Epilogue::Args epilogue;
};

/// For up to vector_rows rows of a block.
template <class Format, class Epilogue>
struct ProductVectors {
  using Args = ProductArgs<Format, Epilogue>;
  struct Wave {
    Staged<Format, vector_rows> x;
    ScalesOf<Format> scales;
  };
  struct Shared {
    BlockSums sums;
    union {
      Wave wave[most_waves];
      float slice[most_waves][32][vector_rows + 1];
    };
  };
  static constexpr int max_block = block_threads;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int) {
    return {.x = args.panels.count(), .y = (args.x.count + vector_rows - 1) / vector_rows, .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    using L = typename Lane::Matrix;
    constexpr int chunk_steps = Compute<Format>::chunk_steps;
    const int i = lane.lane_index(), first_row = lane.block_y() * vector_rows;
    const int left = args.x.count - first_row, count = left < vector_rows ? left : vector_rows;
    const Panel panel = args.panels(lane.block_x());
    const int slice = steps_of_slice(args.weight, lane.waves());
    const int first = lane.wave() * slice;
    const int last = first + slice < args.weight.steps ? first + slice : args.weight.steps;

    PanelProduct<Format, Lane, 1> product;
    product.clear(product.sum);
    product.load(lane, args.weight, panel, first, last);
    lane.wait_for_previous_kernel();
    row_statistics(lane, args.x, args.norm, first_row, count, shared.sums);

    // Columns without a row repeat the last one; their results are left.
    const auto column = [count](int, int c) { return c % vector_rows < count ? c % vector_rows : count - 1; };
    Wave& own = shared.wave[lane.wave()];
    for (int at = first; at < last; at += chunk_steps) {
      const int steps = last - at < chunk_steps ? last - at : chunk_steps, lines = steps * step_lines;
      for (int item = i; item < lines * count; item += Lane::width) {
        const int line = item % lines, row = item / lines;
        own.x.template put<Lane>(line, row, true, args.x, first_row + row, at * step_depth + line * line_depth,
                                 shared.sums.row[row], args.norm);
      }
      if constexpr (in_codes<Format>) {
        product.next_scales.template store<Format>(lane, args.weight, own.scales);
        lane.wave_barrier();
        const int blocks = steps * step_depth >> args.weight.block_shift;
        for (int item = i; item < blocks * count; item += Lane::width) {
          own.x.sum_block(item % blocks, 1 << args.weight.block_shift >> 3, item / blocks);
        }
      }
      lane.wave_barrier();
      product.chunk(lane, args.weight, panel, at, steps, last, own.x, own.scales, column);
      lane.wave_barrier();
    }

    lane.barrier();  // the slices' sums lie where the inputs lay
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int c = 0; c < L::c_floats; ++c) {
        const int row = L::c_column(i, c);
        if (row < count) {
          shared.slice[lane.wave()][place_of<Format, L>(m, L::c_row(i, c))][row] = product.sum[m][0].value[c];
        }
      }
    }
    lane.barrier();
    for (int item = lane.thread(); item < tile_height * count; item += lane.threads()) {
      const int output = item % tile_height, row = item / tile_height;
      float a = 0, b = 0;
      for (int w = 0; w < lane.waves(); ++w) {
        a += shared.slice[w][output][row];
        b += shared.slice[w][tile_height + output][row];
      }
      if (args.low_rank) args.low_rank.expand(panel, output, first_row + row, a, b);
      Epilogue::apply(args.epilogue, panel, output, first_row + row, a, b);
    }
  }
};

/// For many rows.
template <class Format, class Epilogue>
struct ProductTiles {
  using Args = ProductArgs<Format, Epilogue>;
  static constexpr int tile_rows = Compute<Format>::tile_rows;
  struct Inputs {
    Staged<Format, tile_rows> x;
    ScalesOf<Format> scales[most_waves];
  };
  struct Shared {
    RowStatistics row[tile_rows];
    union {
      Inputs inputs;
      float out[most_waves][32][17];
    };
  };
  static constexpr int max_block = block_threads;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int wave_width) {
    const int waves = block_threads / wave_width;
    return {.x = (args.panels.count() + waves - 1) / waves,
            .y = (args.x.count + tile_rows - 1) / tile_rows,
            .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    using L = typename Lane::Matrix;
    constexpr int columns = tile_rows / L::columns, chunk_steps = Compute<Format>::chunk_steps;
    const int t = lane.thread(), i = lane.lane_index(), first_row = lane.block_y() * tile_rows;
    const int left = args.x.count - first_row, count = left < tile_rows ? left : tile_rows;
    const int wanted = lane.block_x() * lane.waves() + lane.wave(), panels = args.panels.count();
    const Panel panel = args.panels(wanted < panels ? wanted : panels - 1);

    PanelProduct<Format, Lane, columns> product;
    FragmentC<L> total[2][columns];
    product.clear(total);
    const int slice = steps_of_slice(args.weight, lane.waves()), end = args.weight.steps;
    product.load(lane, args.weight, panel, 0, chunk_steps < slice ? chunk_steps : slice);
    lane.wait_for_previous_kernel();
    for (int r = t; r < tile_rows; r += lane.threads()) {
      shared.row[r] = args.statistics && r < count ? args.statistics[first_row + r] : RowStatistics{0.0f, 1.0f};
    }

    const auto column = [](int n, int c) { return n * L::columns + c; };
    Inputs& in = shared.inputs;
    for (int s = 0; s < lane.waves(); ++s) {
      const int first = s * slice, last = first + slice < end ? first + slice : end;
      product.clear(product.sum);
      for (int at = first; at < last; at += chunk_steps) {
        const int steps = last - at < chunk_steps ? last - at : chunk_steps, lines = steps * step_lines;
        lane.barrier();
        for (int item = t; item < lines * tile_rows; item += lane.threads()) {
          const int line = item % lines, row = item / lines;
          in.x.template put<Lane>(line, row, row < count, args.x, first_row + row, at * step_depth + line * line_depth,
                                  shared.row[row], args.norm);
        }
        if constexpr (in_codes<Format>) {
          product.next_scales.template store<Format>(lane, args.weight, in.scales[lane.wave()]);
          lane.barrier();
          const int blocks = steps * step_depth >> args.weight.block_shift;
          for (int item = t; item < blocks * tile_rows; item += lane.threads()) {
            in.x.sum_block(item % blocks, 1 << args.weight.block_shift >> 3, item / blocks);
          }
        }
        lane.barrier();
        // What lies behind this chunk may belong to the next slice.
        const int next_end = at + steps < last ? last : last + slice < end ? last + slice : end;
        product.chunk(lane, args.weight, panel, at, steps, next_end, in.x, in.scales[lane.wave()], column);
      }
      SLM_UNROLL
      for (int m = 0; m < 2; ++m) {
        SLM_UNROLL
        for (int n = 0; n < columns; ++n) {
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) total[m][n].value[c] += product.sum[m][n].value[c];
        }
      }
    }

    lane.barrier();
    constexpr int at_once = 16 / L::columns;  // fragments of 16 rows
    SLM_UNROLL
    for (int group = 0; group < columns / at_once; ++group) {
      SLM_UNROLL
      for (int n = 0; n < at_once; ++n) {
        SLM_UNROLL
        for (int m = 0; m < 2; ++m) {
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) {
            shared.out[lane.wave()][place_of<Format, L>(m, L::c_row(i, c))][n * L::columns + L::c_column(i, c)] =
                total[m][group * at_once + n].value[c];
          }
        }
      }
      lane.wave_barrier();
      for (int item = i; item < tile_height * 16; item += Lane::width) {
        const int output = item % tile_height, row = group * 16 + item / tile_height;
        if (row < count && wanted < panels) {
          float a = shared.out[lane.wave()][output][row % 16];
          float b = shared.out[lane.wave()][tile_height + output][row % 16];
          if (args.low_rank) args.low_rank.expand(panel, output, first_row + row, a, b);
          Epilogue::apply(args.epilogue, panel, output, first_row + row, a, b);
        }
      }
      lane.wave_barrier();
    }
  }
};

}  // namespace slm::gpu
