// backend::Cpu: SIMD kernels and a thread pool, for machines without a GPU.
//
// A row's result does not depend, bit for bit, on the rows beside it, on the number of threads or on how a prompt is
// cut: threads share out the rows of a weight and never its columns, each sum runs over k in one order whatever the
// blocking, and attention is cut at absolute positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/int4_matrix.hpp"
#include "slm/backend/cpu/products.hpp"
#include "slm/backend/cpu/rope_table.hpp"
#include "slm/backend/cpu/tasks.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/backend/dense_matrix.hpp"
#include "slm/backend/mixed_matrix.hpp"

namespace slm::backend {

namespace cpu {
template <class Format>
struct MatrixOf {
  using type = MixedMatrix<Int4Matrix>;
};
template <DenseFormat Format>
struct MatrixOf<Format> {
  using type = DenseMatrix<Format>;
};
}  // namespace cpu

/// A handle: copies share the threads. Any number of models may use one handle, from any number of host threads; their
/// operations then run one after the other.
class Cpu : private cpu::Products {
 public:
  static constexpr const char* name = "cpu";
  static constexpr int max_rows = 512;
  using Activation = float;
  using KvElement = float;
  template <class T>
  using Buffer = PageBuffer<T>;
  using Mixed = MixedMatrix<cpu::Int4Matrix>;
  template <class Format>
  using Matrix = typename cpu::MatrixOf<Format>::type;

  /// Throws backend.invalid-threads, backend.no-thread, backend.unsupported-instruction-set.
  Cpu(CpuOptions options = {}) : Products(options) {}
  explicit Cpu(int threads) : Cpu(CpuOptions{.threads = checked(threads)}) {}

  using Products::isa;
  using Products::threads;

  /// Throws backend.out-of-memory.
  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(count);
  }

  Buffer<float> upload(const float* host, std::size_t count) {
    Buffer<float> buffer(count);
    if (count > 0) std::memcpy(buffer.data(), host, count * sizeof(float));
    return buffer;
  }

