// The recurrence of a layer as launches.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/kernels/recurrence.hpp"
#include "slm/backend/gpu/steps/plan_upload.hpp"
#include "slm/backend/gpu/steps/step_arguments.hpp"
#include "slm/backend/recurrence.hpp"
#include "slm/core/view.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// layer: byte offset of the layer's state in a state page. sequences: of the step's shape.
inline RecurrenceArgs recurrence_args(const Recurrence& of, const DevicePlan& plan, int sequences,
                                      View<float, 2> projected, std::int64_t layer, View<float, 2> out) {
  const Mixer& shape = of.shape;
  const std::int64_t channels = shape.channels(), heads = shape.heads;
  return {.kind = shape.kind,
          .norm_place = shape.norm,
          .taps = shape.taps,
          .heads = shape.heads,
          .head_dim = shape.head_dim,
          .groups = shape.groups,
          .state = shape.state,
          .channels = static_cast<int>(channels),
          .inner = static_cast<int>(shape.inner()),
          .keys = static_cast<int>(shape.keys()),
          .width = static_cast<int>(shape.projected()),
          .tiled = shape.tiled,
          .gate_factor = of.gate_factor,
          .dt_factor = of.dt_factor,
          .conv_floats = shape.conv_floats(),
          .floats = shape.state_floats(),
          .layer = layer,
          .conv = memory(of.conv, shape.taps * channels),
          .conv_bias = memory(of.conv_bias, channels),
          .decay = memory(of.decay, heads),
          .dt_bias = memory(of.dt_bias, heads),
          .skip = memory(of.skip, heads),
          .norm = norm_args(of.norm, shape.kind == MixerKind::mamba2 ? shape.inner() : shape.head_dim),
          .projected = memory(projected),
          .out = memory(out),
          .rows = plan.rows,
          .sequences = plan.sequences,
          .states = plan.states,
          .count = sequences,
          .row_count = static_cast<int>(projected.extent(0))};
}

/// RecurrentStep::recur
template <class State>
void run_recurrence(State& state, const RecurrenceArgs& args) {
  state.template launch<Convolve>(args);
  if (args.kind == MixerKind::delta_net) state.template launch<AdvanceDelta>(args);
  if (args.kind != MixerKind::mamba2) return;
  state.template launch<AdvanceMamba>(args);
  state.template launch<FinishMamba>(args);
}

}}}
