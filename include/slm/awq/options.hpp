// What a quantization is asked for, and what it reports: of a folder, and of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slm/awq/calibration.hpp"
#include "slm/awq/scale_search.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

enum class Output {
  awq,                 // AutoAWQ's gemm layout, F16: what most programs read
  compressed_tensors,  // pack-quantized: vLLM's own; keeps BF16
};

struct Options {
  int group =
      0;  // inputs that share a scale; whole_row; 0: the largest of 128, 64, 32 that divides every layer's inputs
  bool symmetric = false;
  bool search = true;  // false: rounding alone, without a calibration text
  bool clip = true;
  Output output = Output::awq;
  bool int8_head = false;  // the head, or the embedding that serves as one, in 8 bits
  CalibrationOptions calibration;
  int search_samples = 16;  // of the calibration sequences, for the losses of the searches; all serve the statistics
  std::function<void(double)> progress = {};  // called with 0..1
};

struct LayerReport {
  int layer = 0;
  std::vector<SearchOutcome> folds;
};

struct Report {
  int group = 0;
  std::size_t samples = 0, sequence_length = 0;
  std::vector<LayerReport> layers;                  // of this run; layers done by an earlier one are not repeated
  std::vector<std::string> left_in_float;           // weights whose shape 4-bit groups do not fit
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

struct GgufOptions {
  DType type = DType::q4_k;  // f32, or a type that encode() writes
  int threads = 1;
  std::filesystem::path calibration_text = {};  // scales are searched on it and folded in; empty: rounding alone
  CalibrationOptions calibration = {};
  int search_samples = 16;                    // of the calibration sequences, for the losses of the searches
  std::function<void(double)> progress = {};  // called with 0..1
};

struct GgufReport {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  std::map<std::string_view, int> matrices;         // how many became each type
  std::vector<LayerReport> layers;                  // what was folded; none without a text
};

}}}
