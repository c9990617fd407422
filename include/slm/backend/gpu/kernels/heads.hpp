// Products of the heads of rows with a matrix of each head. See AttendsLatents.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/product.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Separates the heads of rows: the last `in` numbers of a head become a row of its inputs, and the `kept` numbers
/// before them go to the beginning of the head of out.
struct SplitHeads {
  struct Args {
    Memory<const float> x;  // [rows, heads * width], rows x_stride elements apart
    Memory<float> inputs;   // [heads, rows, in]
    Memory<float> out;      // [rows, heads * out_width], rows out_stride elements apart
    int rows, heads, width, in, kept, out_width;
    int x_stride, out_stride;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .y = args.heads, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x(), head = lane.block_y();
    const std::int64_t from = row * args.x_stride + head * args.width + args.width - args.in - args.kept;
    const std::int64_t kept = row * args.out_stride + head * args.out_width;
    const std::int64_t inputs = (head * args.rows + row) * args.in - args.kept;
    for (int k = lane.thread(); k < args.kept + args.in; k += lane.threads()) {
      const float v = args.x[from + k];
      if (k < args.kept) {
        args.out[kept + k] = v;
      } else {
        args.inputs[inputs + k] = v;
      }
    }
  }
};

/// The last `outputs` numbers of a head of out: inputs . the head's rows of weight^T. A head has any number of rows of
/// the weight, so adjacent heads may share a tile, which both multiply.
template <class Format>
struct ProductHeads {
  struct Args {
    Tiles weight;                // [heads * outputs, in]
    Memory<const float> inputs;  // [heads, rows, in]
    Memory<float> out;           // [rows, heads * out_width], rows out_stride elements apart
    int rows, heads, outputs, out_width, out_stride;

    SLM_DEVICE Panels panels(int head) const {
      const int end = (head + 1) * outputs;
      return {.tail = head * outputs / tile_height, .tiles = (end + tile_height - 1) / tile_height};
    }
    /// A block beyond a head's panels repeats the last one, and its results are dropped.
    SLM_DEVICE Panel panel(int head, int block) const {
      const Panels own = panels(head);
      return own(block < own.count() ? block : own.count() - 1);
    }
    int most_panels() const {
      const int whole = outputs / tile_height;
      return Panels{.tiles = outputs % tile_height == 0 ? whole : whole + 2}.count();
    }
    SLM_DEVICE void put(int tile, int output, int head, int row, float v) const {
      const int o = tile * tile_height + output - head * outputs;
      if (o < 0 || o >= outputs) return;
      out[std::int64_t{row} * out_stride + std::int64_t{head + 1} * out_width - outputs + o] = v;
    }
  };
  template <class L>
  using SharedFor = VectorsShared<Format, L>;
  using Shared = SharedFor<MmaSync16x8x16>;
  static constexpr int max_block = block_threads, least_blocks = 2;
  static constexpr bool waits = true;
  static Grid grid(const Args& args, int) {
    return {.x = args.most_panels(),
            .y = args.heads,
            .z = (args.rows + vector_rows - 1) / vector_rows,
            .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, SharedFor<typename Lane::Matrix>& shared) const {
    const int head = lane.block_y(), first_row = lane.block_z() * vector_rows, left = args.rows - first_row;
    const std::int64_t size = std::int64_t{args.rows} * args.weight.in;
    const Rows x{{args.inputs.data + head * size, size}, args.weight.in, args.rows};
    multiply_vectors<Format>(
        lane, args.weight, args.panel(head, lane.block_x()), x, NormArgs{}, first_row,
        left < vector_rows ? left : vector_rows, shared, [&] { lane.wait_for_previous_kernel(); },
        [&](int output, int row, float a, float b) {
          // Recomputed, so that no registers hold them meanwhile.
          const int of = Lane::keep(lane.block_y()), block = Lane::keep(lane.block_x());
          if (block >= args.panels(of).count()) return;
          const Panel outputs = args.panel(of, block);
          row += lane.block_z() * vector_rows;
          args.put(outputs.a, output, of, row, a);
          if (outputs.has_b) args.put(outputs.b, output, of, row, b);
        });
  }
};

}}}
