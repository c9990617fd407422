// Kernels of recurrences. Each advances the rows of a sequence one after another, so that a row's bits do not depend on
// the rows of the step. A thread reads and writes its own part of the state only.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "slm/backend/gpu/kernels/stage.hpp"
#include "slm/backend/gpu/kernels/step_rows.hpp"
#include "slm/backend/gpu/runtime/launch.hpp"
#include "slm/core/mixer.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The shape is that of Mixer, with its derived widths.
struct RecurrenceArgs {
  MixerKind kind;
  MixerNorm norm_place;
  int taps, heads, head_dim, groups, state;
  int channels, inner, keys, width;  // width: of `projected`
  bool tiled;
  float gate_factor, dt_factor;              // mamba2
  std::int64_t conv_floats, floats;          // of a layer's state: the convolution's columns, and all
  std::int64_t layer;                        // byte offset of the layer's state in a page
  Memory<const float> conv, conv_bias;       // [taps, channels], [channels]; the bias may be empty
  Memory<const float> decay, dt_bias, skip;  // [heads]
  NormArgs norm;
  Memory<float> projected;               // [rows, width]
  Memory<float> out;                     // [rows, inner]
  Memory<const StepRow> rows;            // [rows]
  Memory<const StepSequence> sequences;  // [count]; empty: each row is a sequence
  Memory<std::byte* const> states;       // per sequence [1 + rows], see StepPlan::states
  int count;                             // sequences
  int row_count;

  SLM_DEVICE StepSequence sequence(int index) const {
    if (sequences) return sequences[index];
    return {index, rows[index].sequence < 0 ? 0 : 1};
  }
  /// Floats [first, first + size) of the layer's state in a page of `states`; empty at the start of a text.
  SLM_DEVICE Memory<float> state_in(std::int64_t index, std::int64_t first, std::int64_t size) const {
    std::byte* const page = states[index];
    if (page == nullptr) return {};
    return Memory<float>{reinterpret_cast<float*>(page + layer), floats}.part(first, size);
  }
};

SLM_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
SLM_DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
SLM_DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/// The sum over a block of waves, in each thread.
template <class Lane>
SLM_DEVICE float block_sum(Lane lane, float v, float (&partial)[most_waves], Where where = Where::here()) {
  v = lane.wave_sum(v, where);
  lane.barrier(where);  // the previous sum was read
  if (lane.lane_index() == 0) partial[lane.wave()] = v;
  lane.barrier(where);
  float sum = 0;
  for (int w = 0; w < lane.waves(); ++w) sum += partial[w];
  return sum;
}

/// The statistics of value(0) .. value(width - 1), each computed by one thread of the block.
template <class Lane, class Value>
SLM_DEVICE RowStatistics block_statistics(Lane lane, const NormArgs& norm, int width, const Value& value,
                                          float (&partial)[most_waves], Where where = Where::here()) {
  RowStatistics row_is{0.0f, 1.0f};
  if (norm.kind == NormKind::none) return row_is;
  if (norm.kind == NormKind::layer) {
    float sum = 0;
    for (int k = lane.thread(); k < width; k += lane.threads()) sum += value(k);
    row_is.mean = block_sum(lane, sum, partial, where) / static_cast<float>(width);
  }
  float squares = 0;
  for (int k = lane.thread(); k < width; k += lane.threads()) {
    const float d = value(k) - row_is.mean;
    squares = fmaf(d, d, squares);
  }
  row_is.scale = 1.0f / sqrtf(block_sum(lane, squares, partial, where) / static_cast<float>(width) + norm.epsilon);
  return row_is;
}

