// The recurrences of backend::Reference: plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "slm/backend/host_recurrence.hpp"
#include "slm/backend/reference/row_functions.hpp"

namespace slm { inline namespace v0_1 { namespace backend::reference {

/// The Math of recurrent::recur.
struct RecurrenceMath {
  void convolve(const recurrent::ConvolveTask& task) const {
    const int old = task.taps - 1;
    for (int c = 0; c < task.count; ++c) {
      const float newest = task.u[c];
      float sum = task.bias == nullptr ? 0 : task.bias[c];
      for (int j = 0; task.before != nullptr && j < old; ++j)
        sum += task.conv[j * task.stride + c] * task.before[j * task.stride + c];
      task.out[c] = sum + task.conv[old * task.stride + c] * newest;
      for (int j = 0; j + 1 < old; ++j)
        task.after[j * task.stride + c] = task.before == nullptr ? 0 : task.before[(j + 1) * task.stride + c];
      if (old > 0) task.after[(old - 1) * task.stride + c] = newest;
    }
  }

  void delta(const recurrent::DeltaTask& task) const {
    const std::int64_t width = task.width;
    for (int j = 0; j < task.width; ++j) {
      float seen = 0, answer = 0;
      for (int i = 0; task.before != nullptr && i < task.keys; ++i)
        seen += task.k[i] * task.k_scale * (task.decay * task.before[i * width + j]);
      const float change = task.beta * (task.v[j] - seen);
      for (int i = 0; i < task.keys; ++i) {
        const float old = task.before == nullptr ? 0 : task.decay * task.before[i * width + j];
        const float next = old + task.k[i] * task.k_scale * change;
        task.after[i * width + j] = next;
        answer += task.q[i] * task.q_scale * next;
      }
      task.out[j] = answer;
    }
  }

  void mamba(const recurrent::MambaTask& task) const {
    for (int i = 0; i < task.width; ++i) {
      float sum = 0;
      for (int j = 0; j < task.state; ++j) {
        const std::int64_t at = std::int64_t{i} * task.state + j;
        const float old = task.before == nullptr ? 0 : task.decay * task.before[at];
        const float next = old + task.dt * task.x[i] * task.b[j];
        task.after[at] = next;
        sum += next * task.c[j];
      }
      task.out[i] = sum + task.skip * task.x[i];
    }
  }

  void silu(const float* x, int count, float* out) const {
    for (int i = 0; i < count; ++i) out[i] = x[i] * recurrent::sigmoid(x[i]);
  }
  void gate(const float* z, int count, float* y) const {
    for (int i = 0; i < count; ++i) y[i] *= z[i] * recurrent::sigmoid(z[i]);
  }
  void normalize(const Norm& norm, int count, float* y) const { normalize_row(y, count, norm, y); }
};

}}}