  /// Refers to tensors of the format's own type where they lie, unless weights are to be copied; converts others once.
  /// Four-bit layers are put into the order of the kernels; those that have no such order (odd groups, or beside layers
  /// in floating point) become fp32. A four-bit model refers to nothing: what it has in floating point is copied too.
  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    if constexpr (DenseFormat<Format>) {
      auto matrix = Matrix<Format>::stack(sources);
      if (state_->copy_weights) matrix.move_to(HugePages::take);
      return matrix;
    } else {
      if (!cpu::Int4Matrix::can_hold(sources)) {
        Mixed mixed = Mixed::dense(sources);
        mixed.visit([]<class Held>(Held& held) {
          if constexpr (!std::is_same_v<Held, cpu::Int4Matrix>) held.move_to(HugePages::take);
        });
        return mixed;
      }
      const std::lock_guard lock(state_->mutex);
      return Mixed(cpu::Int4Matrix::stack(sources, state_->pool));
    }
  }

  void embed(const cpu::Int4Matrix& table, std::span<const Token> tokens, View<float, 2> x,
             View<const float, 2> positions = {}, int position = 0) {
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      float* to = x.row(static_cast<std::int64_t>(r));
      dequantize_row(table.tiles, tokens[r], to);
      if (positions.data == nullptr) continue;
      const float* place = positions.row(position + static_cast<std::int64_t>(r));
      for (std::int64_t i = 0; i < table.in; ++i) to[i] += place[i];
    }
  }

  template <class Weight>
  void embed(const Weight& table, std::span<const Token> tokens, View<float, 2> x, View<const float, 2> positions = {},
             int position = 0) {
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto* row = table.row(tokens[r]);
      float* to = x.row(static_cast<std::int64_t>(r));
      for (std::int64_t i = 0; i < table.in; ++i) to[i] = to_float(row[i]);
      if (positions.data == nullptr) continue;
      const float* place = positions.row(position + static_cast<std::int64_t>(r));
      for (std::int64_t i = 0; i < table.in; ++i) to[i] += place[i];
    }
  }

  template <class Weight>
  void qkv(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, Rope rope, Heads heads,
           int position, View<float, 2> q, KvLayer<float> kv, QkvShaping shaping = {}) {
    const std::lock_guard lock(state_->mutex);
    if (rope.rotating(heads.dim) != heads.dim || shaping.norm != QkNorm::none) {
      return qkv_in_two_passes(x, norm, weight, bias, rope, heads, position, q, kv, shaping);
    }
    const int rows = static_cast<int>(x.extent(0));
    const int half = heads.dim / 2;
    const RopeTable::Angles angles = state_->rope.angles(rope.inverse_frequency, half, position, rows, rope.factor);
    const float* packed = pack_rows(weight, x, &norm);

    // A task turns one slice of one head: rows i.. and i + half.. of its weight.
    const int slice = std::min(half, slice_rows(half * 2 * (heads.query + 2 * heads.kv)));
    const int slices = ceil_div(half, slice);
    const int total_heads = heads.query + 2 * heads.kv;
    run_matmul(weight, rows, total_heads * slices, [=, this, &weight](int task, const Thread& thread) {
      const int head = task / slices, first = task % slices * slice, count = std::min(slice, half - first);
      const std::int64_t first_row = std::int64_t{head} * heads.dim + first;
      float* low = thread.tile;  // [rows, 2 * count]: the first and the second half of each pair
      const std::int64_t width = 2 * count;
      if (count == half) {  // a whole head: its rows lie together
        multiply(weight, first_row, 2 * half, packed, rows, low, width, thread);
      } else {
        multiply(weight, first_row, count, packed, rows, low, width, thread);
        multiply(weight, first_row + half, count, packed, rows, low + count, width, thread);
      }
      for (int r = 0; r < rows; ++r, low += width) {
        if (bias != nullptr) {
          for (int i = 0; i < count; ++i) low[i] += bias[first_row + i];
          for (int i = 0; i < count; ++i) low[count + i] += bias[first_row + half + i];
        }
        if (shaping.clip != 0) state_->kernels->clip(low, 2 * count, shaping.clip);
        const std::int64_t slot = (position + r) % kv.keys.extent(1);
        const int kv_head = head - heads.query;
        if (kv_head >= heads.kv) {
          float* value = kv.values.row(kv_head - heads.kv) + slot * kv.values.stride(1) + first;
          std::copy_n(low, count, value);
          std::copy_n(low + count, count, value + half);
        } else {
          float* to =
              kv_head < 0 ? q.row(r) + std::int64_t{head} * heads.dim : kv.keys.row(kv_head) + slot * kv.keys.stride(1);
          const float* cosine = angles.cosine + std::int64_t{r} * half + first;
          const float* sine = angles.sine + std::int64_t{r} * half + first;
          state_->kernels->rotate(low, low + count, cosine, sine, count, to + first, to + first + half);
        }
      }
    });
  }

  void attend(View<const float, 2> q, Heads heads, int position, KvLayer<float> kv, View<float, 2> out,
              Attention attention = {}) {
    const std::lock_guard lock(state_->mutex);
    const int rows = static_cast<int>(q.extent(0));
    const cpu::RowBlocks blocks(rows * (heads.query / heads.kv), state_->kernels->row_block);
    const auto attend_block = [&](std::uint32_t index, int worker) {
      const int kv_head = static_cast<int>(index) / blocks.blocks, block = static_cast<int>(index) % blocks.blocks;
      cpu::AttendTask task =
          cpu::attend_task(q, heads, position, kv, out, attention, kv_head, blocks.first(block), blocks.size(block));
      task.scratch = state_->scratch[static_cast<std::size_t>(worker)].data();
      state_->kernels->attend(task);
    };
    state_->reserve_scratch(cpu::attend_scratch(heads.dim));
    const int seen = attention.window != 0 ? std::min(position, attention.window) + rows : position + rows;
    const double multiplies = 2.0 * rows * heads.query * heads.dim * seen;
    const double bytes = 8.0 * heads.kv * heads.dim * seen;
    run(heads.kv * blocks.blocks, std::max(multiplies / multiplies_per_ns, bytes / bytes_per_ns), attend_block);
  }

  template <class Weight>
  void project(View<const float, 2> input, const Weight& weight, const float* bias, View<float, 2> x) {
    const std::lock_guard lock(state_->mutex);
    const int rows = static_cast<int>(input.extent(0));
    const float* packed = pack_rows(weight, input, nullptr);
    const int out = static_cast<int>(weight.out), slice = 2 * slice_rows(out);
    run_matmul(weight, rows, ceil_div(out, slice), [=, this, &weight](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, out - first);
      multiply(weight, first, count, packed, rows, thread.tile, count, thread);
      for (int r = 0; r < rows; ++r) {
        float* to = x.row(r) + first;
        const float* from = thread.tile + std::int64_t{r} * count;
        if (bias != nullptr) {
          for (int i = 0; i < count; ++i) to[i] += from[i] + bias[first + i];
        } else {
          for (int i = 0; i < count; ++i) to[i] += from[i];
        }
      }
    });
  }

  template <class Weight>
  void gated_mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, View<float, 2> out,
                 ActivationKind activation = ActivationKind::silu) {
    const std::lock_guard lock(state_->mutex);
    const int rows = static_cast<int>(x.extent(0));
    const int ffn = static_cast<int>(weight.out / 2);
    const float* packed = pack_rows(weight, x, &norm);
    const int slice = slice_rows(2 * ffn);
    run_matmul(weight, rows, ceil_div(ffn, slice), [=, this, &weight](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, ffn - first);
      float* gate = thread.tile;
      float* up = gate + std::int64_t{rows} * count;
      multiply(weight, first, count, packed, rows, gate, count, thread);
      multiply(weight, ffn + first, count, packed, rows, up, count, thread);
      for (int r = 0; r < rows; ++r, gate += count, up += count) {
        if (bias != nullptr) {
          for (int i = 0; i < count; ++i) gate[i] += bias[first + i];
          for (int i = 0; i < count; ++i) up[i] += bias[ffn + first + i];
        }
        state_->kernels->activate(activation, gate, up, nullptr, count, out.row(r) + first);
      }
    });
  }

  template <class Weight>
  void mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, ActivationKind activation,
           const float* divisor, View<float, 2> out) {
    const std::lock_guard lock(state_->mutex);
    matmul_into(weight, x, norm, bias, out, [=, this](float* z, int first, int count) {
      state_->kernels->activate(activation, z, nullptr, divisor != nullptr ? divisor + first : nullptr, count, z);
    });
  }

  void normalize(View<float, 2> x, Norm norm) {
    for (std::int64_t r = 0; r < x.extent(0); ++r) state_->kernels->normalize(norm, x.row(r), x.extent(1), x.row(r));
  }

  template <class Weight>
  void logits(View<const float, 2> x, Norm norm, const Weight& weight, View<float, 2> out,
              const float* bias = nullptr) {
    const std::lock_guard lock(state_->mutex);
    matmul_into(weight, x, norm, bias, out, [](float*, int, int) {});
  }

  // A matrix of a quantized checkpoint: the same with the kind that it is.

  void embed(const Mixed& table, std::span<const Token> tokens, View<float, 2> x, View<const float, 2> positions = {},
             int position = 0) {
    table.visit([&](const auto& held) { embed(held, tokens, x, positions, position); });
  }
  void qkv(View<const float, 2> x, Norm norm, const Mixed& weight, const float* bias, Rope rope, Heads heads,
           int position, View<float, 2> q, KvLayer<float> kv, QkvShaping shaping = {}) {
    weight.visit([&](const auto& held) { qkv(x, norm, held, bias, rope, heads, position, q, kv, shaping); });
  }
  void project(View<const float, 2> input, const Mixed& weight, const float* bias, View<float, 2> x) {
    weight.visit([&](const auto& held) { project(input, held, bias, x); });
  }
  void gated_mlp(View<const float, 2> x, Norm norm, const Mixed& weight, const float* bias, View<float, 2> out,
                 ActivationKind activation = ActivationKind::silu) {
    weight.visit([&](const auto& held) { gated_mlp(x, norm, held, bias, out, activation); });
  }
  void mlp(View<const float, 2> x, Norm norm, const Mixed& weight, const float* bias, ActivationKind activation,
           const float* divisor, View<float, 2> out) {
    weight.visit([&](const auto& held) { mlp(x, norm, held, bias, activation, divisor, out); });
  }
  void logits(View<const float, 2> x, Norm norm, const Mixed& weight, View<float, 2> out, const float* bias = nullptr) {
    weight.visit([&](const auto& held) { logits(x, norm, held, out, bias); });
  }

 private:
  static int checked(int threads) {
    return threads == 0 ? -1 : threads;  // 0 means "all" in the options only
  }

  /// out = norm(x) . weight^T + bias, then finish(out + first, first, count) for every part of a row.
  template <class Weight, class Finish>
  void matmul_into(const Weight& weight, View<const float, 2> x, const Norm& norm, const float* bias,
                   View<float, 2> out, const Finish& finish) {
    const float* packed = pack_rows(weight, x, &norm);
    const int rows = static_cast<int>(x.extent(0)), width = static_cast<int>(weight.out);
    const int slice = 2 * slice_rows(width);
    run_matmul(weight, rows, ceil_div(width, slice), [=, this, &weight](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, width - first);
      multiply(weight, first, count, packed, rows, out.data + first, out.stride(0), thread);
      for (int r = 0; r < rows; ++r) {
        float* row = out.row(r) + first;
        for (int i = 0; bias != nullptr && i < count; ++i) row[i] += bias[first + i];
        finish(row, first, count);
      }
    });
  }

  /// qkv where a head cannot be finished slice by slice: all projections first, then row by row the norms, the
  /// rotation of what rotates, and the way to q and the cache.
  template <class Weight>
  void qkv_in_two_passes(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, Rope rope,
                         Heads heads, int position, View<float, 2> q, KvLayer<float> kv, QkvShaping shaping) {
    const int rows = static_cast<int>(x.extent(0));
    State::grow(state_->projected, static_cast<std::size_t>(rows * weight.out));
    const View<float, 2> projected{state_->projected.data(), rows, weight.out};
    const auto& kernels = *state_->kernels;
    matmul_into(weight, x, norm, bias, projected, [=, &kernels](float* z, int, int count) {
      if (shaping.clip != 0) kernels.clip(z, count, shaping.clip);
    });
    const int width = rope.rotating(heads.dim), half = width / 2;
    const RopeTable::Angles angles =
        half > 0 ? state_->rope.angles(rope.inverse_frequency, half, position, rows, rope.factor) : RopeTable::Angles{};
    const auto finish_row = [&](std::uint32_t r, int) {
      cpu::finish_qkv_row(kernels, projected.row(r), static_cast<int>(r), width, angles, heads, position, q, kv,
                          shaping);
    };
    run(rows, 8.0 * static_cast<double>(projected.size()) / bytes_per_ns, finish_row);
  }
};

static_assert(Backend<Cpu>);

}  // namespace slm::backend
