// norm(x) . weight^T and what follows it, for few rows and for many, with the same bits.
//
// Weights are operand A of the matrix unit and rows its columns, so one row costs no more reading than eight and a
// row's sum never sees another row. The depth is cut into as many slices as a block has waves. In ProductVectors each
// wave sums one slice and the slices' sums are added in order; in ProductTiles each wave has outputs of its own, sums
// slice after slice and adds those sums in the same order.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/low_rank.hpp"
#include "slm/backend/gpu/kernels/panel_product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/staged_vectors.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm::inline v0_1::gpu {

/// Steps of one of as many slices as a block has waves; a slice ends where a scale does.
template <class Lane>
SLM_DEVICE int steps_of_slice(const Tiles& tiles) {
  constexpr int count_shift = std::countr_zero(static_cast<unsigned>(block_threads / Lane::width));
  const int shift = tiles.block_shift > 5 ? tiles.block_shift - 5 : 0;  // of the steps of a block
  return (((tiles.steps - 1) >> (shift + count_shift)) + 1) << shift;
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

/// Chunks of weights of a wave that are under way at once. A lane of AMD's units holds more of a step.
template <class Format, class L>
inline constexpr int vector_chunks = in_codes<Format>&& L::row_slots == 2 ? 2 : 1;

/// For up to vector_rows rows of a block.
template <class Format, class Epilogue>
struct ProductVectors {
  using Args = ProductArgs<Format, Epilogue>;
  template <class L>
  struct Wave {
    static constexpr bool sums = false;
    StagedVectors<Format, L> x;
    std::conditional_t<in_codes<Format>, WaveScales, Nothing> scales;
  };
  template <class L>
  struct SharedFor {
    static constexpr int waves = block_threads / L::lanes;
    union {
      Wave<L> wave[waves];
      alignas(16) float slice[waves][vector_rows][32 + 4];  // rows of a lane's neighbours on other banks
    };
    BlockSums sums;
  };
  using Shared = SharedFor<MmaSync16x8x16>;
  static constexpr int max_block = block_threads, least_blocks = 2;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int) {
    return {.x = args.panels.count(), .y = (args.x.count + vector_rows - 1) / vector_rows, .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, SharedFor<typename Lane::Matrix>& shared) const {
    using L = typename Lane::Matrix;
    constexpr int chunk_steps = Compute<Format>::chunk_steps, chunks = vector_chunks<Format, L>;
    const int i = lane.lane_index(), first_row = lane.block_y() * vector_rows;
    const int left = args.x.count - first_row, count = left < vector_rows ? left : vector_rows;
    const Panel panel = args.panels(lane.block_x());
    const int slice = steps_of_slice<Lane>(args.weight);
    const int first = Lane::keep(lane.wave() * slice);
    const int last = Lane::keep(first + slice < args.weight.steps ? first + slice : args.weight.steps);

    PanelProduct<Format, Lane, 1, chunks> product(lane, args.weight, panel);
    SLM_UNROLL
    for (int c = 0; c < chunks; ++c) product.load(c, first + c * chunk_steps, last);
    product.load_scales(lane, first, last);
    lane.wait_for_previous_kernel();
    if (args.norm.kind != NormKind::none) row_statistics(lane, args.x, args.norm, first_row, count, shared.sums);

    // Columns without a row repeat the last one; their results are left.
    using Staged = StagedVectors<Format, L>;
    const int at_once = Staged::steps_at_once(count), of_lane = L::b_column(i) % vector_rows;
    const int staged = Lane::keep(Staged::row_at(of_lane < count ? of_lane : count - 1, at_once));
    const auto column = [staged](int, int) { return staged; };
    Wave<L>& own = shared.wave[lane.wave()];
    const WaveScales* scales = nullptr;
    int ahead = at_once;
    if constexpr (in_codes<Format>) {
      scales = &own.scales;
      ahead = Lane::keep(ScalesAhead::steps(args.weight));
    }
    for (int at = first; at < last; at += chunks * chunk_steps) {
      SLM_UNROLL
      for (int c = 0; c < chunks; ++c) {
        const int begin = at + c * chunk_steps, steps = last - begin < chunk_steps ? last - begin : chunk_steps;
        if (c > 0 && begin >= last) continue;
        // All that is under way may be staged at once.
        const int within = !Staged::halved && chunks * chunk_steps == Staged::most_steps
                               ? c * chunk_steps
                               : (begin - first) & (at_once - 1);
        const int of_blocks = (begin - first) & (ahead - 1);
        if (within == 0 || of_blocks == 0) {
          lane.wave_barrier();
          if (within == 0) own.x.put(lane, begin, last, count, args.x, first_row, shared.sums.row, args.norm);
          if constexpr (in_codes<Format>) {
            if (of_blocks == 0) {
              product.next_scales.template store<Format>(lane, args.weight, own.scales);
              product.load_scales(lane, begin + ahead, last);
            }
          }
          lane.wave_barrier();
        }
        const int first_block = of_blocks * step_depth >> args.weight.block_shift;
        product.chunk_of(lane, c, within, begin, steps, begin + chunks * chunk_steps, last, own, scales, first_block,
                         column);
      }
    }

    lane.barrier();                        // the slices' sums lie where the inputs lay
    constexpr int columns = L::row_slots;  // of a lane
    SLM_UNROLL
    for (int n = 0; n < columns; ++n) {
      const int row = L::c_column(i, n);
      if (row >= count) continue;
      SLM_UNROLL
      for (int m = 0; m < 2; ++m) {
        SLM_UNROLL
        for (int c = n; c < L::c_floats; c += columns) {
          shared.slice[lane.wave()][row][place_of<Format, L>(m, L::c_row(i, c))] = product.sum[m][0].value[c];
        }
      }
    }
    lane.barrier();
    const int output = static_cast<int>(static_cast<unsigned>(lane.thread()) % tile_height);
    const int row = static_cast<int>(static_cast<unsigned>(lane.thread()) / tile_height);
    if (row < count) {
      const Panel outputs = args.panels(Lane::keep(lane.block_x()));  // found anew: no registers held it meanwhile
      float a = 0, b = 0;
      SLM_UNROLL
      for (int w = 0; w < block_threads / Lane::width; ++w) {
        a += shared.slice[w][row][output];
        b += shared.slice[w][row][tile_height + output];
      }
      if (args.low_rank) args.low_rank.expand(outputs, output, first_row + row, a, b);
      Epilogue::apply(args.epilogue, outputs, output, first_row + row, a, b);
    }
  }
};

/// For many rows.
template <class Format, class Epilogue>
struct ProductTiles {
  using Args = ProductArgs<Format, Epilogue>;
  static constexpr int tile_rows = Compute<Format>::tile_rows;
  struct Inputs {
    ChunkInputs<Format, tile_rows, true> in;
    std::conditional_t<in_codes<Format>, WaveScales[most_waves], Nothing> scales;
  };
  struct Shared {
    RowStatistics row[tile_rows];
    union {
      Inputs inputs;
      float out[most_waves][32][17];
    };
  };
  static constexpr int max_block = block_threads, least_blocks = 1;
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

    PanelProduct<Format, Lane, columns> product(lane, args.weight, panel);
    FragmentC<L> total[2][columns];
    product.clear(total);
    const int slice = Lane::keep(steps_of_slice<Lane>(args.weight)), end = args.weight.steps;
    product.load(0, 0, slice < end ? slice : end);
    product.load_scales(lane, 0, slice < end ? slice : end);
    lane.wait_for_previous_kernel();
    for (int r = t; r < tile_rows; r += lane.threads()) {
      shared.row[r] = args.statistics && r < count ? args.statistics[first_row + r] : RowStatistics{0.0f, 1.0f};
    }

    const auto column = [](int n, int c) { return n * L::columns + c; };
    auto& in = shared.inputs.in;
    const WaveScales* scales = nullptr;
    int first_block = 0;
    for (int s = 0; s < lane.waves(); ++s) {
      const int first = s * slice, last = first + slice < end ? first + slice : end;
      // What lies behind a chunk may belong to the next slice.
      const auto end_of = [=](int at) { return at < last ? last : last + slice < end ? last + slice : end; };
      product.clear(product.sum);
      for (int at = first; at < last; at += chunk_steps) {
        const int steps = last - at < chunk_steps ? last - at : chunk_steps;
        lane.barrier();
        in.x.template put<Lane>(t, block_threads, steps * step_lines, tile_rows, count, args.x, first_row,
                                at * step_depth, shared.row, args.norm);
        lane.barrier();
        if constexpr (in_codes<Format>) {
          const int ahead = ScalesAhead::steps(args.weight), within = (at - first) & (ahead - 1);
          WaveScales& own = shared.inputs.scales[lane.wave()];
          if (within == 0) {
            const int next = at + ahead < last ? at + ahead : last;
            product.next_scales.template store<Format>(lane, args.weight, own);
            product.load_scales(lane, next, end_of(next));
          }
          scales = &own;
          first_block = within * step_depth >> args.weight.block_shift;
          for (int n = lane.wave(); n < columns; n += lane.waves()) {
            in.sum_blocks(lane, n, steps, args.weight.block_shift);
          }
          lane.barrier();
        }
        product.chunk(lane, at, steps, end_of(at + steps), in, scales, first_block, column);
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
