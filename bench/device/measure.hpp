// What `slm bench decode` and `slm bench kernels` ask of the code that touches the device.
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
  int device = 0;                              // of several GPUs
  int threads = 0;                             // of the processor; 0: one per core
  backend::Isa isa = backend::Isa::automatic;  // of the processor
  bool copy_weights = false;                   // of floating point, into huge pages, on the processor
  std::vector<std::string> models, formats;    // empty: all
  std::vector<std::string> files = {};         // of decode: models to be measured instead, as they are stored
  bool quick = false;                          // fewer rows and samples
  std::vector<int> sequences = {};             // of decode: so many texts a step; empty: one
  int positions = 0;                           // tokens before the measured step of a text; 0: as many as its table has
  std::optional<KvFormat> cache_format = {};   // none: the backend's first

  backend::DenseActivations dense_activations = backend::DenseActivations::exact;  // beside bf16, on the processor

  /// Called with all that is measured so far, after each result.
  std::function<void(const Report&)> keep = {};
};

inline const std::vector<std::string> bench_models = {"AMD-Llama-135M", "AMD-OLMo-1B", "Llama-3.2-1B", "CodeLlama-7B"};

/// bf16; weights of four bits with activations of 16 (w4a16) and of 8 (w4a8, the processor's alone).
inline const std::vector<std::string> bench_formats = {"bf16", "w4a16", "w4a8"};

/// The device of the backend that this was compiled for.
Device this_device(const MeasureOptions& options);
/// On that device. Says on standard error how it gets on.
Report measure(const MeasureOptions& options);
/// On a GPU that the processor emulates, a tiny model: shows that everything runs, and measures nothing.
Report measure_lanes32(const MeasureOptions& options);
Report measure_lanes64(const MeasureOptions& options);

}  // namespace slm::bench
