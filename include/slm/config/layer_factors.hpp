// LayerFactors: constant factors of single parts of every layer, which some families with Mamba-2 have.
#pragma once

#include <array>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Outputs are multiplied after their bias is added.
struct LayerFactors {
  float attention_in = 1;   // of attention's input
  float attention_out = 1;  // of its output
  float mixer_in = 1;       // of the mixer's input
  float mixer_out = 1;
  float mlp_gate = 1;
  float mlp_out = 1;
  std::array<float, 5> projected = {1, 1, 1, 1, 1};  // of mamba2's z, x, B, C and dt

  bool operator==(const LayerFactors&) const = default;
};

}}
