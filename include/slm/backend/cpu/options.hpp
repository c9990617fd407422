// Options of backend::Cpu.
#pragma once

#include <memory>

#include "slm/backend/cpu/isa.hpp"
#include "slm/core/executor.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

/// Rounding of activations for products with weights of four to eight bits. bits16: fixed point with one scale per
/// group (at most 128 values). bits8: bytes with one scale per at most 32 values. Relative error of a product: about
/// 3e-5 and 6e-3. Error of a model's logits with bits16: up to 1e-4 of the largest.
enum class Int4Activations {
  automatic,  // bits16 on every processor; bits8 is faster on some, but less accurate (docs/activations.md)
  bits16,
  bits8,  // faster for several rows on processors without AMX
};

/// Rounding of activations for products with bfloat16 weights on processors with bfloat16 dot products
/// (has_bf16_products). Fewer terms are faster: with AMX for several rows and prompts, with AVX512-BF16 one term halves
/// the operations. Other processors round nothing.
enum class DenseActivations {
  exact,   // the sum of three bfloat16 terms equals the activation
  bf16x2,  // two terms: error at most 2^-17
  bf16,    // one term: error at most 2^-8
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
  int threads = 0;           // 0: one per usable core, in a pool that all such devices of the process share
  Isa isa = Isa::automatic;  // for tests; default: the best set of this machine
  Int4Activations activations = Int4Activations::automatic;
  DenseActivations dense_activations = DenseActivations::exact;
  /// Copies floating-point weights into huge pages at load, instead of reading the mapped file. Decoding is faster, but
  /// uses additional memory. Quantized models always do this.
  bool copy_weights = false;
  /// Threads of the application that run the device's loops; null: slm's own. `threads` limits the parts of a loop; 0:
  /// executor->threads().
  std::shared_ptr<Executor> executor = {};
};

}}}
