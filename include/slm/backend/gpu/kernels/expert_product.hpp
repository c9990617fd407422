// Products of the rows that chose an expert with its weights, for all experts of a layer in one launch.
//
// RouteRows has grouped the rows by expert. A block takes a panel and the rows of one group; it finds the expert in
// device memory. The sums are those of ProductVectors, so they do not depend on the other rows of the group.
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
  Memory<const float> x;    // the row of place p is x + p / places_per_row * x_stride
  int x_stride, places_per_row;
  Memory<float> out;  // [places, out_stride]
  int out_stride;
};

/// out = x . weight^T + bias, for groups of up to vector_rows rows.
template <class Format>
struct ProductExperts {
  using Args = ExpertProductArgs;
  template <class L>
  struct SharedFor {
    VectorsShared<Format, L> product;
    int places[vector_rows], rows[vector_rows];
  };
  using Shared = SharedFor<MmaSync16x8x16>;
  static constexpr int max_block = block_threads, least_blocks = 2;
  static constexpr int most_groups = 1 << 15;  // of one dimension of a grid
  static Panels panels(const Args& args) { return {.tiles = args.weight.tiles()}; }
  static Grid grid(const Args& args, int) {
    const int groups = static_cast<int>(args.groups.size);
    return {.x = panels(args).count(),
            .y = groups < most_groups ? groups : most_groups,
            .z = (groups + most_groups - 1) / most_groups,
            .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, SharedFor<typename Lane::Matrix>& shared) const {
    const int index = lane.block_z() * most_groups + lane.block_y();
    if (index >= static_cast<int>(args.groups.size)) return;
    const ExpertRows group = args.groups[index];
    if (group.expert < 0) return;
    const ExpertWeight own = args.experts[group.expert];
    if (own.layout != args.layout) return;
    if (const int i = lane.thread(); i < group.count) {
      const int place = args.order[group.first + i];
      shared.places[i] = place;
      shared.rows[i] = place / args.places_per_row;
    }
    lane.barrier();
    Tiles weight = args.weight;
    weight.words = own.words;
    const ListedRows x{args.x, weight.in, args.x_stride, shared.rows};
    const int first = 2 * lane.block_x();
    multiply_vectors<Format>(
        lane, weight, Panel{first, first + 1 < weight.tiles() ? first + 1 : first, first + 1 < weight.tiles()}, x,
        NormArgs{}, 0, group.count, shared.product, [] {},
        [&](int output, int row, float a, float b) {
          const int from = 2 * Lane::keep(lane.block_x()) * tile_height + output;
          const std::int64_t to = std::int64_t{shared.places[row]} * args.out_stride;
          put(args, own.bias, from, to, a);
          put(args, own.bias, from + tile_height, to, b);
        });
  }

 private:
  static SLM_DEVICE void put(const Args& args, const Memory<const float>& bias, int output, std::int64_t to, float v) {
    if (output < args.weight.out) args.out[to + output] = bias ? v + bias[output] : v;
  }
};

}}}
