// The recurrences of RecurrentStep in host memory. A sequence advances token by token, so that the bits of a row do not
// depend on the rows of the step. Tasks are channels of the convolution and heads; each owns its part of the state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "slm/backend/plan.hpp"
#include "slm/backend/recurrence.hpp"

namespace slm { inline namespace v0_1 { namespace backend::recurrent {

inline float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
inline float silu(float x) { return x * sigmoid(x); }
inline float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

/// The state of one layer before and after a row; `before` is null at the start of a text. Both may be equal.
struct StateRow {
  const float* before;
  float* after;
};

/// The states of a sequence's row. part: offset in floats in the layer's state.
inline StateRow state_row(const StepPlan& plan, const PlanSequence& sequence, int row, std::int64_t layer,
                          std::int64_t part) {
  const auto at = [&](int index) -> float* {
    std::byte* const page = plan.states[static_cast<std::size_t>(sequence.first_state + index)];
    return page == nullptr ? nullptr : reinterpret_cast<float*>(page + layer) + part;
  };
  return {at(row), at(row + 1)};
}

/// The convolution of channels [first, first + count) of one row, with its state: out = bias + sum of taps. `out` may
/// be u.
inline void convolve(const Recurrence& of, const float* u, int first, int count, StateRow state, float* out) {
  const std::int64_t channels = of.shape.channels();
  const int old = of.shape.taps - 1;
  float sums[64], newest[64];
  for (int c = 0; c < count; ++c) newest[c] = u[c];
  for (int c = 0; c < count; ++c) sums[c] = of.conv_bias == nullptr ? 0 : of.conv_bias[first + c];
  for (int j = 0; state.before != nullptr && j < old; ++j) {
    const float *taps = of.conv + j * channels + first, *column = state.before + j * channels + first;
    for (int c = 0; c < count; ++c) sums[c] += taps[c] * column[c];
  }
  const float* const taps = of.conv + old * channels + first;
  for (int c = 0; c < count; ++c) sums[c] += taps[c] * newest[c];
  for (int j = 0; j + 1 < old; ++j) {
    float* const to = state.after + j * channels + first;
    for (int c = 0; c < count; ++c) to[c] = state.before == nullptr ? 0 : state.before[(j + 1) * channels + first + c];
  }
  if (old > 0) std::copy_n(newest, count, state.after + (old - 1) * channels + first);
  std::copy_n(sums, count, out);
}

constexpr int conv_task = 64;  // channels

/// short_conv: out = C * conv(B * x).
inline void short_conv(const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                       const Recurrence& of, std::int64_t layer, int first, int count, View<float, 2> out) {
  const std::int64_t width = of.shape.inner();
  for (int r = 0; r < sequence.rows; ++r) {
    const float* const row = projected.row(sequence.first_row + r) + first;
    float u[conv_task];
    for (int c = 0; c < count; ++c) u[c] = row[c] * row[2 * width + c];
    convolve(of, u, first, count, state_row(plan, sequence, r, layer, 0), u);
    float* const to = out.row(sequence.first_row + r) + first;
    for (int c = 0; c < count; ++c) to[c] = row[width + c] * u[c];
  }
}

/// The convolution of the other mixers, in place: u = silu(conv(u)).
inline void convolve_in_place(const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                              const Recurrence& of, std::int64_t layer, int first, int count) {
  const std::int64_t offset = of.shape.kind == MixerKind::mamba2 ? of.shape.inner() : 0;
  for (int r = 0; r < sequence.rows; ++r) {
    float* const u = projected.row(sequence.first_row + r) + offset + first;
    convolve(of, u, first, count, state_row(plan, sequence, r, layer, 0), u);
    for (int c = 0; c < count; ++c) u[c] = silu(u[c]);
  }
}

/// factor / sqrt(sum of squares + 1e-6)
inline float unit_scale(const float* x, int width, float factor) {
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  return factor / std::sqrt(squares + 1e-6f);
}

/// out = weight * x / sqrt(mean(x^2) + epsilon); out may be x.
inline void rms(const float* x, int width, const float* weight, float epsilon, float* out) {
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
  for (int i = 0; i < width; ++i) out[i] = weight == nullptr ? x[i] * scale : x[i] * scale * weight[i];
}

/// delta_net: one value head of a sequence, after the convolution. Overwrites the head's values.
inline void delta_head(const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                       const Recurrence& of, std::int64_t layer, int head, View<float, 2> out) {
  const Mixer& shape = of.shape;
  const int dk = shape.state, dv = shape.head_dim;
  const int key_head = shape.tiled ? head % shape.groups : head / (shape.heads / shape.groups);
  const std::int64_t part = shape.conv_floats() + std::int64_t{head} * dk * dv;
  for (int r = 0; r < sequence.rows; ++r) {
    float* const row = projected.row(sequence.first_row + r);
    const StateRow state = state_row(plan, sequence, r, layer, part);
    const float* const q = row + std::int64_t{key_head} * dk;
    const float* const k = q + shape.keys();
    const float q_scale = unit_scale(q, dk, 1.0f / std::sqrt(static_cast<float>(dk))), k_scale = unit_scale(k, dk, 1);
    float* const v = row + 2 * shape.keys() + std::int64_t{head} * dv;  // later the change of the state
    const float* const z = row + shape.channels() + std::int64_t{head} * dv;
    const float* const numbers = row + shape.channels() + shape.inner() + head;  // b, then a
    const float beta = sigmoid(numbers[0]);
    const float decay = std::exp(of.decay[head] * softplus(numbers[shape.heads] + of.dt_bias[head]));
    float* const y = out.row(sequence.first_row + r) + std::int64_t{head} * dv;
    std::fill_n(y, dv, 0.0f);  // first the old state's answer to k
    for (int i = 0; state.before != nullptr && i < dk; ++i) {
      const float* const from = state.before + std::int64_t{i} * dv;
      const float key = k[i] * k_scale;
      for (int j = 0; j < dv; ++j) y[j] += key * (decay * from[j]);
    }
    for (int j = 0; j < dv; ++j) v[j] = beta * (v[j] - y[j]);
    std::fill_n(y, dv, 0.0f);
    for (int i = 0; i < dk; ++i) {
      const float* const from = state.before == nullptr ? nullptr : state.before + std::int64_t{i} * dv;
      float* const to = state.after + std::int64_t{i} * dv;
      const float key = k[i] * k_scale, query = q[i] * q_scale;
      for (int j = 0; j < dv; ++j) {
        to[j] = (from == nullptr ? 0 : decay * from[j]) + key * v[j];
        y[j] += query * to[j];
      }
    }
    rms(y, dv, of.norm.weight, of.norm.epsilon, y);
    for (int j = 0; j < dv; ++j) y[j] *= silu(z[j]);
  }
}

/// mamba2: one head of a sequence, after the convolution, without the norm.
inline void mamba_head(const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                       const Recurrence& of, std::int64_t layer, int head, View<float, 2> out) {
  const Mixer& shape = of.shape;
  const int n = shape.state, width = shape.head_dim;
  const std::int64_t group = std::int64_t{head} * shape.groups / shape.heads;
  const std::int64_t size = std::int64_t{n} * width, part = shape.conv_floats() + head * size;
  for (int r = 0; r < sequence.rows; ++r) {
    const float* const row = projected.row(sequence.first_row + r);
    const StateRow state = state_row(plan, sequence, r, layer, part);
    const float* const x = row + shape.inner() + std::int64_t{head} * width;
    const float* const b = row + 2 * shape.inner() + group * n;
    const float* const c = b + shape.keys();
    const float dt = softplus(of.dt_factor * row[shape.inner() + shape.channels() + head] + of.dt_bias[head]);
    const float decay = std::exp(dt * of.decay[head]);
    float* const y = out.row(sequence.first_row + r) + std::int64_t{head} * width;
    for (int i = 0; i < width; ++i) {
      const float* const from = state.before == nullptr ? nullptr : state.before + std::int64_t{i} * n;
      float* const to = state.after + std::int64_t{i} * n;
      const float step = dt * x[i];
      float sum = 0;
      for (int j = 0; j < n; ++j) {
        const float next = (from == nullptr ? 0 : decay * from[j]) + step * b[j];
        to[j] = next;
        sum += next * c[j];
      }
      y[i] = sum + of.skip[head] * x[i];
    }
  }
}

/// mamba2: the gate and the norm of one row.
inline void finish_mamba(const Recurrence& of, const float* z, float* y) {
  const Mixer& shape = of.shape;
  const auto inner = static_cast<int>(shape.inner()), width = inner / shape.groups;
  const auto gate = [&] {
    for (int i = 0; i < inner; ++i) y[i] *= silu(of.gate_factor * z[i]);
  };
  if (shape.norm != MixerNorm::before_gate) gate();
  for (int g = 0; shape.norm != MixerNorm::none && g < shape.groups; ++g)
    rms(y + g * width, width, of.norm.weight + g * width, of.norm.epsilon, y + g * width);
  if (shape.norm == MixerNorm::before_gate) gate();
}

/// RecurrentStep::recur. run(count, floats, task): calls task(index) for each index below count, in any order; `floats`
/// is the number of floats that they read.
template <class Run>
void recur(const StepPlan& plan, View<float, 2> projected, const Recurrence& of, std::int64_t layer, View<float, 2> out,
           const Run& run) {
  const Mixer& shape = of.shape;
  const auto channels = static_cast<int>(shape.channels()), rows = static_cast<int>(plan.rows.size());
  const auto sequences = static_cast<int>(plan.sequences.size());
  const auto of_each = [&](int parts, double floats, const auto& task) {
    run(parts * sequences, floats,
        [&](int index) { task(plan.sequences[static_cast<std::size_t>(index / parts)], index % parts); });
  };
  const int parts = (channels + conv_task - 1) / conv_task;
  of_each(parts, 2.0 * shape.taps * channels * rows, [&](const PlanSequence& sequence, int part) {
    const int first = part * conv_task, count = std::min(conv_task, channels - first);
    if (shape.kind == MixerKind::short_conv) {
      short_conv(plan, sequence, projected, of, layer, first, count, out);
    } else {
      convolve_in_place(plan, sequence, projected, of, layer, first, count);
    }
  });
  if (shape.kind == MixerKind::short_conv) return;
  of_each(shape.heads, 4.0 * static_cast<double>(shape.matrix_floats()) * rows,
          [&](const PlanSequence& sequence, int head) {
            if (shape.kind == MixerKind::delta_net) {
              delta_head(plan, sequence, projected, of, layer, head, out);
            } else {
              mamba_head(plan, sequence, projected, of, layer, head, out);
            }
          });
  if (shape.kind != MixerKind::mamba2) return;
  run(rows, 4.0 * static_cast<double>(shape.inner()) * rows,
      [&](int row) { finish_mamba(of, projected.row(row), out.row(row)); });
}

}}}
