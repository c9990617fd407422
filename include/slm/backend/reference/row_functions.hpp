// Row operations of backend::Reference: activations, norms, rotation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "slm/backend/concept.hpp"

namespace slm { inline namespace v0_1 { namespace backend::reference {

inline float activate(const Activation& activation, float z) {
  switch (activation.kind) {
    case ActivationKind::identity: return z;
    case ActivationKind::silu: return z / (1.0f + std::exp(-z));
    case ActivationKind::gelu_erf: return 0.5f * z * (1.0f + std::erf(z / std::numbers::sqrt2_v<float>));
    case ActivationKind::gelu_tanh:
      return 0.5f * z * (1.0f + std::tanh(std::sqrt(2 / std::numbers::pi_v<float>) * (z + 0.044715f * z * z * z)));
    case ActivationKind::relu: return z < 0 ? 0 : z;
    case ActivationKind::relu_squared: return z < 0 ? 0 : z * z;
    case ActivationKind::xielu:
      if (z > 0) return activation.alpha_p * z * z + activation.beta * z;
      return activation.alpha_n * (std::expm1(std::min(z, activation.epsilon)) - z) + activation.beta * z;
    case ActivationKind::soft_cap: return activation.cap * std::tanh(z / activation.cap);
  }
  return z;
}

inline void normalize_row(const float* x, std::int64_t width, Norm norm, float* out) {
  float mean = 0, squares = 0;
  if (norm.kind == NormKind::layer) {
    for (std::int64_t i = 0; i < width; ++i) mean += x[i];
    mean /= static_cast<float>(width);
  }
  for (std::int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const float scale =
      norm.kind == NormKind::none ? 1 : 1.0f / std::sqrt(squares / static_cast<float>(width) + norm.epsilon);
  for (std::int64_t i = 0; i < width; ++i) {
    out[i] = (x[i] - mean) * scale;
    if (norm.weight) out[i] *= norm.weight[i];
    if (norm.bias) out[i] += norm.bias[i];
  }
}

inline void rotate(const Rope& rope, const float* frequencies, int dim, int position, float* x) {
  const int half = rope.rotating(dim) / 2;
  for (int i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const float cosine = std::cos(angle) * rope.factor;
    const float sine = std::sin(angle) * rope.factor;
    float& first = x[rope.pairs ? 2 * i : i];
    float& second = x[rope.pairs ? 2 * i + 1 : i + half];
    const float before = first;
    first = before * cosine - second * sine;
    second = second * cosine + before * sine;
  }
}

/// Norms and rotation of the heads of a row, in place.
inline void shape_heads(float* x, int heads, int dim, const QkvShaping& shaping, const Norm& norm, const Rope& rope,
                        const float* frequencies, int position) {
  if (shaping.norm == QkNorm::whole) normalize_row(x, std::int64_t{heads} * dim, norm, x);
  for (std::int64_t i = 0; shaping.clips_normed && i < std::int64_t{heads} * dim; ++i)
    x[i] = std::clamp(x[i], -shaping.clip, shaping.clip);
  for (int h = 0; h < heads; ++h, x += dim) {
    const Norm own = shaping.of_head(norm, h, dim);
    if (shaping.per_head() && shaping.norm != QkNorm::rotated) normalize_row(x, dim, own, x);
    rotate(rope, frequencies, dim, position, x);
    if (shaping.norm == QkNorm::rotated) normalize_row(x, dim, own, x);
  }
}

}}}
