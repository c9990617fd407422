// Kernels over rows of activations, other than products and attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "slm/backend/gpu/kernels/epilogues.hpp"
#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/backend/gpu/weights/scales.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/backend/row_cut.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Selects the table row for a row of the step.
struct TableRows {
  int offset;        // added to positions
  bool by_position;  // otherwise by token

  SLM_DEVICE int of(const StepRow& row) const { return by_position ? row.position + offset : row.token; }
};

/// The table rows of this rank: a contiguous range per part. Equivalent to RowCut, whose 64-bit divisions would need a
/// stack in a kernel.
struct OwnRows {
  static constexpr int elsewhere = -1;

  int width = std::numeric_limits<int>::max();  // rows per part
  int first = 0, last = width;                  // range in each part

  OwnRows() = default;
  OwnRows(const RowCut& cut, int rank)
      : width(static_cast<int>(cut.width)),
        first(static_cast<int>(cut.first(rank))),
        last(static_cast<int>(cut.first(rank + 1))) {}

  /// Index among the rank's rows.
  SLM_DEVICE int place(int row) const {
    const int part = row < width ? 0 : 1, in_part = row - part * width;
    return in_part < first || in_part >= last ? elsewhere : part * (last - first) + in_part - first;
  }
};

/// x[r] = table[token] + positions[position + offset], or table[position + offset]; rows of other ranks are skipped.
/// Tokens beyond the table have its first row.
template <class Format>
struct Embed {
  struct Args {
    Tiles table;
    Memory<const StepRow> rows;     // [count]
    Memory<const float> positions;  // [all, width]; may be empty
    Memory<float> x;                // [count, width]
    TableRows which;
    OwnRows own;
    int count;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.count, .threads = 256}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int row = lane.block_x(), width = args.table.in;
    const int place_of_row = args.own.place(args.which.of(args.rows[row]));
    if (place_of_row == OwnRows::elsewhere) return;
    const int token = place_of_row < args.table.out ? place_of_row : 0;
    const std::int64_t place = std::int64_t{args.rows[row].position + args.which.offset} * width;
    const std::int64_t tile = token / tile_height * args.table.stride;
    for (int k = lane.thread(); k < width; k += lane.threads()) {
      float v;
      if constexpr (in_codes<Format>) {
        v = dequantized<Format, Lane>(args.table, token, k);
      } else {
        const int line = (k / line_depth * tile_height + token % tile_height) * Compute<Format>::line_words;
        if constexpr (std::is_same_v<Format, Fp32>) {
          v = float_of(args.table.words[tile + line + k % line_depth]);
        } else {
          using Element = typename Format::Element;
          const std::uint32_t word = args.table.words[tile + line + k % line_depth / 2];
          v = k % 2 == 0 ? Lane::template unpack_low<Element>(word) : Lane::template unpack_high<Element>(word);
        }
      }
      args.x[std::int64_t{row} * width + k] = args.positions ? v + args.positions[place + k] : v;
    }
  }
};

/// out[i] = x[outputs[i]]
struct SelectRows {
  struct Args {
    Memory<const float> x;      // [rows, width]
    Memory<const int> outputs;  // [count]; -1: padding; empty: output i is row i
    Memory<float> out;          // [count, width]
    int width, count;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.count, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t to = lane.block_x(), from = args.outputs ? args.outputs[to] : to;
    if (from < 0) return;
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      args.out[to * args.width + k] = args.x[from * args.width + k];
    }
  }
};

/// x = norm(x)
struct NormalizeRows {
  struct Args {
    Memory<float> x;  // [rows, width], rows `stride` elements apart
    int width, rows, stride;
    NormArgs norm;
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = block_threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const Memory<float> x = args.x.part(std::int64_t{lane.block_x()} * args.stride, args.width);
    const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % sizeof(Word4) == 0;
    row_statistics(lane, Rows{{x.data, x.size}, args.width, 1}, args.norm, 0, 1, shared.sums, Where::here(), aligned);
    for (int k = lane.thread(); k < args.width; k += lane.threads())
      x[k] = normalized(x[k], k, shared.sums.row[0], args.norm);
  }
};

