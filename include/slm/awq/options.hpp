// Options and reports of quantization, for folders and GGUF files.
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
  awq,                 // AutoAWQ's gemm layout, F16: supported by most programs
  compressed_tensors,  // pack-quantized, vLLM's format; keeps BF16
};

struct Options {
  int group = 0;  // inputs per scale; whole_row; 0: the largest of 128, 64, 32 that divides every layer's inputs
  bool symmetric = false;
  bool search = true;  // false: plain rounding, without a calibration text
  bool clip = true;
  Output output = Output::awq;
  bool int8_head = false;  // store the head, or an embedding used as the head, in 8 bits
  CalibrationOptions calibration;
  int search_samples = 16;                    // number of calibration sequences for search losses; statistics use all
  std::function<void(double)> progress = {};  // called with 0..1
};

struct LayerReport {
  int layer = 0;
  std::vector<SearchOutcome> folds;
};

struct Report {
  int group = 0;
  std::size_t samples = 0, sequence_length = 0;
  std::vector<LayerReport> layers;  // blocks processed in this run; excludes blocks of an earlier interrupted run
  std::vector<std::string> left_in_float;           // weights that 4-bit groups do not fit
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
};

struct GgufOptions {
  DType type = DType::q4_k;  // f32, or a type that encode() supports
  int threads = 1;
  std::filesystem::path calibration_text = {};  // text for the scale search; empty: plain rounding
  CalibrationOptions calibration = {};
  int search_samples = 16;                    // number of calibration sequences for search losses
  std::function<void(double)> progress = {};  // called with 0..1
};

struct GgufReport {
  std::uint64_t bytes_before = 0, bytes_after = 0;  // of all tensors
  std::map<std::string_view, int> matrices;         // number of matrices per type
  std::vector<LayerReport> layers;                  // folds applied; empty without a text
};

}}}
