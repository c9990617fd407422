// CpuStep: the operations of one step on the CPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "slm/backend/concept.hpp"
#include "slm/backend/cpu/code_matrix.hpp"
#include "slm/backend/cpu/experts.hpp"
#include "slm/backend/cpu/products.hpp"
#include "slm/backend/cpu/recurrence.hpp"
#include "slm/backend/cpu/rope_table.hpp"
#include "slm/backend/cpu/tasks.hpp"
#include "slm/backend/dense_matrix.hpp"
#include "slm/backend/host_rows.hpp"
#include "slm/backend/mixed_matrix.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Holds the device's lock until destroyed.
/// Public members: the operations of the concept StepOf.
class CpuStep : private cpu::ExpertProducts, public HostRows<CpuStep> {
 public:
  using Rows = View<float, 2>;
  using ConstRows = View<const float, 2>;

  /// Throws backend.executor-waits.
  CpuStep(const cpu::Products& device, const StepPlan& plan) : ExpertProducts(device, plan), lock_(locked()) {
    state_->rope.forget();
  }

  int rows() const { return static_cast<int>(plan_.rows.size()); }
  Rows scratch(int index, std::int64_t width) { return scratch_of(index, rows(), width); }
  Rows scratch_of_outputs(int index, std::int64_t width) {
    return scratch_of(index, static_cast<std::int64_t>(plan_.outputs.size()), width);
  }

  template <class Body>
  void record(NothingRecorded&, Body&& body) {
    body();
  }

  template <class Matrix>
  void embed(const Matrix& table, Rows x, ConstRows positions = {}, int offset = 0) {
    for (int r = 0; r < rows(); ++r) {
      float* to = x.row(r);
      take_row(table, at(r).token < table.out ? at(r).token : 0, to);
      if (positions.data == nullptr) continue;
      const float* place = positions.row(at(r).position + offset);
      for (std::int64_t i = 0; i < table.in; ++i) to[i] += place[i];
    }
  }

  template <class Matrix>
  void embed_positions(const Matrix& table, int offset, Rows x) {
    for (int r = 0; r < rows(); ++r) take_row(table, at(r).position + offset, x.row(r));
  }

  void adapt_embedding(Rows x) { adapt_tokens(x); }

  template <class Matrix>
  void qkv(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rope rope, Heads heads, KvLayer layer, Rows q,
           QkvShaping shaping = {}) {
    // A scale covers a whole head.
    if (rope.rotating(heads.dim) != heads.dim || rope.pairs || shaping.norm != QkNorm::none ||
        qkv_parts(linear.weight.out, heads) != 3 || shaping.value.kind != NormKind::none ||
        plan_.format == KvFormat::int8) {
      return qkv_in_two_passes(x, norm, linear, rope, heads, layer, q, shaping);
    }
    const int rows = static_cast<int>(x.extent(0));
    const int half = heads.dim / 2;
    const RopeTable::Angles angles = state_->rope.angles(plan_, rope, half);
    const float* packed = pack(linear, x, &norm);

    // A task rotates one slice of one head: rows i.. and i + half.. of its weight.
    const int slice = std::min(half, slice_rows(half * 2 * (heads.query + 2 * heads.kv)));
    const int slices = ceil_div(half, slice);
    const int total_heads = heads.query + 2 * heads.kv;
    run_matmul(linear.weight, rows, total_heads * slices, [=, this, &linear](int task, const Thread& thread) {
      const int head = task / slices, first = task % slices * slice, count = std::min(slice, half - first);
      const std::int64_t first_row = std::int64_t{head} * heads.dim + first;
      float* low = thread.tile;  // [rows, 2 * count]: the first and the second half of each pair
      const std::int64_t width = 2 * count;
      if (count == half) {  // a whole head: its rows are contiguous
        multiply(linear, first_row, 2 * half, packed, rows, low, width, thread);
      } else {
        multiply(linear, first_row, count, packed, rows, low, width, thread);
        multiply(linear, first_row + half, count, packed, rows, low + count, width, thread);
      }
      for (int r = 0; r < rows; ++r, low += width) {
        if (linear.bias != nullptr) {
          for (int i = 0; i < count; ++i) low[i] += linear.bias[first_row + i];
          for (int i = 0; i < count; ++i) low[count + i] += linear.bias[first_row + half + i];
        }
        if (shaping.clip != 0) state_->kernels->clip(low, 2 * count, shaping.clip);
        const int kv_head = head - heads.query;
        const bool value = kv_head >= heads.kv;
        if (!value) {
          float* const to = kv_head < 0 ? q.row(r) + std::int64_t{head} * heads.dim + first : low;
          const float* cosine = angles.cosine + std::int64_t{r} * half + first;
          const float* sine = angles.sine + std::int64_t{r} * half + first;
          state_->kernels->rotate(low, low + count, cosine, sine, count, to, to + (kv_head < 0 ? half : count));
        }
        if (kv_head < 0) continue;
        const KvRow place = kv_row(plan_, at(r).sequence, layer.kind, value ? layer.values : layer.keys, heads.dim,
                                   value ? kv_head - heads.kv : kv_head, at(r).position);
        place.put(first, low, count);
        place.put(first + half, low + count, count);
      }
    });
  }

