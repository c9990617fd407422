// backend::Reference: the formulas as plain loops with fp32 accumulation. The oracle of all other backends.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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
  void embed(const Weight& table, std::span<const Token> tokens, View<float, 2> x) {
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const auto* row = table.row(tokens[r]);
      for (std::int64_t i = 0; i < x.extent(1); ++i) x(r, i) = to_float(row[i]);
    }
  }

  template <class Weight>
  void qkv(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, Rope rope, Heads heads,
           int position, View<float, 2> q, KvLayer<float> kv) {
    const int rows = static_cast<int>(x.extent(0));
    const std::vector<float> projected = matmul(normalized(x, norm), rows, weight, bias);  // [rows, q | k | v]
    for (int r = 0; r < rows; ++r) {
      const float* source = &projected[r * weight.out];
      for (int h = 0; h < heads.query; ++h)
        rotate(source + h * heads.dim, rope, heads.dim, position + r, &q(r, h * heads.dim));
      source += heads.query * heads.dim;
      for (int h = 0; h < heads.kv; ++h)
        rotate(source + h * heads.dim, rope, heads.dim, position + r, &kv.keys(h, position + r, 0));
      source += heads.kv * heads.dim;
      for (int h = 0; h < heads.kv; ++h) {
        for (int i = 0; i < heads.dim; ++i) kv.values(h, position + r, i) = source[h * heads.dim + i];
      }
    }
  }

  void attend(View<const float, 2> q, Heads heads, int position, KvLayer<float> kv, View<float, 2> out) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(heads.dim));
    for (int r = 0; r < q.extent(0); ++r) {
      const int visible = position + r + 1;  // causal: itself and everything before
      std::vector<float> weights(visible);
      for (int h = 0; h < heads.query; ++h) {
        const int kv_head = h / (heads.query / heads.kv);
        float largest = -std::numeric_limits<float>::infinity();
        for (int j = 0; j < visible; ++j) {
          float score = 0;
          for (int i = 0; i < heads.dim; ++i) score += q(r, h * heads.dim + i) * kv.keys(kv_head, j, i);
          weights[j] = score * scale;
          largest = std::max(largest, weights[j]);
        }
        float sum = 0;
        for (float& weight : weights) sum += weight = std::exp(weight - largest);
        for (int i = 0; i < heads.dim; ++i) {
          float mixed = 0;
          for (int j = 0; j < visible; ++j) mixed += weights[j] * kv.values(kv_head, j, i);
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
  void gated_mlp(View<const float, 2> x, Norm norm, const Weight& weight, const float* bias, View<float, 2> out) {
    const std::int64_t ffn = out.extent(1);
    const std::vector<float> projected = matmul(normalized(x, norm), static_cast<int>(x.extent(0)), weight, bias);
    for (int r = 0; r < x.extent(0); ++r) {
      const float* gate = &projected[r * 2 * ffn];
      const float* up = gate + ffn;
      for (std::int64_t i = 0; i < ffn; ++i) out(r, i) = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    }
  }

  template <class Weight>
  void logits(View<const float, 2> x, Norm norm, const Weight& weight, View<float, 2> out) {
    const std::vector<float> rows = matmul(normalized(x, norm), static_cast<int>(x.extent(0)), weight, nullptr);
    std::copy(rows.begin(), rows.end(), out.data);
  }

 private:
  static std::vector<float> normalized(View<const float, 2> x, Norm norm) {
    const std::int64_t width = x.extent(1);
    std::vector<float> out(static_cast<std::size_t>(x.size()));
    for (int r = 0; r < x.extent(0); ++r) {
      float squares = 0;
      for (std::int64_t i = 0; i < width; ++i) squares += x(r, i) * x(r, i);
      const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + norm.epsilon);
      for (std::int64_t i = 0; i < width; ++i) out[r * width + i] = x(r, i) * scale * norm.weight[i];
    }
    return out;
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
    const int half = dim / 2;
    for (int i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.inverse_frequency[i];
      const float cosine = std::cos(angle);
      const float sine = std::sin(angle);
      out[i] = in[i] * cosine - in[i + half] * sine;
      out[i + half] = in[i + half] * cosine + in[i] * sine;
    }
  }
};

static_assert(Backend<Reference>);

}  // namespace slm::backend
