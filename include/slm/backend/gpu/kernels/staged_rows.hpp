// StageRows: prepares activations of many rows for ProductTiles. It normalises and rounds them, and for quantized
// weights sums them per block of inputs, once for all blocks of a product.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Memory layout of tile_rows rows and one step of inputs: for each term of a float, four pieces per row, eight inputs
/// in 16 bytes each. Then the sums of the rows' inputs from the beginning of a block of codes to the end of the step
/// (Int8: of each half-step). Steps of the same rows are contiguous.
template <class Format>
struct StagedSlice {
  static constexpr int rows = Compute<Format>::tile_rows, terms = Compute<Format>::x_terms;
  static constexpr int sums = !in_codes<Format> ? 0 : std::is_same_v<Format, Int8> ? 2 : 1;
  static constexpr int row_words = 4 * step_lines, term_words = rows * row_words;
  static constexpr int words = terms * term_words + sums * rows;

  /// The same piece of eight rows maps to different banks.
  static SLM_DEVICE int word_of(int row, int piece) {
    return row * row_words + (piece ^ (static_cast<int>(static_cast<unsigned>(row) / 2) & 3)) * 4;
  }
  /// Offset of the sum of the row's inputs up to the end of a half-step.
  static SLM_DEVICE int sum_of(int row, int half) { return terms * term_words + (sums == 2 ? half : 0) * rows + row; }

  /// Inputs first(piece, 0) .. + 3 and first(piece, 1) .. + 3 of a step form a piece: a line, or for Int8 a lane
  /// group's inputs of both half-steps.
  static SLM_DEVICE int first(int piece, int four) {
    return std::is_same_v<Format, Int8> ? 16 * four + 4 * piece : line_depth * piece + 4 * four;
  }

  /// Offset at which a lane reads B of the first rows of a step, for its column. Fragments of other rows follow at
  /// `columns * row_words` words.
  template <class L>
  static SLM_DEVICE int place(int lane_index, int column) {
    return word_of(column, L::k_groups == 1 ? 0 : L::k_group(lane_index));
  }

  /// Loads B of both half-steps, from the lane's offset on.
  template <class L>
  static SLM_DEVICE void fragments(const std::uint32_t* from, int place, FragmentB<L> (&b)[2]) {
    SLM_UNROLL
    for (int l = 0; l < step_lines / L::k_groups; ++l) {
      const Word4 four = *reinterpret_cast<const Word4*>(from + (place ^ 4 * l));
      SLM_UNROLL
      for (int p = 0; p < 4; ++p) {
        if constexpr (L::k_groups != 1) {
          b[p / 2].word[p % 2] = four.word[p];
        } else if constexpr (std::is_same_v<Format, Int8>) {
          b[p / 2].word[2 * l + p % 2] = four.word[p];
        } else {
          b[l / 2].word[4 * (l % 2) + p] = four.word[p];
        }
      }
    }
  }

  static constexpr std::int64_t tiles(int row_count) { return (row_count + rows - 1) / rows; }
  static constexpr std::int64_t words_of(int row_count, int steps) { return tiles(row_count) * steps * words; }
};

/// Writes vector_rows rows of a tile in StagedSlice's layout: `count` rows of x from first_row on, then zeros. By a
/// whole block.
template <class Format>
struct RowStager {
  using Slice = StagedSlice<Format>;
  static constexpr int most_steps = block_threads / step_lines;  // one piece per thread; whole blocks of codes

  Memory<std::uint32_t> to;  // of the tile
  int row;                   // in the tile
  int block_shift;           // of the codes

  /// Writes steps first .. last - 1. X: Rows, or ListedRows.
  template <class Lane, class X>
  SLM_DEVICE void write(Lane lane, const X& x, const NormArgs& norm, const RowStatistics* statistics, int first_row,
                        int count, int first, int last) const {
    const int t = lane.thread(), piece = t % step_lines;
    for (int step = first + static_cast<int>(static_cast<unsigned>(t) / step_lines); step < last; step += most_steps) {
      put<Lane>(x, norm, statistics, first_row, count, step, piece);
    }
    if constexpr (in_codes<Format>) {
      lane.barrier();
      sum_blocks(lane, first, last);
    }
  }

