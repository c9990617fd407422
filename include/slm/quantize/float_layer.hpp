// FloatLayer: the weights of one transformer block in fp32, to be searched, folded and rounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slm/backend/dense_matrix.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/tensor_names.hpp"

namespace slm::quantize {

/// A matrix that somebody else owns.   weight [out, in]
inline DenseMatrix<Fp32> matrix_of(std::span<const float> weight, std::int64_t in) {
  DenseMatrix<Fp32> matrix;
  matrix.in = in;
  matrix.out = static_cast<std::int64_t>(weight.size()) / in;
  matrix.segments.push_back({.data = weight.data(), .rows = matrix.out, .owned = {}});
  return matrix;
}

inline std::vector<float> floats_of(const Checkpoint& checkpoint, const TensorName& name) {
  const Tensor& tensor = checkpoint.tensor(name.name, name.shape);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

/// One linear layer, or several that share their input, stacked.
struct FloatLinear {
  std::vector<TensorName> parts;  // the stacked weights, each [rows, in]
  std::int64_t in = 0;
  std::vector<float> weight;  // [out, in]
  std::vector<float> bias;    // [out], or empty

  static FloatLinear read(const Checkpoint& checkpoint, std::vector<TensorName> parts, bool with_bias) {
    FloatLinear linear{.parts = std::move(parts), .in = 0, .weight = {}, .bias = {}};
    linear.in = linear.parts.front().shape.at(1);
    const auto append = [](std::vector<float>& to, const std::vector<float>& values) {
      to.insert(to.end(), values.begin(), values.end());
    };
    for (const TensorName& part : linear.parts) {
      append(linear.weight, floats_of(checkpoint, part));
      if (with_bias) append(linear.bias, floats_of(checkpoint, TensorNames::bias_of(part)));
    }
    return linear;
  }

  std::int64_t out() const { return static_cast<std::int64_t>(weight.size()) / in; }
  std::span<float> row(std::int64_t index) { return {weight.data() + index * in, static_cast<std::size_t>(in)}; }
  std::span<const float> row(std::int64_t index) const {
    return {weight.data() + index * in, static_cast<std::size_t>(in)};
  }
  DenseMatrix<Fp32> matrix() const { return matrix_of(weight, in); }
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }

  /// Rows [first, first + count) of the output divided by `scales`, the bias with them.
  void divide_rows(std::int64_t first, std::span<const float> scales) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::int64_t n = first + static_cast<std::int64_t>(i);
      for (float& value : row(n)) value /= scales[i];
      if (!bias.empty()) bias[static_cast<std::size_t>(n)] /= scales[i];
    }
  }

  void multiply_columns(std::span<const float> scales) {
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= scales[i % scales.size()];
  }
};

struct FloatLayer {
  TensorName attention_norm_name, mlp_norm_name;
  std::vector<float> attention_norm, mlp_norm;  // [hidden]
  FloatLinear qkv, attention_out, gate_up, down;

  static FloatLayer read(const Checkpoint& checkpoint, int index) {
    const TensorNames names(checkpoint.config());
    const ModelSettings& settings = checkpoint.settings();
    FloatLayer layer;
    layer.attention_norm_name = names.attention_norm(index);
    layer.mlp_norm_name = names.mlp_norm(index);
    layer.attention_norm = floats_of(checkpoint, layer.attention_norm_name);
    layer.mlp_norm = floats_of(checkpoint, layer.mlp_norm_name);
    layer.qkv = FloatLinear::read(checkpoint, names.qkv(index), settings.attention_bias);
    layer.attention_out = FloatLinear::read(checkpoint, names.attention_out(index), settings.attention_bias);
    layer.gate_up = FloatLinear::read(checkpoint, names.gate_up(index), settings.mlp_bias);
    layer.down = FloatLinear::read(checkpoint, names.down(index), settings.mlp_bias);
    return layer;
  }

  std::array<FloatLinear*, 4> linears() { return {&qkv, &attention_out, &gate_up, &down}; }
};

}  // namespace slm::quantize
