// norm(x) . weight^T with an epilogue, for few rows and for many, with the same bits.
//
// Weights are operand A of the matrix unit and rows its columns: one row reads as much as eight, and a row's sum never
// involves another row. The depth is divided into as many slices as a block has waves. In ProductVectors each wave sums
// one slice, and the slices' sums are added in order. In ProductTiles each wave has its own outputs, sums slice after
// slice and adds those sums in the same order.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/low_rank.hpp"
#include "slm/backend/gpu/kernels/panel_product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/staged_vectors.hpp"
#include "slm/backend/gpu/kernels/tile_product.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Steps per slice, for as many slices as a block has waves; slices end at scale boundaries.
template <class Lane>
SLM_DEVICE int steps_of_slice(const Tiles& tiles) {
  constexpr int count_shift = std::countr_zero(static_cast<unsigned>(block_threads / Lane::width));
  const int shift = tiles.block_shift > 5 ? tiles.block_shift - 5 : 0;  // log2 of the steps per block
  return (((tiles.steps - 1) >> (shift + count_shift)) + 1) << shift;
}

template <class Format, class Epilogue>
struct ProductArgs {
  Tiles weight;
  Panels panels;
  Rows x;
  NormArgs norm;
  Memory<const std::uint32_t> staged;  // x in StagedSlice's layout, for ProductTiles
  LowRankRows low_rank;
  typename Epilogue::Args epilogue;
};

/// Chunks of weights that a wave prefetches. A lane of AMD's units holds more of a step.
template <class Format, class L>
inline constexpr int vector_chunks = in_codes<Format>&& L::row_slots == 2 ? 2 : 1;

/// Shared memory of a block for products of few rows.
template <class Format, class L>
struct VectorsShared {
  static constexpr int waves = block_threads / L::lanes;
  struct Wave {
    StagedVectors<Format, L> x;
    std::conditional_t<in_codes<Format>, WaveScales, Nothing> scales;
  };
  union {
    Wave wave[waves];
    alignas(16) float slice[waves][vector_rows][32 + 4];  // rows of adjacent lanes map to different banks
  };
  BlockSums sums;
};

/// Multiplies a panel by `count` rows of x from first_row on, at most vector_rows, by a whole block. wait() is called
/// when the first weights are in flight, before memory that kernels write is read. use(output, row, a, b) takes the
/// sums of an output of the panel's tiles, for each row below count.
template <class Format, class Lane, class X, class Wait, class Use>
SLM_DEVICE void multiply_vectors(Lane lane, const Tiles& weight, const Panel& panel, const X& x, const NormArgs& norm,
                                 int first_row, int count, VectorsShared<Format, typename Lane::Matrix>& shared,
                                 const Wait& wait, const Use& use) {
  using L = typename Lane::Matrix;
  constexpr int chunk_steps = Compute<Format>::chunk_steps, chunks = vector_chunks<Format, L>;
  const int i = lane.lane_index();
  const int slice = steps_of_slice<Lane>(weight);
  const int first = Lane::keep(lane.wave() * slice);
  const int last = Lane::keep(first + slice < weight.steps ? first + slice : weight.steps);

  PanelProduct<Format, Lane, chunks> product(lane, weight, panel);
  SLM_UNROLL
  for (int c = 0; c < chunks; ++c) product.load(c, first + c * chunk_steps, last);
  product.load_scales(lane, first, last);
  wait();
  if constexpr (std::is_same_v<X, Rows>) {
    if (norm.kind != NormKind::none) row_statistics(lane, x, norm, first_row, count, shared.sums);
  }

  // Columns without a row repeat the last one; their results are dropped.
  using Staged = StagedVectors<Format, L>;
  const int at_once = Staged::steps_at_once(count), of_lane = L::b_column(i) % vector_rows;
  const int staged = Lane::keep(Staged::row_at(of_lane < count ? of_lane : count - 1, at_once));
  auto& own = shared.wave[lane.wave()];
  const WaveScales* scales = nullptr;
  int ahead = at_once;
  if constexpr (in_codes<Format>) {
    scales = &own.scales;
    ahead = Lane::keep(ScalesAhead::steps(weight));
  }
  for (int at = first; at < last; at += chunks * chunk_steps) {
    SLM_UNROLL
    for (int c = 0; c < chunks; ++c) {
      const int begin = at + c * chunk_steps, steps = last - begin < chunk_steps ? last - begin : chunk_steps;
      if (c > 0 && begin >= last) continue;
      // All prefetched chunks may be staged at once.
      const int within = !Staged::halved && chunks * chunk_steps == Staged::most_steps
                             ? c * chunk_steps
                             : (begin - first) & (at_once - 1);
      const int of_blocks = (begin - first) & (ahead - 1);
      if (within == 0 || of_blocks == 0) {
        lane.wave_barrier();
        if (within == 0) own.x.put(lane, begin, last, count, x, first_row, shared.sums.row, norm);
        if constexpr (in_codes<Format>) {
          if (of_blocks == 0) {
            product.next_scales.template store<Format>(lane, weight, own.scales);
            product.load_scales(lane, begin + ahead, last);
          }
        }
        lane.wave_barrier();
      }
      const int first_block = of_blocks * slice_depth >> weight.block_shift;
      product.chunk(lane, c, within, begin, steps, begin + chunks * chunk_steps, last, own.x, scales, first_block,
                    staged);
    }
  }

  lane.barrier();                        // the slices' sums overwrite the inputs
  constexpr int columns = L::row_slots;  // columns per lane
  SLM_UNROLL
  for (int n = 0; n < columns; ++n) {
    const int row = L::c_column(i, n);
    if (row >= count) continue;
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      SLM_UNROLL
      for (int c = n; c < L::c_floats; c += columns) {
        shared.slice[lane.wave()][row][place_of<Format, L>(m, L::c_row(i, c))] = product.sum[m].value[c];
      }
    }
  }
  lane.barrier();
  const int output = static_cast<int>(static_cast<unsigned>(lane.thread()) % tile_height);
  const int row = static_cast<int>(static_cast<unsigned>(lane.thread()) / tile_height);
  if (row >= count) return;
  float a = 0, b = 0;
  SLM_UNROLL
  for (int w = 0; w < block_threads / Lane::width; ++w) {
    a += shared.slice[w][row][output];
    b += shared.slice[w][row][tile_height + output];
  }
  use(output, row, a, b);
}