 private:
  /// Writes one piece of each row.
  template <class Lane, class X>
  SLM_DEVICE void put(const X& rows, const NormArgs& norm, const RowStatistics* statistics, int first_row, int count,
                      int step, int piece) const {
    using Element = typename Compute<Format>::Element;
    const std::int64_t begin = std::int64_t{step} * Slice::words;
    const int width = rows.width;
    float x[vector_rows][8] = {}, weight[8] = {1, 1, 1, 1, 1, 1, 1, 1}, bias[8] = {};
    SLM_UNROLL
    for (int r = 0; r < vector_rows; ++r) {
      if (r < count) load(rows.data, rows.begin(first_row + r), width, step, piece, x[r]);
    }
    if (norm.weight) load(norm.weight, 0, width, step, piece, weight);
    if (norm.bias) load(norm.bias, 0, width, step, piece, bias);
    SLM_UNROLL
    for (int r = 0; r < vector_rows; ++r) {
      float slot[8];
      const RowStatistics of = statistics[r];
      SLM_UNROLL
      for (int i = 0; i < 8; ++i) {
        float v = x[r][i];
        if (norm.kind != NormKind::none) {
          const int k = step * slice_depth + Slice::first(piece, i / 4) + i % 4;
          v = r < count && k < width ? normalized(v, of, weight[i], bias[i]) : 0.0f;
        }
        slot[slot_of<Format>(i)] = v;
      }
      SLM_UNROLL
      for (int term = 0; term < Slice::terms; ++term) {
        Word4 four;
        SLM_UNROLL
        for (int p = 0; p < 4; ++p) {
          four.word[p] = Lane::template pack2<Element>(slot[2 * p], slot[2 * p + 1]);
          if (term + 1 == Slice::terms) continue;
          slot[2 * p] -= Lane::template unpack_low<Element>(four.word[p]);
          slot[2 * p + 1] -= Lane::template unpack_high<Element>(four.word[p]);
        }
        *to.template vector<Word4>(begin + term * Slice::term_words + Slice::word_of(row + r, piece)) = four;
      }
    }
  }

  /// Loads eight values of the row at `begin`, zero after its end.
  static SLM_DEVICE void load(const Memory<const float>& data, std::int64_t begin, int width, int step, int piece,
                              float (&v)[8]) {
    SLM_UNROLL
    for (int four = 0; four < 2; ++four) {
      const int k = step * slice_depth + Slice::first(piece, four);
      if (width % 4 != 0) {
        SLM_UNROLL
        for (int i = 0; i < 4; ++i) v[4 * four + i] = k + i < width ? data[begin + k + i] : 0.0f;
      } else if (k < width) {
        const Word4 words = *data.vector<const Word4>(begin + k);
        SLM_UNROLL
        for (int i = 0; i < 4; ++i) v[4 * four + i] = float_of(words.word[i]);
      }
    }
  }

  /// Sums by the matrix unit, like ProductVectors: a wave sums one block of codes or one step.
  template <class Lane>
  SLM_DEVICE void sum_blocks(Lane lane, int first, int last, Where where = Where::here()) const {
    using L = typename Lane::Matrix;
    const int i = lane.lane_index(), steps = block_shift > 5 ? 1 << (block_shift - 5) : 1;
    const int place = Slice::template place<L>(i, row + L::b_column(i) % vector_rows);
    for (int begin = first + lane.wave() * steps; begin < last; begin += lane.waves() * steps) {
      InputSums<L> of;
      of.clear();
      for (int step = begin; step < begin + steps; ++step) {
        const Memory<std::uint32_t> words = to.part(std::int64_t{step} * Slice::words, Slice::words);
        FragmentB<L> b[2];
        Slice::template fragments<L>(words.data, place, b);
        SLM_UNROLL
        for (int half = 0; half < 2; ++half) {
          if (half == 1 && block_shift == 4) of.clear();
          of.add(lane, b[half], where);
          SLM_UNROLL
          for (int c = 0; c < L::c_floats; ++c) {
            const int column = L::c_column(i, c);
            if (L::c_row(i, c) == 0 && column < vector_rows && (half == 1 || Slice::sums == 2)) {
              words[Slice::sum_of(row + column, half)] = bits_of(of.sum.value[c]);
            }
          }
        }
      }
    }
  }
};

/// Writes rows in StagedSlice's layout; padding rows of a tile are zero. A block takes vector_rows rows; with a norm it
/// takes all their inputs, since it measures them first.
template <class Format>
struct StageRows {
  using Slice = StagedSlice<Format>;
  struct Args {
    Rows x;
    NormArgs norm;
    Memory<std::uint32_t> to;  // Slice::words_of(x.count, steps)
    int steps;
    int block_shift;  // of the codes
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads, least_blocks = 1;
  static constexpr int most_steps = RowStager<Format>::most_steps;
  static Grid grid(const Args& args, int) {
    return {.x = static_cast<int>(Slice::tiles(args.x.count)) * (Slice::rows / vector_rows),
            .y = args.norm.kind == NormKind::none ? (args.steps + most_steps - 1) / most_steps : 1,
            .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int first_row = lane.block_x() * vector_rows, left = args.x.count - first_row;
    const int count = left < 0 ? 0 : left < vector_rows ? left : vector_rows;
    const int first = lane.block_y() * most_steps, behind = first + most_steps;
    const int last = args.norm.kind != NormKind::none || behind > args.steps ? args.steps : behind;
    row_statistics(lane, args.x, args.norm, first_row, count, shared.sums);
    const std::int64_t words = std::int64_t{args.steps} * Slice::words;
    const RowStager<Format> stager{args.to.part(first_row / Slice::rows * words, words), first_row % Slice::rows,
                                   args.block_shift};
    stager.write(lane, args.x, args.norm, shared.sums.row, first_row, count, first, last);
  }
};

}}}