  /// Finishes qkv after its product, row by row: clip, norms, rotation, then the copy to q and to the pages. Modifies
  /// the projections [rows, q | k | v].
  void finish_qkv(Rows projected, Rope rope, Heads heads, KvLayer layer, Rows q, QkvShaping shaping = {}) {
    const int half = rope.rotating(heads.dim) / 2;
    const RopeTable::Angles angles = half > 0 ? state_->rope.angles(plan_, rope, half) : RopeTable::Angles{};
    const double nanoseconds = 8.0 * static_cast<double>(projected.size()) / bytes_per_ns;
    run(static_cast<int>(projected.extent(0)), nanoseconds, [&](std::uint32_t r, int) {
      cpu::finish_qkv_row(*state_->kernels, projected.row(r), projected.extent(1), plan_, static_cast<int>(r), rope,
                          angles, heads, layer, q, shaping);
    });
  }

  void attend(ConstRows q, Heads heads, KvLayer layer, Rows out, Attention attention = {}) {
    cpu::AttendTasks& tasks = state_->attention;
    tasks.share(plan_, heads.query / heads.kv, heads.kv, *state_->kernels);
    state_->reserve_scratch(cpu::attend_scratch(heads.dim));
    double nanoseconds = 0;
    for (const PlanSequence& sequence : plan_.sequences) {
      const int last = at(sequence.first_row + sequence.rows - 1).position + 1;
      const int seen = attention.window != 0 ? std::min(last, attention.window + sequence.rows) : last;
      const double multiplies = 2.0 * sequence.rows * heads.query * heads.dim * seen;
      const double bytes = 2.0 * heads.kv * static_cast<double>(kv_row_bytes(plan_.format, heads.dim)) * seen;
      nanoseconds += std::max(multiplies / multiplies_per_ns, bytes / bytes_per_ns);
    }
    run(tasks.count(), nanoseconds, [&](std::uint32_t index, int worker) {
      tasks.with(static_cast<int>(index), [&](const PlanSequence& sequence, int kv_head, int first, int count) {
        cpu::AttendTask task =
            cpu::attend_task(plan_, sequence, q, heads, layer, out, attention, kv_head, first, count);
        task.scratch = state_->scratch[static_cast<std::size_t>(worker)].data();
        state_->kernels->attend[static_cast<int>(plan_.format)](task);
      });
    });
  }

