// What backend::Cpu is asked for when it is made.
#pragma once

#include "slm/backend/cpu/isa.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// What activations are rounded to for products with weights of four or eight bits: fixed point with a scale for each
/// group (at most 128 values), or bytes with a scale for at most 32 values. The error of a product is some 3e-5, or
/// 6e-3; of a model's logits with fixed point, up to 1e-4 of the largest.
enum class Int4Activations {
  automatic,  // bits16 on every processor: bits8 are faster on some, not as good (docs/activations.md)
  bits16,
  bits8,  // faster for several rows where there is no matrix unit
};

/// What activations are rounded to for products with bfloat16 weights where the processor multiplies pairs of such
/// (has_bf16_products): in a matrix unit fewer terms read several rows and prompts faster; with AVX512-BF16 one term is
/// half the operations. Elsewhere nothing is rounded, whatever is asked.
enum class DenseActivations {
  exact,   // the sum of three bfloat16 terms is the activation
  bf16x2,  // of two is within 2^-17 of it
  bf16,    // one is within 2^-8 of it
};

constexpr const char* name_of(DenseActivations activations) {
  switch (activations) {
    case DenseActivations::exact: return "exact";
    case DenseActivations::bf16x2: return "bf16x2";
    case DenseActivations::bf16: return "bf16";
  }
  return "?";
}

struct CpuOptions {
  int threads = 0;           // 0: one per core that this process may use
  Isa isa = Isa::automatic;  // for tests; the best set of this machine otherwise
  Int4Activations activations = Int4Activations::automatic;
  DenseActivations dense_activations = DenseActivations::exact;
  /// Copies weights of floating point into huge pages when they are loaded, instead of reading them where the file is
  /// mapped: decoding reads them faster, but they fill memory of their own. Those of a quantized model always are.
  bool copy_weights = false;
};

}}}
