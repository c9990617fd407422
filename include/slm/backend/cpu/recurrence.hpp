// RecurrenceMath: the recurrences of the CPU by the kernels of its instruction set.
#pragma once

#include "slm/backend/cpu/kernel_table.hpp"
#include "slm/backend/host_recurrence.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// The Math of recurrent::recur.
struct RecurrenceMath {
  const CommonKernels& kernels;

  void convolve(const recurrent::ConvolveTask& task) const { kernels.convolve(task); }
  void delta(const recurrent::DeltaTask& task) const { kernels.advance_delta(task); }
  void mamba(const recurrent::MambaTask& task) const { kernels.advance_mamba(task); }
  void silu(const float* x, int count, float* out) const {
    kernels.activate(ActivationKind::silu, x, nullptr, nullptr, count, out);
  }
  void gate(const float* z, int count, float* y) const {
    kernels.activate(ActivationKind::silu, z, y, nullptr, count, y);
  }
  void normalize(const Norm& norm, int count, float* y) const { kernels.normalize(norm, y, count, y); }
};

}}}
