// Recurrence: the operands of a layer's recurrence, and the operations of backends that compute it.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/core/mixer.hpp"

namespace slm { inline namespace v0_1 {

/// The vectors of a mixer, in device memory; null: none.
struct Recurrence {
  Mixer shape = {};
  const float* conv = nullptr;       // [taps, channels]; the last row meets the newest column
  const float* conv_bias = nullptr;  // [channels]
  const float* decay = nullptr;      // [heads]: -e^A_log
  const float* dt_bias = nullptr;    // [heads]
  const float* skip = nullptr;       // [heads]: D of mamba2
  float gate_factor = 1;             // mamba2: of z
  float dt_factor = 1;               // mamba2
  Norm norm = {};                    // of the output: weights [head_dim] for delta_net, [inner] for mamba2
};

/// Further operations of a step. A state page holds the states of all layers of a sequence after one position.
///   recur  out [rows, inner]  the recurrence over each sequence's rows of `projected` [rows, projected], which it may
///                             modify. Starts from the state before the sequence's first row, and writes the state
///                             after each row to its page: see StepPlan::states. state: the layer's byte offset there
///   gate   x [rows, width]    x *= sigmoid(gate)
template <class Step>
concept RecurrentStep = requires(Step& step, typename Step::Rows rows, const Recurrence& recurrence,
                                 std::int64_t state) {
  step.recur(rows, recurrence, state, rows);
  step.gate(rows, rows);
};

}}