/// The convolution. short_conv: out = C * conv(B * x). Others: silu(conv(u)) in place of u. A thread computes a
/// channel.
struct Convolve {
  using Args = RecurrenceArgs;
  struct Shared {};
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) {
    return {.x = (args.channels + max_block - 1) / max_block, .y = args.count, .threads = max_block};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int c = lane.block_x() * max_block + lane.thread(), s = lane.block_y(), old = args.taps - 1;
    if (c >= args.channels) return;
    const bool gates = args.kind == MixerKind::short_conv;
    const int offset = args.kind == MixerKind::mamba2 ? args.inner : 0;
    const StepSequence sequence = args.sequence(s);
    for (int r = 0; r < sequence.rows; ++r) {
      const std::int64_t row = sequence.first_row + r, at = row * args.width;
      const Memory<float> before = args.state_in(row + s, 0, args.conv_floats);
      const Memory<float> after = args.state_in(row + s + 1, 0, args.conv_floats);
      float& u = args.projected[at + offset + c];
      const float newest = gates ? u * args.projected[at + 2 * args.inner + c] : u;
      float sum = args.conv_bias ? args.conv_bias[c] : 0.0f;
      for (int j = 0; before && j < old; ++j) {
        const std::int64_t tap = std::int64_t{j} * args.channels + c;
        sum = fmaf(args.conv[tap], before[tap], sum);
      }
      sum = fmaf(args.conv[std::int64_t{old} * args.channels + c], newest, sum);
      for (int j = 0; j < old; ++j) {
        const std::int64_t tap = std::int64_t{j} * args.channels + c;
        after[tap] = j + 1 == old ? newest : before ? before[tap + args.channels] : 0.0f;
      }
      if (gates) {
        args.out[row * args.inner + c] = args.projected[at + args.inner + c] * sum;
      } else {
        u = silu(sum);
      }
    }
  }
};

/// delta_net: a block computes a value head of a sequence, a thread its columns; then the norm and the gate.
struct AdvanceDelta {
  using Args = RecurrenceArgs;
  struct Shared {
    float partial[most_waves];
  };
  static constexpr int max_block = block_threads, least_blocks = 4;
  static Grid grid(const Args& args, int) {
    const int threads = args.head_dim <= 64 ? 64 : args.head_dim <= 128 ? 128 : max_block;
    return {.x = args.heads, .y = args.count, .threads = threads};
  }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int head = lane.block_x(), s = lane.block_y(), dk = args.state, dv = args.head_dim;
    const int key_head = args.tiled ? head % args.groups : head / (args.heads / args.groups);
    const std::int64_t matrix = std::int64_t{dk} * dv, part = args.conv_floats + head * matrix;
    const StepSequence sequence = args.sequence(s);
    for (int r = 0; r < sequence.rows; ++r) {
      const std::int64_t row = sequence.first_row + r, at = row * args.width;
      const Memory<float> before = args.state_in(row + s, part, matrix);
      const Memory<float> after = args.state_in(row + s + 1, part, matrix);
      const Memory<float> q = args.projected.part(at + std::int64_t{key_head} * dk, dk);
      const Memory<float> k = args.projected.part(at + args.keys + std::int64_t{key_head} * dk, dk);
      const Memory<float> v = args.projected.part(at + 2 * args.keys + std::int64_t{head} * dv, dv);
      const Memory<float> z = args.projected.part(at + args.channels + std::int64_t{head} * dv, dv);
      const std::int64_t numbers = at + args.channels + args.inner + head;  // b, then a
      const Memory<float> y = args.out.part(row * args.inner + std::int64_t{head} * dv, dv);
      const auto unit_scale = [&](const Memory<float>& x) {
        float squares = 0;
        for (int i = lane.thread(); i < dk; i += lane.threads()) squares = fmaf(x[i], x[i], squares);
        return 1.0f / sqrtf(block_sum(lane, squares, shared.partial) + 1e-6f);
      };
      const float q_scale = unit_scale(q) / sqrtf(static_cast<float>(dk)), k_scale = unit_scale(k);
      const float beta = sigmoid(args.projected[numbers]);
      const float decay = expf(args.decay[head] * softplus(args.projected[numbers + args.heads] + args.dt_bias[head]));
      for (int c = lane.thread(); c < dv; c += lane.threads()) {
        float change = 0;
        for (int i = 0; before && i < dk; ++i) {
          change = fmaf(k[i] * k_scale, before[std::int64_t{i} * dv + c], change);
        }
        change = fmaf(-decay, change, v[c]) * beta;
        float answer = 0;
        for (int i = 0; i < dk; ++i) {
          const std::int64_t place = std::int64_t{i} * dv + c;
          const float next = fmaf(k[i] * k_scale, change, before ? before[place] * decay : 0.0f);
          after[place] = next;
          answer = fmaf(q[i] * q_scale, next, answer);
        }
        y[c] = answer;
      }
      const RowStatistics all = block_statistics(
          lane, args.norm, dv, [&](int c) { return y[c]; }, shared.partial);
      for (int c = lane.thread(); c < dv; c += lane.threads()) y[c] = normalized(y[c], c, all, args.norm) * silu(z[c]);
    }
  }
};

