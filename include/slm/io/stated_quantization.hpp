// StatedQuantization: what a checkpoint's files state about its quantized weights.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/config/quantization.hpp"

namespace slm { inline namespace v0_1 {

/// A config group of compressed-tensors with eight bits: integers or FP8.
struct EightBitRule {
  std::string name;  // of the field, for messages
  bool floating = false;
  int group = 0;                        // inputs per scale; -1: all; 0: not by groups
  std::array<std::int64_t, 2> block{};  // outputs and inputs per scale; zeros: not by blocks
};

/// The settings of 4-bit layers, and of layers in forms that are dequantized at load.
struct StatedQuantization : QuantizationSettings {
  enum class Form { by_method, gptq, fp8 };

  StatedQuantization() = default;
  StatedQuantization(QuantizationSettings four_bits) : QuantizationSettings(std::move(four_bits)) {}

  Form form = Form::by_method;           // otherwise `method` is none
  bool quantized_activations = false;    // slm does not quantize them
  std::vector<EightBitRule> eight_bits;  // compressed-tensors
  // GPTQ; its group and symmetry are in rules.front().
  int bits = 4;
  bool zeros_less_one = true;  // the first version of the format
  // FP8.
  std::array<std::int64_t, 2> block{};  // outputs and inputs per scale; zeros: not stated

  bool is_stated() const { return method != Method::none || form != Form::by_method; }
};

}}
