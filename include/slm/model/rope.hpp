// Rotary frequencies of a checkpoint, with scaling applied.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// YaRN: the dimensions between which frequencies change from the trained ones to the divided ones.
struct YarnRamp {
  double low, high;

  YarnRamp(int rotary_dim, double theta, const RopeScaling& scaling) {
    const auto dimension_of = [&](double rotations) {
      const double wavelengths = double{scaling.original_context} / (rotations * 2 * std::numbers::pi);
      return rotary_dim * std::log(wavelengths) / (2 * std::max(std::log(theta), 1e-9));  // theta may be 1
    };
    low = dimension_of(double{scaling.beta_fast});
    high = dimension_of(double{scaling.beta_slow});
    if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, rotary_dim - 1.0);
    if (low == high) high += 0.001;
  }
  /// Share of the divided frequency at dimension i.
  double operator()(int i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }
};

}  // namespace detail

/// Rotated dimensions of the heads of layers without the window.
inline int unwindowed_rotary_dim(const ModelConfig& config, const ModelSettings& settings) {
  for (int layer = 0; layer < config.layers; ++layer) {
    if (settings.window_of(layer) == 0) return config.rotary_dim_of(layer);
  }
  return config.rotary_dim();
}

/// Returns 1 / theta^(2i / rotary_dim), scaled by the settings -> [rotary_dim / 2]. beyond: selects LongRoPE's long
/// factors.
inline std::vector<float> inverse_frequencies(int rotary_dim, const ModelSettings& settings, bool beyond = false) {
  const RopeScaling& scaling = settings.rope_scaling;
  std::vector<float> frequencies(static_cast<std::size_t>(rotary_dim / 2));
  for (int i = 0; i < rotary_dim / 2; ++i) {
    // Hugging Face computes the table in float32; the rounded exact value is the closest approximation.
    const double exact = std::pow(double{settings.rope_theta}, -2.0 * i / rotary_dim);
    float& frequency = frequencies[static_cast<std::size_t>(i)] = static_cast<float>(exact);
    if (scaling.kind == RopeScaling::Kind::linear) frequency /= scaling.factor;
    if (scaling.kind == RopeScaling::Kind::longrope || scaling.kind == RopeScaling::Kind::divisors) {
      const auto& factors = beyond ? scaling.long_factors : scaling.short_factors;
      frequency = static_cast<float>(exact / double{factors[static_cast<std::size_t>(i)]});
    }
    if (scaling.kind == RopeScaling::Kind::yarn) {
      const double divided = detail::YarnRamp(rotary_dim, double{settings.rope_theta}, scaling)(i);
      frequency = static_cast<float>(exact * (1 - divided) + exact / double{scaling.factor} * divided);
    }
    if (scaling.kind != RopeScaling::Kind::llama3) continue;
    // Llama 3: short wavelengths stay, long ones are scaled, those between are interpolated. Applies at every length.
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

/// The frequencies of layers with the window.
inline std::vector<float> windowed_frequencies(int rotary_dim, const ModelSettings& settings) {
  ModelSettings windowed;
  windowed.rope_theta = settings.windowed_rope_theta;
  return inverse_frequencies(rotary_dim, windowed);
}

}}