  template <class Matrix>
  void project(ConstRows input, const Linear<Matrix>& linear, Rows x, float factor = 1) {
    const int rows = static_cast<int>(input.extent(0));
    const float* packed = pack(linear, input, nullptr);
    const int out = static_cast<int>(linear.weight.out), slice = 2 * slice_rows(out);
    run_matmul(linear.weight, rows, ceil_div(out, slice), [=, this, &linear](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, out - first);
      multiply(linear, first, count, packed, rows, thread.tile, count, thread);
      for (int r = 0; r < rows; ++r) {
        float* to = x.row(r) + first;
        const float* from = thread.tile + std::int64_t{r} * count;
        if (linear.bias != nullptr) {
          for (int i = 0; i < count; ++i) to[i] += factor * (from[i] + linear.bias[first + i]);
        } else {
          for (int i = 0; i < count; ++i) to[i] += factor * from[i];
        }
      }
    });
  }

  template <class Matrix>
  void gated_mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out,
                 Activation activation = ActivationKind::silu) {
    const int rows = static_cast<int>(x.extent(0));
    const int ffn = static_cast<int>(linear.weight.out / 2);
    const float* packed = pack(linear, x, &norm);
    const int slice = slice_rows(2 * ffn);
    run_matmul(linear.weight, rows, ceil_div(ffn, slice), [=, this, &linear](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, ffn - first);
      float* gate = thread.tile;
      float* up = gate + std::int64_t{rows} * count;
      multiply(linear, first, count, packed, rows, gate, count, thread);
      multiply(linear, ffn + first, count, packed, rows, up, count, thread);
      for (int r = 0; r < rows; ++r, gate += count, up += count) {
        if (linear.bias != nullptr) {
          for (int i = 0; i < count; ++i) gate[i] += linear.bias[first + i];
          for (int i = 0; i < count; ++i) up[i] += linear.bias[ffn + first + i];
        }
        for (int i = 0; activation.factor != 1 && i < count; ++i) gate[i] *= activation.factor;
        state_->kernels->activate(activation, gate, up, nullptr, count, out.row(r) + first);
      }
    });
  }

  template <class Matrix>
  void mlp(ConstRows x, Norm norm, const Linear<Matrix>& linear, Activation activation, const float* divisor,
           Rows out) {
    matmul_into(linear, x, norm, out, [=, this](float* z, int first, int count) {
      state_->kernels->activate(activation, z, nullptr, divisor != nullptr ? divisor + first : nullptr, count, z);
    });
  }

  using ExpertProducts::add_mixture;
  using ExpertProducts::shares_experts;

  void scale(Rows x, float factor) {
    for (std::int64_t i = 0; i < x.size(); ++i) x.data[i] *= factor;
  }

  void add(Rows branch, Norm norm, Rows x) {
    each_row(x, [&](std::int64_t r) {
      float *const from = branch.row(r), *const to = x.row(r);
      state_->kernels->normalize(norm, from, x.extent(1), from);
      for (std::int64_t i = 0; i < x.extent(1); ++i) to[i] += from[i];
    });
  }

  void normalize(Rows x, Norm norm) {
    each_row(x, [&](std::int64_t r) { state_->kernels->normalize(norm, x.row(r), x.extent(1), x.row(r)); });
  }

  void recur(Rows projected, const Recurrence& recurrence, std::int64_t state, Rows out) {
    const auto share = [this](int count, double floats, const auto& task) {
      run(count, sizeof(float) * floats / bytes_per_ns,
          [&](std::uint32_t index, int) { task(static_cast<int>(index)); });
    };
    recurrent::recur(plan_, projected, recurrence, state, out, cpu::RecurrenceMath{*state_->kernels}, share);
  }

  template <class Matrix>
  void multiply_heads(ConstRows x, const Matrix& weight, int heads, Rows out) {
    const HeadProducts shape(x, weight, heads, out);
    const int rows = static_cast<int>(x.extent(0)), outputs = static_cast<int>(shape.outputs);
    const std::int64_t floats = packed_floats(weight, rows);
    State::grow(state_->packed, static_cast<std::size_t>(floats * heads));
    float* const packed = state_->packed.data();
    run(heads, 8.0 * static_cast<double>(x.size()) / bytes_per_ns, [&](std::uint32_t head, int) {
      const std::int64_t h = head;
      ConstRows inputs{x.data + h * shape.width + shape.first, rows, weight.in};
      inputs.strides[0] = x.stride(0);
      pack_to(weight, inputs, packed + h * floats);
      for (int r = 0; r < rows; ++r)
        std::copy_n(inputs.row(r) - shape.kept, shape.kept, out.row(r) + h * shape.out_width);
    });
    const int slice = 2 * slice_rows(static_cast<int>(weight.out)), slices = ceil_div(outputs, slice);
    run_matmul(weight, rows, heads * slices, [=, this, &weight](int task, const Thread& thread) {
      const std::int64_t head = task / slices;
      const int first = task % slices * slice, count = std::min(slice, outputs - first);
      Products::multiply(weight, head * outputs + first, count, packed + head * floats, rows,
                         out.data + head * shape.out_width + shape.kept + first, out.stride(0), thread);
    });
  }

  void select(ConstRows x, Rows out) {
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i)
      std::copy_n(x.row(plan_.outputs[i]), x.extent(1), out.row(static_cast<std::int64_t>(i)));
  }

  template <class Matrix>
  void logits(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rows out, Activation activation = {}) {
    matmul_into(linear, x, norm, out, [=, this](float* z, int, int count) {
      if (activation.kind == ActivationKind::identity) return;
      state_->kernels->activate(activation, z, nullptr, nullptr, count, z);
    });
  }

  void read(ConstRows x, Rows out) { std::copy_n(x.data, out.size(), out.data); }

 private:
  friend class HostRows<CpuStep>;

  void activate_row(const Activation& activation, float* gate, const float* up, std::int64_t width, float* out) const {
    state_->kernels->activate(activation, gate, up, nullptr, static_cast<int>(width), out);
  }

  const PlanRow& at(int row) const { return plan_.rows[static_cast<std::size_t>(row)]; }

  /// Calls use(row) for every row, on all threads if there are enough rows.
  template <class Use>
  void each_row(Rows x, const Use& use) {
    const double nanoseconds = 8.0 * static_cast<double>(x.size()) / bytes_per_ns;
    run(static_cast<int>(x.extent(0)), nanoseconds, [&](std::uint32_t r, int) { use(std::int64_t{r}); });
  }

  Rows scratch_of(int index, std::int64_t count, std::int64_t width) {
    State::grow(state_->step_scratch[index], static_cast<std::size_t>(count * width));
    return {state_->step_scratch[index].data(), count, width};
  }

  static void take_row(const MixedMatrix<cpu::CodeMatrix>& table, int index, float* to) {
    table.visit([&](const auto& held) { take_row(held, index, to); });
  }
  static void take_row(const cpu::CodeMatrix& table, int index, float* to) { table.dequantize(index, to); }
  template <class Matrix>
  static void take_row(const Matrix& table, int index, float* to) {
    const auto* row = table.row(index);
    for (std::int64_t i = 0; i < table.in; ++i) to[i] = to_float(row[i]);
  }

  /// out = norm(x) . weight^T + bias, then finish(out + first, first, count) for each part of a row.
  template <class Matrix, class Finish>
  void matmul_into(const Linear<Matrix>& linear, ConstRows x, const Norm& norm, Rows out, const Finish& finish) {
    const float* packed = pack(linear, x, &norm);
    const int rows = static_cast<int>(x.extent(0)), width = static_cast<int>(linear.weight.out);
    const int slice = 2 * slice_rows(width);
    run_matmul(linear.weight, rows, ceil_div(width, slice), [=, this, &linear](int task, const Thread& thread) {
      const int first = task * slice, count = std::min(slice, width - first);
      multiply(linear, first, count, packed, rows, out.data + first, out.stride(0), thread);
      for (int r = 0; r < rows; ++r) {
        float* row = out.row(r) + first;
        for (int i = 0; linear.bias != nullptr && i < count; ++i) row[i] += linear.bias[first + i];
        finish(row, first, count);
      }
    });
  }

  /// qkv for heads that cannot be finished slice by slice.
  template <class Matrix>
  void qkv_in_two_passes(ConstRows x, Norm norm, const Linear<Matrix>& linear, Rope rope, Heads heads, KvLayer layer,
                         Rows q, QkvShaping shaping) {
    const std::int64_t rows = x.extent(0), all = linear.weight.out;
    State::grow(state_->projected, static_cast<std::size_t>(rows * all));
    const Rows projected{state_->projected.data(), rows, all};
    matmul_into(linear, x, norm, projected, [](float*, int, int) {});
    finish_qkv(projected, rope, heads, layer, q, shaping);
  }

  std::unique_lock<std::mutex> lock_;
};

}}}
