// Products of the rows that chose an expert with its weights, for all experts of a layer in one launch.
//
// RouteRows has grouped the rows by expert. A block takes panels and the rows of one group; it finds the expert in
// device memory. The sums are those of ProductVectors and ProductTiles, so they do not depend on the form and on the
// other rows of the group.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Some rows of one expert: `count` places from order[first] on. A place is a row and one of its experts: row * experts
/// of a row + the number of the choice.
struct ExpertRows {
  int expert;  // -1: unused
  int first, count;
};

struct ExpertProductArgs {
  Tiles weight;  // of a layout, without words
  int layout;
  Memory<const ExpertWeight> experts;
  Memory<const ExpertRows> groups;
  Memory<const int> order;  // places, by expert
  int group_rows;           // rows of a group, at most
  Memory<const float> x;    // the row of place p is x + p / places_per_row * x_stride
  int x_stride, places_per_row;
  Memory<std::uint32_t> staged;  // rows of groups in StagedSlice's layout, for ProductExpertTiles
  Memory<float> out;             // [places, out_stride]
  int out_stride;

  /// Groups of `parts` parts each as blocks of two dimensions of a grid.
  static constexpr int most_blocks = 1 << 15;
  Grid grid(int x_blocks, int parts) const {
    const int blocks = static_cast<int>(groups.size) * parts;
    return {.x = x_blocks,
            .y = blocks < most_blocks ? blocks : most_blocks,
            .z = (blocks + most_blocks - 1) / most_blocks,
            .threads = block_threads};
  }
  template <class Lane>
  static SLM_DEVICE int block_of(Lane lane) {
    return lane.block_z() * most_blocks + lane.block_y();
  }

  /// A group of this launch; another one has no rows.
  SLM_DEVICE ExpertRows group(int index) const {
    if (index >= static_cast<int>(groups.size)) return {-1, 0, 0};
    const ExpertRows found = groups[index];
    if (found.expert < 0 || experts[found.expert].layout != layout) return {-1, 0, 0};
    return found;
  }
  SLM_DEVICE Tiles weight_of(int expert) const {
    Tiles own = weight;
    own.words = experts[expert].words;
    return own;
  }
  SLM_DEVICE Panels panels() const { return {.tiles = weight.tiles()}; }

  /// Stores the sums of an output of a panel's tiles for a place.
  SLM_DEVICE void put(int expert, const Panel& panel, int output, int place, float a, float b) const {
    const Memory<const float> bias = experts[expert].bias;
    const std::int64_t to = std::int64_t{place} * out_stride;
    const int first = panel.a * tile_height + output, second = panel.b * tile_height + output;
    if (first < weight.out) out[to + first] = bias ? a + bias[first] : a;
    if (panel.has_b && second < weight.out) out[to + second] = bias ? b + bias[second] : b;
  }
};

/// out = x . weight^T + bias, for groups of up to vector_rows rows.
template <class Format>
struct ProductExpertVectors {
  using Args = ExpertProductArgs;
  template <class L>
  struct SharedFor {
    VectorsShared<Format, L> product;
    int places[vector_rows], rows[vector_rows];
  };
  using Shared = SharedFor<MmaSync16x8x16>;
  static constexpr int max_block = block_threads, least_blocks = 2;
  static Grid grid(const Args& args, int) { return args.grid(args.panels().count(), 1); }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, SharedFor<typename Lane::Matrix>& shared) const {
    const ExpertRows group = args.group(args.block_of(lane));
    if (group.count == 0) return;
    if (const int i = lane.thread(); i < group.count) {
      const int place = args.order[group.first + i];
      shared.places[i] = place;
      shared.rows[i] = place / args.places_per_row;
    }
    lane.barrier();
    const ListedRows x{args.x, args.weight.in, args.x_stride, shared.rows};
    multiply_vectors<Format>(
        lane, args.weight_of(group.expert), args.panels()(lane.block_x()), x, NormArgs{}, 0, group.count,
        shared.product, [] {},
        [&](int output, int row, float a, float b) {
          const Panel outputs = args.panels()(Lane::keep(lane.block_x()));
          const int expert = args.groups[args.block_of(lane)].expert;  // read again: registers are short
          args.put(expert, outputs, output, shared.places[row], a, b);
        });
  }
};

