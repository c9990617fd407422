// The interface of one instruction set's kernels to backend::Cpu: plain function pointers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "slm/backend/concept.hpp"
#include "slm/backend/recurrence.hpp"
#include "slm/core/dim.hpp"
#include "slm/formats/code_tiles.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

constexpr int cache_line = 64;    // bytes; every packed row is aligned to one
constexpr int most_lanes = 16;    // floats of the widest vector
constexpr int kv_block = 64;      // one page; positions whose scores are converted to weights at once
constexpr int kv_chunk = 512;     // positions summed from zero, a multiple of kv_block; chunks are combined in order
constexpr int most_queries = 32;  // per attention task, a multiple of most_lanes
constexpr int most_matmul_rows = 128;  // weight rows per call
constexpr int most_panel_rows = 64;
constexpr int most_code_block = 128;  // maximum values per scale in CodeTiles
/// Values per scale of the GGUF types whose CodeTiles have this many bits; 0: they differ.
constexpr int gguf_code_block(int bits) { return bits == 8 ? 0 : bits == 6 ? 16 : 32; }
constexpr int panel_floats = 1 << 17;  // weights widened at once for many rows: 512 KiB, in the L2 cache

static_assert(kv_block == page_positions);

/// The set of row block heights with kernels.
class RowHeights {
 public:
  constexpr RowHeights(std::initializer_list<int> heights) {
    for (const int height : heights) bits_ |= std::uint32_t{1} << (height - 1);
  }
  /// 1 to `widest`
  static constexpr RowHeights up_to(int widest) {
    RowHeights heights{};
    heights.bits_ = (std::uint32_t{1} << widest) - 1;
    return heights;
  }
  constexpr bool has(int height) const { return (bits_ >> (height - 1) & 1u) != 0; }
  constexpr int widest() const { return 32 - std::countl_zero(bits_); }
  /// The heights that are multiples of `parts`, up to `most`, divided by `parts`.
  constexpr RowHeights divided(int parts, int most) const {
    RowHeights heights{};
    for (int height = parts; height <= most; height += parts) {
      if (has(height)) heights.bits_ |= std::uint32_t{1} << (height / parts - 1);
    }
    return heights;
  }
  /// The smallest height >= rows; rows must be at most widest().
  constexpr int fitting(int rows) const { return rows + std::countr_zero(bits_ >> (rows - 1)); }

 private:
  std::uint32_t bits_ = 0;
};

/// Divides activation rows into as few blocks as possible. Each block has the height of a kernel: missing rows repeat
/// the last row, and their results are dropped. Blocks are even (8 rows are 4 + 4), or all but the last have the widest
/// height if that computes fewer rows.
class RowBlocks {
 public:
  RowBlocks(int rows, RowHeights heights) {
    if (rows == 0) return;
    const int widest = heights.widest();
    blocks = (rows + widest - 1) / widest;
    const int base = rows / blocks, extra = rows % blocks, last = rows - (blocks - 1) * widest;
    const int tall = heights.fitting(extra == 0 ? base : base + 1), low = heights.fitting(base);
    if (extra * tall + (blocks - extra) * low <= (blocks - 1) * widest + heights.fitting(last)) {
      first_ = {extra, base + 1, tall};
      rest_ = {blocks - extra, base, low};
    } else {
      first_ = {blocks - 1, widest, widest};
      rest_ = {1, last, heights.fitting(last)};
    }
  }
  int blocks = 0;
  /// The first row and the number of rows of a block.
  int first(int block) const { return before(block, first_.size, rest_.size); }
  int size(int block) const { return block < first_.blocks ? first_.size : rest_.size; }
  /// The same, counting repeated rows.
  int place(int block) const { return before(block, first_.height, rest_.height); }
  int height(int block) const { return block < first_.blocks ? first_.height : rest_.height; }
  int places() const { return place(blocks); }