/// x *= factor
struct ScaleRows {
  struct Args {
    Memory<float> x;  // [rows, width]
    int width, rows;
    float factor;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x();
    for (int k = lane.thread(); k < args.width; k += lane.threads()) args.x[row * args.width + k] *= args.factor;
  }
};

/// x *= factors
struct MultiplyRows {
  struct Args {
    Memory<float> x;              // [rows, width]
    Memory<const float> factors;  // [rows, width], rows `stride` elements apart
    int width, rows, stride;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x();
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      args.x[row * args.width + k] *= args.factors[row * args.stride + k];
    }
  }
};

/// x += norm(branch)
struct AddNormedRows {
  struct Args {
    Memory<const float> branch;  // [rows, width]
    Memory<float> x;             // [rows, width]
    int width, rows;
    NormArgs norm;
  };
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = block_threads}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x();
    row_statistics(lane, Rows{args.branch, args.width, args.rows}, args.norm, row, 1, shared.sums);
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      const std::int64_t at = std::int64_t{row} * args.width + k;
      args.x[at] += normalized(args.branch[at], k, shared.sums.row[0], args.norm);
    }
  }
};

/// out = activation(gate) * up, for gates that do not fill whole tiles.
struct GateRows {
  struct Args {
    Memory<const float> gate_up;  // [rows, 2 * width]
    Memory<float> out;            // [rows, width]
    int width, rows;
    Activation activation;
  };
  struct Shared {};
  static constexpr int max_block = 256;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = 256}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x();
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      const float gate = args.activation.factor * args.gate_up[row * 2 * args.width + k];
      args.out[row * args.width + k] = activate(args.activation, gate) * args.gate_up[(row * 2 + 1) * args.width + k];
    }
  }
};

struct ShapeQkvArgs {
  Memory<const float> projected;  // [rows, width], q | k | v with bias, not clipped; may be the memory of q
  QkvArgs to;                     // without bias
  NormArgs query_norm, key_norm;  // kind none: no norm
  NormArgs value_norm;            // of each head
  QkNorm over;
  int rows, width;
  int parts;          // see qkv_parts()
  bool clips_normed;  // queries and keys are clipped after the norm

  /// Queries, keys and values that are stored. Values without a place of their own are the keys.
  int stored_parts() const { return parts == 1 ? 1 : to.pages.layer.values != to.pages.layer.keys ? 3 : 2; }
};