/// For blocks of up to vector_rows rows.
template <class Format, class Epilogue>
struct ProductVectors {
  using Args = ProductArgs<Format, Epilogue>;
  template <class L>
  using SharedFor = VectorsShared<Format, L>;
  using Shared = SharedFor<MmaSync16x8x16>;
  static constexpr int max_block = block_threads, least_blocks = 2;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int) {
    return {.x = args.panels.count(), .y = (args.x.count + vector_rows - 1) / vector_rows, .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, SharedFor<typename Lane::Matrix>& shared) const {
    const int first_row = lane.block_y() * vector_rows, left = args.x.count - first_row;
    const int count = left < vector_rows ? left : vector_rows;
    multiply_vectors<Format>(
        lane, args.weight, args.panels(lane.block_x()), args.x, args.norm, first_row, count, shared,
        [&] { lane.wait_for_previous_kernel(); },
        [&](int output, int row, float a, float b) {
          // Recomputed, so that no registers hold it meanwhile.
          const Panel outputs = args.panels(Lane::keep(lane.block_x()));
          if (args.low_rank) args.low_rank.expand(outputs, output, first_row + row, a, b);
          Epilogue::apply(args.epilogue, outputs, output, first_row + row, a, b);
        });
  }
};

/// Shared memory of a block for products of many rows.
template <class Format>
struct TilesShared {
  union {
    TileInputs<Format> inputs;
    float out[most_waves][32][17];
  };
};

template <class Lane>
SLM_DEVICE int panel_of(Lane lane, int block) {
  return block * lane.waves() + lane.wave();
}

/// Passes the sums of the tile's rows from `row` on to tile.use().
template <class Format, class Lane, class Tile, int Columns>
SLM_DEVICE void finish_tile(Lane lane, const Panels& panels, TilesShared<Format>& shared, const Tile& tile,
                            const FragmentC<typename Lane::Matrix> (&total)[2][Columns], int row,
                            Where where = Where::here()) {
  using L = typename Lane::Matrix;
  constexpr int at_once = 16 / L::columns;  // fragments per 16 rows
  // Recomputed, which is cheaper than holding it in registers.
  const int i = Lane::forget(lane.lane_index()), output = i % tile_height,
            wanted = panel_of(lane, Lane::keep(lane.block_x()));
  const int left = tile.left(lane) - row;
  const bool there = wanted < panels.count();
  const Panel panel = panels(there ? wanted : 0);
  auto& out = shared.out[lane.wave()];
  for (int from = 0; from < Columns * L::columns && from < left; from += 16) {
    SLM_UNROLL
    for (int group = 0; group < Columns / at_once; ++group) {
      if (from != group * 16) continue;
      SLM_UNROLL
      for (int n = 0; n < at_once; ++n) {
        SLM_UNROLL
        for (int m = 0; m < 2; ++m) {
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) {
            out[place_of<Format, L>(m, L::c_row(i, c))][n * L::columns + L::c_column(i, c)] =
                total[m][group * at_once + n].value[c];
          }
        }
      }
    }
    lane.wave_barrier(where);
    const int count = !there ? 0 : left - from < 16 ? left - from : 16;
    for (int r = static_cast<int>(static_cast<unsigned>(i) / tile_height); r < count; r += Lane::width / tile_height) {
      tile.use(lane, panel, output, row + from + r, out[output][r], out[tile_height + output][r]);
    }
    lane.wave_barrier(where);
  }
}