/// Stages the rows of groups for ProductExpertTiles. A block takes vector_rows rows of a group.
template <class Format>
struct StageExperts {
  using Args = ExpertProductArgs;
  using Slice = StagedSlice<Format>;
  struct Shared {
    RowStatistics unused[vector_rows];
    int rows[vector_rows];
  };
  static constexpr int max_block = block_threads, least_blocks = 1;
  static constexpr int most_steps = RowStager<Format>::most_steps;
  static Grid grid(const Args& args, int) {
    return args.grid((args.weight.steps + most_steps - 1) / most_steps, args.group_rows / vector_rows);
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int parts = args.group_rows / vector_rows, block = args.block_of(lane), index = block / parts;
    const int offset = block % parts * vector_rows, row = offset % Slice::rows;
    const ExpertRows group = args.group(index);
    if (offset - row >= group.count) return;
    const int left = group.count - offset, count = left < 0 ? 0 : left < vector_rows ? left : vector_rows;
    const int t = lane.thread();
    if (t < vector_rows) shared.unused[t] = {0.0f, 1.0f};
    if (t < count) shared.rows[t] = args.order[group.first + offset + t] / args.places_per_row;
    lane.barrier();
    const int steps = args.weight.steps, first = lane.block_x() * most_steps, behind = first + most_steps;
    const std::int64_t words = std::int64_t{steps} * Slice::words,
                       tile = (index * args.group_rows + offset) / Slice::rows;
    const RowStager<Format> stager{args.staged.part(tile * words, words), row, args.weight.block_shift};
    stager.write(lane, ListedRows{args.x, args.weight.in, args.x_stride, shared.rows}, NormArgs{}, shared.unused, 0,
                 count, first, behind < steps ? behind : steps);
  }
};

/// out = x . weight^T + bias, for groups of many rows, staged by StageExperts.
template <class Format>
struct ProductExpertTiles {
  using Args = ExpertProductArgs;
  using Slice = StagedSlice<Format>;
  struct Shared {
    TilesShared<Format> product;
    int places[Slice::rows];
  };
  static constexpr int max_block = block_threads, least_blocks = 1;
  static Grid grid(const Args& args, int wave_width) {
    const int waves = block_threads / wave_width;
    return args.grid((args.panels().count() + waves - 1) / waves, args.group_rows / Slice::rows);
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int parts = args.group_rows / Slice::rows, tile = args.block_of(lane), offset = tile % parts * Slice::rows;
    const ExpertRows group = args.group(tile / parts);
    const int left = group.count - offset;
    if (left <= 0) return;
    if (const int i = lane.thread(); i < left && i < Slice::rows)
      shared.places[i] = args.order[group.first + offset + i];
    lane.barrier();
    multiply_tiles<Format>(lane, args.weight_of(group.expert), args.panels(), shared.product,
                           Tile{args, shared.places, group.expert, left < Slice::rows ? left : Slice::rows});
  }

 private:
  struct Tile {
    const Args& args;
    const int* places;
    int expert, count;

    template <class Lane>
    SLM_DEVICE int left(Lane) const {
      return count;
    }
    template <class Lane>
    SLM_DEVICE void wait(Lane) const {}
    template <class Lane>
    SLM_DEVICE Memory<const std::uint32_t> staged(Lane lane) const {
      const std::int64_t words = std::int64_t{args.weight.steps} * Slice::words;
      return args.staged.part(args.block_of(lane) * words, words);
    }
    template <class Lane>
    SLM_DEVICE void use(Lane, const Panel& panel, int output, int row, float a, float b) const {
      args.put(expert, panel, output, places[row], a, b);
    }
  };
};

}}}