/// Finishes queries, keys and values of any shape, with head norms, in any format, from a stored product. NormRotated:
/// heads are normalized after their rotation.
template <bool NormRotated>
struct ShapeQkvRows {
  using Args = ShapeQkvArgs;
  struct Shared {
    BlockSums sums;
  };
  static constexpr int max_block = block_threads, least_blocks = 4;
  static Grid grid(const Args& args, int) {
    return {.x = args.rows, .y = args.stored_parts(), .threads = block_threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const QkvArgs& to = args.to;
    const int row = lane.block_x(), part = lane.block_y(), dim = to.dim;
    const int heads = part == 0 ? to.query : to.kv;
    const int first = part == 0 ? 0 : part == 1 ? to.query * dim : (to.query + to.kv) * dim;
    const int source = part == 2 && args.parts == 2 ? to.query * dim : first;  // values may be keys as they are
    const std::int64_t base = std::int64_t{row} * args.width + source;
    const NormArgs norm = part == 0 ? args.query_norm : part == 1 ? args.key_norm : args.value_norm;
    const int half = part == 2 ? 0 : to.rotating / 2;
    const bool clips_normed = args.clips_normed && part != 2;
    const auto value = [&](int o) {
      const float v = args.projected[base + o];
      return clips_normed ? v : to.shaped(first + o, v);
    };

    const StepRow of = to.rows[row];
    const bool all_heads = !NormRotated && args.over == QkNorm::whole && part != 2;
    // Passes the elements of a head to use(d, v), each to one lane of the wave, after the rotation of change(d).
    const auto each_rotated = [&](const auto& change, const auto& use) {
      for (int d = lane.lane_index(); d < dim; d += Lane::width) {
        if (d < half) {
          const int i = to.first_of(d), j = to.second_of(d);
          const QkvArgs::Pair pair = to.rotated(of, d, change(i), change(j));
          use(i, pair.first);
          use(j, pair.second);
        } else if (d >= 2 * half) {
          use(d, change(d));
        }
      }
    };
    // Statistics of a range of values, computed by all lanes of a wave.
    const auto measure = [&](int from, int width) {
      RowStatistics row_is{0.0f, 1.0f};
      if (norm.kind == NormKind::none) return row_is;
      if (norm.kind == NormKind::layer) {
        float sum = 0;
        for (int k = lane.lane_index(); k < width; k += Lane::width) sum += value(from + k);
        row_is.mean = lane.wave_sum(sum) / static_cast<float>(width);
      }
      float squares = 0;
      for (int k = lane.lane_index(); k < width; k += Lane::width) {
        const float d = value(from + k) - row_is.mean;
        squares = fmaf(d, d, squares);
      }
      row_is.scale = 1.0f / sqrtf(lane.wave_sum(squares) / static_cast<float>(width) + norm.epsilon);
      return row_is;
    };
    // Statistics of a head after the rotation, of an RMS norm.
    const auto measure_rotated = [&](int from) {
      float squares = 0;
      each_rotated([&](int d) { return value(from + d); }, [&](int, float v) { squares = fmaf(v, v, squares); });
      const float mean = lane.wave_sum(squares) / static_cast<float>(dim);
      return RowStatistics{0.0f, norm.kind == NormKind::none ? 1.0f : 1.0f / sqrtf(mean + norm.epsilon)};
    };
    if (all_heads) {
      if (lane.wave() == 0) {
        const RowStatistics all = measure(0, heads * dim);
        if (lane.lane_index() == 0) shared.sums.row[0] = all;
      }
      lane.barrier();
    }
    for (int head = lane.wave(); head < heads; head += lane.waves()) {
      RowStatistics own;
      if constexpr (NormRotated) {
        own = measure_rotated(head * dim);
      } else {
        own = all_heads ? shared.sums.row[0] : measure(head * dim, dim);
      }
      const int weights = all_heads || args.over == QkNorm::own_weights ? head * dim : 0;
      const auto normed = [&](int d, float v) {
        const float n = norm.kind == NormKind::none ? v : normalized(v, weights + d, own, norm);
        return clips_normed ? to.shaped(0, n) : n;
      };
      const auto each = [&](const auto& use) {
        if constexpr (NormRotated) {
          each_rotated([&](int d) { return value(head * dim + d); }, [&](int d, float v) { use(d, normed(d, v)); });
        } else {
          each_rotated([&](int d) { return normed(d, value(head * dim + d)); }, use);
        }
      };
      const int o = first + head * dim;
      if (part == 0 || to.pages.format != KvFormat::int8) {
        each([&](int d, float v) { to.put(of, o + d, row, v); });
        continue;
      }
      float largest = 0;
      each([&](int, float v) { largest = fmaxf(largest, Int8Scale::magnitude(v)); });
      const Int8Scale scale(lane.wave_max(largest));
      if (of.sequence < 0) continue;
      const KvHead<std::int8_t> place = to.head_of<std::int8_t>(of, o / dim);
      const int slot = of.position % page_positions;
      each([&](int d, float v) { place.numbers[slot * dim + d] = scale.code(v); });
      if (lane.lane_index() == 0) place.scales[slot] = scale.scale;
    }
  }
};

struct ShapeQkv : ShapeQkvRows<false> {};
struct ShapeRotatedQkv : ShapeQkvRows<true> {};

}}}
