// The recurrences of RecurrentStep in host memory. A sequence advances token by token, so that the bits of a row do not
// depend on the rows of the step. Tasks are channels of the convolution and heads; each owns its part of the state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "slm/backend/plan.hpp"
#include "slm/backend/recurrence.hpp"
#include "slm/core/rounded_math.hpp"

namespace slm { inline namespace v0_1 { namespace backend::recurrent {

using detail::rounded_exp, detail::rounded_softplus;
inline float sigmoid(float x) { return detail::rounded_sigmoid(x); }

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

/// The convolution of channels [first, first + count) of one row, with its state. `out` may be u.
template <class Math>
void convolve(const Math& math, const Recurrence& of, const float* u, int first, int count, StateRow state,
              float* out) {
  math.convolve({.u = u,
                 .conv = of.conv + first,
                 .bias = of.conv_bias == nullptr ? nullptr : of.conv_bias + first,
                 .before = state.before == nullptr ? nullptr : state.before + first,
                 .after = state.after + first,
                 .out = out,
                 .stride = of.shape.channels(),
                 .taps = of.shape.taps,
                 .count = count});
}

constexpr int conv_task = 64;  // channels

/// short_conv: out = C * conv(B * x).
template <class Math>
void short_conv(const Math& math, const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                const Recurrence& of, std::int64_t layer, int first, int count, View<float, 2> out) {
  const std::int64_t width = of.shape.inner();
  for (int r = 0; r < sequence.rows; ++r) {
    const float* const row = projected.row(sequence.first_row + r) + first;
    float u[conv_task];
    for (int c = 0; c < count; ++c) u[c] = row[c] * row[2 * width + c];
    convolve(math, of, u, first, count, state_row(plan, sequence, r, layer, 0), u);
    float* const to = out.row(sequence.first_row + r) + first;
    for (int c = 0; c < count; ++c) to[c] = row[width + c] * u[c];
  }
}

/// The convolution of the other mixers, in place: u = silu(conv(u)).
template <class Math>
void convolve_in_place(const Math& math, const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                       const Recurrence& of, std::int64_t layer, int first, int count) {
  const std::int64_t offset = of.shape.kind == MixerKind::mamba2 ? of.shape.inner() : 0;
  for (int r = 0; r < sequence.rows; ++r) {
    float* const u = projected.row(sequence.first_row + r) + offset + first;
    convolve(math, of, u, first, count, state_row(plan, sequence, r, layer, 0), u);
    math.silu(u, count, u);
  }
}

/// factor / sqrt(sum of squares + 1e-6)
inline float unit_scale(const float* x, int width, float factor) {
  float squares = 0;
  for (int i = 0; i < width; ++i) squares += x[i] * x[i];
  return factor / std::sqrt(squares + 1e-6f);
}

/// delta_net: one value head of a sequence, after the convolution.
template <class Math>
void delta_head(const Math& math, const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                const Recurrence& of, std::int64_t layer, int head, View<float, 2> out) {
  const Mixer& shape = of.shape;
  const int dk = shape.state, dv = shape.head_dim;
  const int key_head = shape.tiled ? head % shape.groups : head / (shape.heads / shape.groups);
  const std::int64_t part = shape.conv_floats() + std::int64_t{head} * dk * dv;
  for (int r = 0; r < sequence.rows; ++r) {
    const float* const row = projected.row(sequence.first_row + r);
    const StateRow state = state_row(plan, sequence, r, layer, part);
    const float* const q = row + std::int64_t{key_head} * dk;
    const float* const k = q + shape.keys();
    const float* const z = row + shape.channels() + std::int64_t{head} * dv;
    const float* const numbers = row + shape.channels() + shape.inner() + head;  // b, then a
    float* const y = out.row(sequence.first_row + r) + std::int64_t{head} * dv;
    math.delta({.q = q,
                .k = k,
                .v = row + 2 * shape.keys() + std::int64_t{head} * dv,
                .before = state.before,
                .after = state.after,
                .out = y,
                .q_scale = unit_scale(q, dk, 1.0f / std::sqrt(static_cast<float>(dk))),
                .k_scale = unit_scale(k, dk, 1),
                .beta = sigmoid(numbers[0]),
                .decay = rounded_exp(of.decay[head] * rounded_softplus(numbers[shape.heads] + of.dt_bias[head])),
                .keys = dk,
                .width = dv});
    math.normalize(of.norm, dv, y);
    math.gate(z, dv, y);
  }
}

/// mamba2: one head of a sequence, after the convolution, without the norm.
template <class Math>
void mamba_head(const Math& math, const StepPlan& plan, const PlanSequence& sequence, View<float, 2> projected,
                const Recurrence& of, std::int64_t layer, int head, View<float, 2> out) {
  const Mixer& shape = of.shape;
  const int n = shape.state, width = shape.head_dim;
  const std::int64_t group = std::int64_t{head} * shape.groups / shape.heads;
  const std::int64_t part = shape.conv_floats() + std::int64_t{head} * n * width;
  for (int r = 0; r < sequence.rows; ++r) {
    const float* const row = projected.row(sequence.first_row + r);
    const StateRow state = state_row(plan, sequence, r, layer, part);
    const float* const b = row + 2 * shape.inner() + group * n;
    const float dt = rounded_softplus(of.dt_factor * row[shape.inner() + shape.channels() + head] + of.dt_bias[head]);
    math.mamba({.x = row + shape.inner() + std::int64_t{head} * width,
                .b = b,
                .c = b + shape.keys(),
                .before = state.before,
                .after = state.after,
                .out = out.row(sequence.first_row + r) + std::int64_t{head} * width,
                .dt = dt,
                .decay = rounded_exp(dt * of.decay[head]),
                .skip = of.skip[head],
                .state = n,
                .width = width});
  }
}

/// mamba2: the gate z, which it overwrites, and the norm of one row.
template <class Math>
void finish_mamba(const Math& math, const Recurrence& of, float* z, float* y) {
  const Mixer& shape = of.shape;
  const auto inner = static_cast<int>(shape.inner()), width = inner / shape.groups;
  for (int i = 0; of.gate_factor != 1 && i < inner; ++i) z[i] *= of.gate_factor;
  if (shape.norm != MixerNorm::before_gate) math.gate(z, inner, y);
  for (int g = 0; shape.norm != MixerNorm::none && g < shape.groups; ++g) {
    Norm norm = of.norm;
    norm.weight += g * width;
    math.normalize(norm, width, y + g * width);
  }
  if (shape.norm == MixerNorm::before_gate) math.gate(z, inner, y);
}

/// RecurrentStep::recur. run(count, floats, task): calls task(index) for each index below count, in any order; `floats`
/// is the number of floats that they read. math: convolve, delta and mamba of their tasks, silu(x, count, out),
/// gate(z, count, y): y *= silu(z), and normalize(norm, count, y).
template <class Math, class Run>
void recur(const StepPlan& plan, View<float, 2> projected, const Recurrence& of, std::int64_t layer, View<float, 2> out,
           const Math& math, const Run& run) {
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
      short_conv(math, plan, sequence, projected, of, layer, first, count, out);
    } else {
      convolve_in_place(math, plan, sequence, projected, of, layer, first, count);
    }
  });
  if (shape.kind == MixerKind::short_conv) return;
  of_each(shape.heads, 4.0 * static_cast<double>(shape.matrix_floats()) * rows,
          [&](const PlanSequence& sequence, int head) {
            if (shape.kind == MixerKind::delta_net) {
              delta_head(math, plan, sequence, projected, of, layer, head, out);
            } else {
              mamba_head(math, plan, sequence, projected, of, layer, head, out);
            }
          });
  if (shape.kind != MixerKind::mamba2) return;
  run(rows, 4.0 * static_cast<double>(shape.inner()) * rows,
      [&](int row) { finish_mamba(math, of, projected.row(row), out.row(row)); });
}

}}}