/// mamba2: a block computes a head of a sequence, a wave rows of its state; without gate and norm.
struct AdvanceMamba {
  using Args = RecurrenceArgs;
  struct Shared {};
  static constexpr int max_block = block_threads, least_blocks = 4;
  static Grid grid(const Args& args, int) { return {.x = args.heads, .y = args.count, .threads = max_block}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const int head = lane.block_x(), s = lane.block_y(), n = args.state, dim = args.head_dim;
    const int group = head / (args.heads / args.groups);
    const std::int64_t matrix = std::int64_t{n} * dim, part = args.conv_floats + head * matrix;
    const StepSequence sequence = args.sequence(s);
    for (int r = 0; r < sequence.rows; ++r) {
      const std::int64_t row = sequence.first_row + r, at = row * args.width;
      const Memory<float> before = args.state_in(row + s, part, matrix);
      const Memory<float> after = args.state_in(row + s + 1, part, matrix);
      const Memory<float> x = args.projected.part(at + args.inner + std::int64_t{head} * dim, dim);
      const Memory<float> b = args.projected.part(at + 2 * args.inner + std::int64_t{group} * n, n);
      const Memory<float> c = args.projected.part(at + 2 * args.inner + args.keys + std::int64_t{group} * n, n);
      const float dt =
          softplus(fmaf(args.dt_factor, args.projected[at + args.inner + args.channels + head], args.dt_bias[head]));
      const float decay = expf(dt * args.decay[head]);
      for (int i = lane.wave(); i < dim; i += lane.waves()) {
        float sum = 0;
        for (int j = lane.lane_index(); j < n; j += Lane::width) {
          const std::int64_t place = std::int64_t{i} * n + j;
          const float next = fmaf(dt * x[i], b[j], before ? before[place] * decay : 0.0f);
          after[place] = next;
          sum = fmaf(next, c[j], sum);
        }
        sum = lane.wave_sum(sum);
        if (lane.lane_index() == 0)
          args.out[row * args.inner + std::int64_t{head} * dim + i] = fmaf(args.skip[head], x[i], sum);
      }
    }
  }
};

/// mamba2: the gate and the norm of one group of a row's outputs.
struct FinishMamba {
  using Args = RecurrenceArgs;
  struct Shared {
    float partial[most_waves];
  };
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.row_count, .y = args.groups, .threads = max_block}; }

  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared& shared) const {
    const int row = lane.block_x(), size = args.inner / args.groups, first = lane.block_y() * size;
    const Memory<float> y = args.out.part(std::int64_t{row} * args.inner + first, size);
    const Memory<float> z = args.projected.part(std::int64_t{row} * args.width + first, size);
    const auto gate = [&](int k) { return silu(args.gate_factor * z[k]); };
    const bool gates_first = args.norm_place != MixerNorm::before_gate;
    for (int k = lane.thread(); gates_first && k < size; k += lane.threads()) y[k] *= gate(k);
    if (args.norm_place == MixerNorm::none) return;
    const RowStatistics all = block_statistics(
        lane, args.norm, size, [&](int k) { return y[k]; }, shared.partial);
    for (int k = lane.thread(); k < size; k += lane.threads()) {
      const float v = normalized(y[k], first + k, all, args.norm);
      y[k] = gates_first ? v : v * gate(k);
    }
  }
};

/// x *= sigmoid(gate)
struct GateBySigmoid {
  struct Args {
    Memory<float> x;           // [rows, width]
    Memory<const float> gate;  // [rows, width]
    int width, rows;
  };
  struct Shared {};
  static constexpr int max_block = block_threads;
  static Grid grid(const Args& args, int) { return {.x = args.rows, .threads = max_block}; }
  template <class Lane>
  SLM_DEVICE void operator()(Lane lane, const Args& args, Shared&) const {
    const std::int64_t row = lane.block_x();
    for (int k = lane.thread(); k < args.width; k += lane.threads()) {
      args.x[row * args.width + k] *= sigmoid(args.gate[row * args.width + k]);
    }
  }
};

}}}