 private:
  struct Kind {
    int blocks = 0, size = 0, height = 0;
  };
  int before(int block, int first, int rest) const {
    return block < first_.blocks ? block * first : first_.blocks * first + (block - first_.blocks) * rest;
  }
  Kind first_, rest_;
};

/// Activations in the products' order. With lanes: per row block, per step of `lanes` values, the block's rows one
/// after another; zero beyond `in`.
struct PackTask {
  const float* x = nullptr;  // [rows, x_stride]
  std::int64_t x_stride = 0;
  std::int64_t in = 0;
  Norm norm = {.kind = NormKind::none};
  int rows = 0;         // rows of all blocks
  int first_block = 0;  // blocks to pack in this call: [first_block, last_block)
  int last_block = 0;
  float* packed = nullptr;            // [packed_floats(rows, in)]
  const CodeTiles* weight = nullptr;  // for quantized weights: the weight that the rows will be multiplied by
};

/// out[m, i] = packed row m . weight row i, for `count` <= most_matmul_rows weight rows with a stride of `in` elements.
template <class Element>
struct MatmulTask {
  const Element* weight = nullptr;  // [count, in]; aligned to an element
  std::int64_t in = 0;
  int count = 0;
  const float* packed = nullptr;  // output of PackTask
  int rows = 0;
  float* out = nullptr;  // [rows, out_stride]
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  // [matmul_scratch(in)] of this thread, cache-line aligned
};

/// Queries of one KV head that share a pass over its keys and values. Each attends to its own number of positions.
struct AttendTask {
  const std::byte* const* pages = nullptr;  // the sequence's page table
  std::int64_t keys = 0;                    // byte offset of the head's keys in a page, see KvLayer
  std::int64_t values = 0;
  int dim = 0;
  int queries = 0;                        // 1..most_queries
  const float* query[most_queries] = {};  // [dim] each
  float* out[most_queries] = {};          // [dim] each
  int first[most_queries] = {};           // first visible position of each
  int visible[most_queries] = {};         // end of the visible positions: own position + 1
  float slope[most_queries] = {};         // ALiBi; 0: none
  float scale[most_queries] = {};         // factor of scores
  bool sinks = false;                     // whether `sink` is set
  float sink[most_queries] = {};          // see Attention
  float cap = 0;                          // see Attention
  float* scratch = nullptr;               // attend_scratch(dim) floats of this thread
};

constexpr std::int64_t padded(std::int64_t count) {
  return ceil_div<std::int64_t>(count, 2 * most_lanes) * 2 * most_lanes;
}

constexpr int panel_rows(std::int64_t in) {
  const std::int64_t rows = panel_floats / padded(in) / 4 * 4;
  return static_cast<int>(rows < 4 ? 4 : rows > most_panel_rows ? most_panel_rows : rows);
}

/// Floats for unpacked codes, and for the sums of 512 activation rows and 64 weight rows.
constexpr std::int64_t code_scratch = 8192 + 512 * 64;

/// Floats of scratch memory for a matmul call: the panel, or an aligned copy of the weights and the sums of their
/// tiles.
constexpr std::size_t matmul_scratch(std::int64_t in) {
  const std::int64_t panel = panel_rows(in) * padded(in);
  const std::int64_t tiles = most_matmul_rows * ((padded(in) + 32) / 2 + 64);
  const std::int64_t dense = panel < tiles ? tiles : panel;
  return static_cast<std::size_t>(dense < code_scratch ? code_scratch : dense);
}

constexpr std::size_t attend_scratch(int dim) {
  return static_cast<std::size_t>((3 * most_queries + kv_block) * padded(dim) + kv_block * most_queries);
}

