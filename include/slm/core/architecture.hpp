// Enumerations of an architecture's components. A config selects one of each; backends compute them.
#pragma once

#include <string_view>

namespace slm { inline namespace v0_1 {

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
};

/// How queries and keys are normalised between projection and rotation. The norm kind is the model's.
enum class QkNorm {
  none,
  per_head,  // each head separately; one weight [head_dim] for all heads
  whole,     // all heads together; weights [heads * head_dim] and [kv_heads * head_dim]
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
  }
  return "?";
}

constexpr std::string_view name_of(QkNorm norm) {
  switch (norm) {
    case QkNorm::none: return "none";
    case QkNorm::per_head: return "per_head";
    case QkNorm::whole: return "whole";
  }
  return "?";
}

}}
