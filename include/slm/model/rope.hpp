// Rotary frequencies of a checkpoint, with its scaling applied.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "slm/config/model_config.hpp"

namespace slm {

/// 1 / theta^(2i / head_dim), stretched as the settings say -> [head_dim / 2]
inline std::vector<float> inverse_frequencies(int head_dim, const ModelSettings& settings) {
  const RopeScaling& scaling = settings.rope_scaling;
  std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
  for (int i = 0; i < head_dim / 2; ++i) {
    // Hugging Face computes the table in float32; rounding the exact value is as near to it as can be.
    const double exact = std::pow(double{settings.rope_theta}, -2.0 * i / head_dim);
    float& frequency = frequencies[static_cast<std::size_t>(i)] = static_cast<float>(exact);
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (scaling.kind != RopeScaling::Kind::llama3) continue;
    // Llama 3: short wavelengths stay, long ones are stretched, those between are blended. Applies at every length.
    const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
    if (wavelength > scaling.original_context / scaling.low_frequency_factor) {
      frequency /= scaling.factor;
    } else if (wavelength >= scaling.original_context / scaling.high_frequency_factor) {
      const float blend = (scaling.original_context / wavelength - scaling.low_frequency_factor) /
                          (scaling.high_frequency_factor - scaling.low_frequency_factor);
      frequency = (1 - blend) * frequency / scaling.factor + blend * frequency;
    }
  }
  return frequencies;
}

}  // namespace slm
