// backend::Reference: the formulas as plain loops with fp32 accumulation. The oracle of all other backends.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <type_traits>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/backend/dense_matrix.hpp"

namespace slm::backend {

class Reference {
 public:
  static constexpr const char* name = "reference";
  static constexpr int max_rows = 64;
  using Activation = float;
  using KvElement = float;
  template <class T>
  using Buffer = std::vector<T>;
  template <class Format>
  using Matrix = DenseMatrix<std::conditional_t<DenseFormat<Format>, Format, Fp32>>;  // int4 is dequantized

  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(count);
  }

  Buffer<float> upload(const float* host, std::size_t count) { return Buffer<float>(host, host + count); }

  template <class Format>
  Matrix<Format> pack(std::span<const typename Format::Source> sources) {
    return Matrix<Format>::stack(sources);
  }

  template <class Weight>
  void embed(const Weight& table, std::span<const Token> tokens, View<float, 2> x, View<const float, 2> positions = {},
             int position = 0) {
    const std::int64_t width = x.extent(1);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto* row = table.row(tokens[r]);
      const auto place = static_cast<std::int64_t>(r) + position;
      for (std::int64_t i = 0; i < width; ++i) x(r, i) = to_float(row[i]) + (positions.data ? positions(place, i) : 0);
    }
  }

  template <class Weight>
  void qkv(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, Rope rope, Heads heads,
           int position, View<float, 2> q, KvLayer<float> kv, QkvShaping shaping = {}) {
    const int rows = static_cast<int>(x.extent(0));
    std::vector<float> projected = matmul(normalized(x, norm), rows, weight, bias);  // [rows, q | k | v]
    if (shaping.clip != 0) {
      for (float& value : projected) value = std::clamp(value, -shaping.clip, shaping.clip);
    }
    for (int r = 0; r < rows; ++r) {
      float* source = &projected[r * weight.out];
      const std::int64_t slot = (position + r) % kv.keys.extent(1);
      normalize_heads(source, heads.query, heads.dim, shaping.norm, shaping.query);
      for (int h = 0; h < heads.query; ++h)
        rotate(source + h * heads.dim, rope, heads.dim, position + r, &q(r, h * heads.dim));
      source += heads.query * heads.dim;
      normalize_heads(source, heads.kv, heads.dim, shaping.norm, shaping.key);
      for (int h = 0; h < heads.kv; ++h)
        rotate(source + h * heads.dim, rope, heads.dim, position + r, &kv.keys(h, slot, 0));
      source += heads.kv * heads.dim;
      for (int h = 0; h < heads.kv; ++h) {
        for (int i = 0; i < heads.dim; ++i) kv.values(h, slot, i) = source[h * heads.dim + i];
      }
    }
  }

  void attend(View<const float, 2> q, Heads heads, int position, KvLayer<float> kv, View<float, 2> out,
              Attention attention = {}) {
    const float scale = attention.scale != 0 ? attention.scale : 1.0f / std::sqrt(static_cast<float>(heads.dim));
    const std::int64_t capacity = kv.keys.extent(1);
    for (int r = 0; r < q.extent(0); ++r) {
      const int at = position + r;
      const int first = attention.window != 0 ? std::max(0, at + 1 - attention.window) : 0;
      std::vector<float> weights(at + 1 - first);
      for (int h = 0; h < heads.query; ++h) {
        const int kv_head = h / (heads.query / heads.kv);
        float largest = -std::numeric_limits<float>::infinity();
        for (int j = first; j <= at; ++j) {
          float score = 0;
          for (int i = 0; i < heads.dim; ++i) score += q(r, h * heads.dim + i) * kv.keys(kv_head, j % capacity, i);
          score *= scale;
          if (attention.slopes) score += attention.slopes[h] * static_cast<float>(j - at);
          weights[j - first] = score;
          largest = std::max(largest, score);
        }
        float sum = 0;
        for (float& weight : weights) sum += weight = std::exp(weight - largest);
        for (int i = 0; i < heads.dim; ++i) {
          float mixed = 0;
          for (int j = first; j <= at; ++j) mixed += weights[j - first] * kv.values(kv_head, j % capacity, i);
          out(r, h * heads.dim + i) = mixed / sum;
        }
      }
    }
  }

  template <class Weight>
  void project(View<const float, 2> input, const Weight& weight, const float* bias, View<float, 2> x) {
    const std::vector<float> projected = matmul(input.data, static_cast<int>(input.extent(0)), weight, bias);
    for (std::size_t i = 0; i < projected.size(); ++i) x.data[i] += projected[i];
  }

  template <class Weight>
  void gated_mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, View<float, 2> out,
                 ActivationKind activation = ActivationKind::silu) {
    const std::int64_t ffn = out.extent(1);
    const std::vector<float> projected = matmul(normalized(x, norm), static_cast<int>(x.extent(0)), weight, bias);
    for (int r = 0; r < x.extent(0); ++r) {
      const float* gate = &projected[r * 2 * ffn];
      const float* up = gate + ffn;
      for (std::int64_t i = 0; i < ffn; ++i) out(r, i) = activate(activation, gate[i]) * up[i];
    }
  }

  template <class Weight>
  void mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, ActivationKind activation,
           const float* divisor, View<float, 2> out) {
    const std::vector<float> projected = matmul(normalized(x, norm), static_cast<int>(x.extent(0)), weight, bias);
    for (int r = 0; r < x.extent(0); ++r) {
      for (std::int64_t i = 0; i < weight.out; ++i) {
        const float y = activate(activation, projected[r * weight.out + i]);
        out(r, i) = divisor ? y / divisor[i] : y;
      }
    }
  }

  void normalize(View<float, 2> x, Norm norm) {
    const std::vector<float> rows = normalized(x, norm);
    std::copy(rows.begin(), rows.end(), x.data);
  }

  template <class Weight>
  void logits(View<const float, 2> x, Norm norm, const Weight& weight, View<float, 2> out,
              const float* bias = nullptr) {
    const std::vector<float> rows = matmul(normalized(x, norm), static_cast<int>(x.extent(0)), weight, bias);
    std::copy(rows.begin(), rows.end(), out.data);
  }

 private:
  static float activate(ActivationKind activation, float z) {
    switch (activation) {
      case ActivationKind::identity: return z;
      case ActivationKind::silu: return z / (1.0f + std::exp(-z));
      case ActivationKind::gelu_erf: return 0.5f * z * (1.0f + std::erf(z / std::numbers::sqrt2_v<float>));
      case ActivationKind::gelu_tanh:
        return 0.5f * z * (1.0f + std::tanh(std::sqrt(2 / std::numbers::pi_v<float>) * (z + 0.044715f * z * z * z)));
      case ActivationKind::relu: return z < 0 ? 0 : z;
    }
    return z;
  }

  static std::vector<float> normalized(View<const float, 2> x, Norm norm) {
    const std::int64_t width = x.extent(1);
    std::vector<float> out(static_cast<std::size_t>(x.size()));
    for (int r = 0; r < x.extent(0); ++r) normalize_row(x.row(r), width, norm, &out[r * width]);
    return out;
  }

  static void normalize_row(const float* x, std::int64_t width, Norm norm, float* out) {
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

  static void normalize_heads(float* x, int heads, int dim, QkNorm over, Norm norm) {
    if (over == QkNorm::whole) normalize_row(x, std::int64_t{heads} * dim, norm, x);
    for (int h = 0; over == QkNorm::per_head && h < heads; ++h) normalize_row(x + h * dim, dim, norm, x + h * dim);
  }

  /// x [rows, in] . weight^T [in, out] + bias -> [rows, out]
  template <class Weight>
  static std::vector<float> matmul(const std::vector<float>& x, int rows, const Weight& weight, const float* bias) {
    return matmul(x.data(), rows, weight, bias);
  }

  template <class Weight>
  static std::vector<float> matmul(const float* x, int rows, const Weight& weight, const float* bias) {
    std::vector<float> out(static_cast<std::size_t>(rows * weight.out));
    for (std::int64_t o = 0; o < weight.out; ++o) {
      const auto* row = weight.row(o);
      for (int r = 0; r < rows; ++r) {
        float sum = 0;
        for (std::int64_t i = 0; i < weight.in; ++i) sum += x[r * weight.in + i] * to_float(row[i]);
        out[r * weight.out + o] = bias ? sum + bias[o] : sum;
      }
    }
    return out;
  }

  static void rotate(const float* in, Rope rope, int dim, int position, float* out) {
    const int width = rope.rotating(dim), half = width / 2;
    for (int i = width; i < dim; ++i) out[i] = in[i];
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.inverse_frequency[i];
      const float cosine = std::cos(angle) * rope.factor;
      const float sine = std::sin(angle) * rope.factor;
      out[i] = in[i] * cosine - in[i + half] * sine;
      out[i + half] = in[i + half] * cosine + in[i] * sine;
    }
  }
};

static_assert(Backend<Reference>);

}  // namespace slm::backend