/// Multiplies panels, one per wave, by the rows of a staged tile, by a whole block. Tile has, for a lane: left(), its
/// rows and those of later tiles; staged(), which is called after wait(); and use(lane, panel, output, row, a, b),
/// which takes the sums of an output of the panel's tiles.
template <class Format, class Lane, class Tile>
SLM_DEVICE void multiply_tiles(Lane lane, const Tiles& weight, const Panels& panels, TilesShared<Format>& shared,
                               const Tile& tile) {
  using Product = TileProduct<Format, Lane>;
  constexpr int tile_rows = StagedSlice<Format>::rows;
  const int left = tile.left(lane), count = left < tile_rows ? left : tile_rows;
  const int slice = Lane::keep(steps_of_slice<Lane>(weight));
  int row = 0;
  do {
    const int wanted = panel_of(lane, lane.block_x()), last = panels.count() - 1;
    Product product(lane, weight, panels(wanted < last ? wanted : last));
    product.begin(lane, slice);
    if (row == 0) tile.wait(lane);
    const Memory<const std::uint32_t> staged = tile.staged(lane);
    constexpr int fewest = std::is_same_v<Format, Int8> ? 1 : 2;
    const int halves = Product::halves_at_once(weight, slice);
    if (halves == fewest) {
      product.template multiply<fewest>(lane, staged, row, slice, shared.inputs);
    } else if (halves == 2 * fewest) {
      product.template multiply<2 * fewest>(lane, staged, row, slice, shared.inputs);
    } else if constexpr (in_codes<Format>) {
      product.template multiply<4 * fewest>(lane, staged, row, slice, shared.inputs);
    }
    lane.barrier();  // the sums overwrite the inputs
    finish_tile<Format>(lane, panels, shared, tile, product.total, row);
    if (Product::rows < tile_rows) lane.barrier();  // inputs reuse this memory
    row += Product::rows;
  } while (Product::rows < tile_rows && row < count);
}

/// For many rows, staged by StageRows.
template <class Format, class Epilogue>
struct ProductTiles {
  using Args = ProductArgs<Format, Epilogue>;
  using Slice = StagedSlice<Format>;
  using Shared = TilesShared<Format>;
  static constexpr int max_block = block_threads, least_blocks = 1;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int wave_width) {
    const int waves = block_threads / wave_width;
    return {.x = (args.panels.count() + waves - 1) / waves,
            .y = (args.x.count + Slice::rows - 1) / Slice::rows,
            .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    multiply_tiles<Format>(lane, args.weight, args.panels, shared, Tile{args});
  }

 private:
  struct Tile {
    const Args& args;

    template <class Lane>
    SLM_DEVICE int left(Lane lane) const {
      return args.x.count - Lane::keep(lane.block_y()) * Slice::rows;
    }
    template <class Lane>
    SLM_DEVICE void wait(Lane lane) const {
      lane.wait_for_previous_kernel();
    }
    template <class Lane>
    SLM_DEVICE Memory<const std::uint32_t> staged(Lane lane) const {
      const std::int64_t words = std::int64_t{args.weight.steps} * Slice::words;
      return args.staged.part(lane.block_y() * words, words);
    }
    template <class Lane>
    SLM_DEVICE void use(Lane lane, const Panel& panel, int output, int row, float a, float b) const {
      row += Lane::keep(lane.block_y()) * Slice::rows;
      if (args.low_rank) args.low_rank.expand(panel, output, row, a, b);
      Epilogue::apply(args.epilogue, panel, output, row, a, b);
    }
  };
};

}}}
