// The interface between `slm bench decode` or `slm bench kernels` and the code that uses the device.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/command/report.hpp"
#include "slm/backend/cpu/options.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm::bench {

struct MeasureOptions {
  enum class Table { decode, kernels };

  Table table = Table::decode;
  int device = 0;                              // number of the GPU, from 0
  int threads = 0;                             // CPU threads; 0: one per core
  backend::Isa isa = backend::Isa::automatic;  // CPU instruction set
  bool copy_weights = false;                   // CPU: copy floating-point weights to huge pages
  std::vector<std::string> models, formats;    // empty: all
  std::vector<std::string> files = {};         // decode: models to measure as stored, instead of shapes
  bool quick = false;                          // fewer row counts and samples
  std::vector<int> sequences = {};             // decode: sequences per step; empty: one
  int positions = 0;                           // cached tokens before the measured step; 0: the table's default
  std::optional<KvFormat> cache_format = {};   // empty: the backend's default

  backend::DenseActivations dense_activations =
      backend::DenseActivations::exact;  // CPU: rounding of activations beside bf16 weights

  /// Called with all results so far, after each result.
  std::function<void(const Report&)> keep = {};
};

inline const std::vector<std::string> bench_models = {"AMD-Llama-135M", "AMD-OLMo-1B", "Llama-3.2-1B", "CodeLlama-7B"};
/// Hybrids and mixtures of experts, which `slm bench decode` measures if they are named.
inline const std::vector<std::string> named_models = {"LFM2-1.2B", "Qwen3.5-0.8B", "OLMoE-1B-7B"};

/// bf16; 4-bit weights with 16-bit activations (w4a16) or 8-bit activations (w4a8, CPU only).
inline const std::vector<std::string> bench_formats = {"bf16", "w4a16", "w4a8"};

/// The device of the backend of this build.
Device this_device(const MeasureOptions& options);
/// Measures on that device. Reports progress on standard error.
Report measure(const MeasureOptions& options);
/// Runs a tiny model on a GPU emulated by the CPU. It tests the code and measures nothing.
Report measure_lanes32(const MeasureOptions& options);

}  // namespace slm::bench
