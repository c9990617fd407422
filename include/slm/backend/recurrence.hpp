// Recurrence: the operands of a layer's recurrence, the operations of backends that compute it, and the operands of one
// row, which Reference and the CPU's kernels compute differently.
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

namespace backend::recurrent {

// before, after: the state of the part before and after the row; before is null at the start of a text, and may be
// `after`.

/// out = bias + sum of taps over the channels' last columns. out may be u.
struct ConvolveTask {
  const float* u = nullptr;     // [count]: the newest column
  const float* conv = nullptr;  // [taps, stride]
  const float* bias = nullptr;  // [count]; null: none
  const float* before = nullptr;
  float* after = nullptr;  // [taps - 1, stride]: the last columns
  float* out = nullptr;    // [count]
  std::int64_t stride = 0;
  int taps = 0;
  int count = 0;
};

/// S = decay S; S += k (beta (v - S^T k))^T; out = S^T q, with unit vectors q and k.
struct DeltaTask {
  const float* q = nullptr;  // [keys]
  const float* k = nullptr;  // [keys]
  const float* v = nullptr;  // [width]
  const float* before = nullptr;
  float* after = nullptr;  // [keys, width]
  float* out = nullptr;    // [width]
  float q_scale = 1;       // factors of q and k
  float k_scale = 1;
  float beta = 0;
  float decay = 0;
  int keys = 0;
  int width = 0;
};

/// h = decay h + (dt x) b^T; out = h c + skip x.
struct MambaTask {
  const float* x = nullptr;  // [width]
  const float* b = nullptr;  // [state]
  const float* c = nullptr;  // [state]
  const float* before = nullptr;
  float* after = nullptr;  // [width, state]
  float* out = nullptr;    // [width]
  float dt = 0;
  float decay = 0;
  float skip = 0;
  int state = 0;
  int width = 0;
};

}  // namespace backend::recurrent

}}