struct CommonKernels {
  int row_block = 0;                          // queries per pass of attention while lanes are dimensions
  int lanes = 0;                              // for more queries: queries per vector
  void (*attend[4])(const AttendTask&) = {};  // per KvFormat
  /// rotates the pairs (first, second) [count] by angles given as cosine and sine
  void (*rotate)(const float* first, const float* second, const float* cosine, const float* sine, int count,
                 float* out_first, float* out_second) = nullptr;
  /// normalises x [in]; out may be x
  void (*normalize)(const Norm& norm, const float* x, std::int64_t in, float* out) = nullptr;
  /// out = activation(z) * factor / divisor, [count]; factor and divisor may be null; out may be z
  void (*activate)(const Activation& activation, const float* z, const float* factor, const float* divisor, int count,
                   float* out) = nullptr;
  /// clamps x [count] to [-limit, limit]
  void (*clip)(float* x, int count, float limit) = nullptr;
  void (*convolve)(const recurrent::ConvolveTask&) = nullptr;
  void (*advance_delta)(const recurrent::DeltaTask&) = nullptr;
  void (*advance_mamba)(const recurrent::MambaTask&) = nullptr;
};

template <class Element>
struct MatmulKernels {
  RowBlocks (*blocks)(int rows) = nullptr;                             // blocks of packed rows
  std::int64_t (*packed_floats)(int rows, std::int64_t in) = nullptr;  // size of PackTask::packed
  void (*pack)(const PackTask&) = nullptr;
  void (*matmul)(const MatmulTask<Element>&) = nullptr;
  /// y [count] += t [rows] . matrix with row stride `stride`; sums each element row by row
  void (*add_rows)(const float* t, const Element* matrix, std::int64_t stride, int rows, std::int64_t count,
                   float* y) = nullptr;
  /// Called before and after any number of matmul calls of one thread; may be null.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

/// The layout of one activation row in fixed point, for quantized weights: one or two signed bytes per value. A row
/// block has, per 64 values, the upper bytes of its rows (64 each), then the lower bytes. After them, per `scale_block`
/// values and row: a scale, and the sum's contribution to a product.
struct FixedPointRows {
  static constexpr int unit = 64;
  static constexpr int least_block = 16, most_byte_block = 32;  // values per scale; maximum for single bytes
  int terms = 0;                                                // bytes per value
  int scale_block = 0;                                          // values per scale
  std::int64_t units = 0;

  FixedPointRows(int bytes_per_value, int values_per_scale, std::int64_t in)
      : terms(bytes_per_value), scale_block(values_per_scale), units(ceil_div<std::int64_t>(in, unit)) {}
  FixedPointRows(int bytes_per_value, const CodeTiles& weight)
      : FixedPointRows(bytes_per_value,
                       bytes_per_value == 1 && weight.block > most_byte_block ? most_byte_block : weight.block,
                       weight.in) {}
  std::int64_t scales() const { return ceil_div<std::int64_t>(units * unit, scale_block); }  // per row
  std::int64_t code_bytes() const { return units * unit * terms; }                           // per row
  std::int64_t row_bytes() const { return code_bytes() + ceil_div<std::int64_t>(scales() * 8, unit) * unit; }
};

/// out[m, i] = packed row m . weight row first + i, for `count` <= most_matmul_rows weight rows.
struct CodeTask {
  const CodeTiles* weight = nullptr;
  std::int64_t first = 0;
  int count = 0;
  const float* packed = nullptr;  // [rows] in FixedPointRows layout
  int rows = 0;
  float* out = nullptr;  // [rows, out_stride]
  std::int64_t out_stride = 0;
  float* scratch = nullptr;  // [matmul_scratch(in)] of this thread, cache-line aligned
};

/// See MatmulKernels.
struct CodeKernels {
  RowBlocks (*blocks)(int rows, int bits) = nullptr;  // blocks of packed rows for codes of `bits` bits
  std::int64_t (*packed_floats)(int rows, std::int64_t in) = nullptr;
  void (*pack)(const PackTask&) = nullptr;
  void (*matmul)(const CodeTask&) = nullptr;
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

}}}
