// Enumerations of an architecture's components. A config selects one of each; backends compute them.
#pragma once

#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

inline constexpr int most_streams = 16;  // residual streams of a model

enum class NormKind {
  none,   // x
  rms,    // x / sqrt(mean(x^2) + epsilon)
  layer,  // (x - mean(x)) / sqrt(variance(x) + epsilon)
};

enum class ActivationKind {
  identity,
  silu,       // z / (1 + e^-z)
  gelu_erf,   // z (1 + erf(z / sqrt 2)) / 2
  gelu_tanh,  // z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2
  relu,       // max(z, 0)
  relu_squared,
  xielu,     // z > 0: alpha_p z^2 + beta z, else alpha_n (e^min(z, epsilon) - 1 - z) + beta z
  soft_cap,  // cap tanh(z / cap)
};

/// An activation with its parameters.
struct Activation {
  ActivationKind kind = ActivationKind::identity;
  float cap = 1;                                          // soft_cap
  float alpha_p = 0, alpha_n = 0, beta = 0, epsilon = 0;  // xielu
  float factor = 1;                                       // of a gate before the activation

  constexpr Activation() = default;
  constexpr Activation(ActivationKind of) : kind(of) {}
  constexpr bool operator==(const Activation&) const = default;
};

/// How queries and keys are normalised after projection, and before the rotation unless stated otherwise. The norm kind
/// is the model's.
enum class QkNorm {
  none,
  per_head,     // each head separately; one weight [head_dim] for all heads
  whole,        // all heads together; weights [heads * head_dim] and [kv_heads * head_dim]
  own_weights,  // each head separately; weights as for `whole`, without biases
  rotated,      // as per_head, after the rotation
};

constexpr std::string_view name_of(NormKind kind) {
  switch (kind) {
    case NormKind::none: return "none";
    case NormKind::rms: return "rms";
    case NormKind::layer: return "layer";
  }
  return "?";
}

constexpr std::string_view name_of(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::identity: return "identity";
    case ActivationKind::silu: return "silu";
    case ActivationKind::gelu_erf: return "gelu_erf";
    case ActivationKind::gelu_tanh: return "gelu_tanh";
    case ActivationKind::relu: return "relu";
    case ActivationKind::relu_squared: return "relu_squared";
    case ActivationKind::xielu: return "xielu";
    case ActivationKind::soft_cap: return "soft_cap";
  }
  return "?";
}

constexpr std::string_view name_of(QkNorm norm) {
  switch (norm) {
    case QkNorm::none: return "none";
    case QkNorm::per_head: return "per_head";
    case QkNorm::whole: return "whole";
    case QkNorm::own_weights: return "own_weights";
    case QkNorm::rotated: return "rotated";
  }
  return "?";
}

}}
