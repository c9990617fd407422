// FloatLayer: the weights of one transformer block in fp32, for search, folding and rounding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/weight_reader.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

using FloatMatrix = DenseMatrix<Fp32>;
using FloatVector = backend::Cpu::Buffer<float>;

/// A non-owning matrix.   weight [out, in]
inline FloatMatrix matrix_of(std::span<const float> weight, std::int64_t in) {
  FloatMatrix matrix;
  matrix.in = in;
  matrix.out = static_cast<std::int64_t>(weight.size()) / in;
  matrix.segments.push_back({.data = weight.data(), .rows = matrix.out, .owner = {}});
  return matrix;
}

/// One linear layer, or several with the same input, stacked. Refers to the block's bias.
struct FloatLinear {
  std::vector<TensorName> parts;  // the stacked weights
  std::int64_t in = 0;
  std::vector<float> weight;    // [out, in]
  FloatVector* bias = nullptr;  // [out], or empty

  std::int64_t out() const { return static_cast<std::int64_t>(weight.size()) / in; }
  std::span<float> row(std::int64_t index) { return {weight.data() + index * in, static_cast<std::size_t>(in)}; }
  std::span<const float> row(std::int64_t index) const {
    return {weight.data() + index * in, static_cast<std::size_t>(in)};
  }

  /// Divides output rows from `first` on by `scales`, including the bias.
  void divide_rows(std::int64_t first, std::span<const float> scales) {
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::int64_t n = first + static_cast<std::int64_t>(i);
      for (float& value : row(n)) value /= scales[i];
      if (bias->size() > 0) bias->data()[n] /= scales[i];
    }
  }

  void multiply_columns(std::span<const float> scales) {
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= scales[i % scales.size()];
  }
};

/// The block in the form that the model runs, and its four linear layers as mutable memory. Not movable.
struct FloatLayer {
  LayerWeights<Fp32, backend::Cpu> weights;
  FloatLinear qkv, attention_out, gate_up, down;

  FloatLayer(WeightReader<Fp32, backend::Cpu>& reader, int index) : weights(reader.layer(index)) {
    const TensorNames& names = reader.names;
    adopt(qkv, weights.qkv, weights.qkv_bias, names.weights(Role::qkv, index));
    adopt(attention_out, weights.attention_out, weights.attention_out_bias, names.weights(Role::attention_out, index));
    adopt(gate_up, weights.gate_up, weights.gate_up_bias, names.weights(Role::gate_up, index));
    adopt(down, weights.down, weights.down_bias, names.weights(Role::down, index));
  }
  FloatLayer(const FloatLayer&) = delete;
  FloatLayer& operator=(const FloatLayer&) = delete;

  std::array<const FloatLinear*, 4> linears() const { return {&qkv, &attention_out, &gate_up, &down}; }

  /// Calls matrix(linear, name, first row) for each stored weight of a linear layer, and vector(name, values) for each
  /// bias, norm and divisor. The values are valid until the next call.
  template <class OnMatrix, class OnVector>
  void for_each(const TensorNames& names, OnMatrix&& matrix, OnVector&& vector) const {
    for (const FloatLinear* linear : linears()) {
      std::int64_t first = 0;
      const FloatLinear& stored = as_stored(names, *linear);
      for (const TensorName& weight : stored.parts) {
        matrix(stored, weight, first);
        if (stored.bias->size() > 0) vector(TensorNames::bias_of(weight), stored.bias->data() + first);
        first += weight.shape.at(0);
      }
    }
    const auto visit_norm = [&](Role role, const NormWeights<backend::Cpu>& norm, std::vector<float>& less_one) {
      for (const TensorName& name : names.weights(role, weights.index)) {
        const float* const values = norm.weight.data();
        less_one.assign(values, values + (names.norms_less_one() ? norm.weight.size() : 0));
        for (float& value : less_one) value -= 1;
        vector(name, names.norms_less_one() ? less_one.data() : values);
      }
      for (const TensorName& name : names.biases(role, weights.index)) vector(name, norm.bias.data());
    };
    visit_norm(Role::attention_norm, weights.attention_norm, less_one_[0]);
    visit_norm(Role::mlp_norm, weights.mlp_norm, less_one_[1]);
    if (weights.down_divisor.size() > 0) {
      vector(names.weights(Role::down_divisor, weights.index).front(), weights.down_divisor.data());
    }
  }

 private:
  /// The linear layer with its rows in the order of the file.
  const FloatLinear& as_stored(const TensorNames& names, const FloatLinear& linear) const {
    if (!names.is_grouped(linear.parts.front())) return linear;
    grouped_ = linear;
    grouped_bias_ = FloatVector(linear.bias->size());
    grouped_.bias = &grouped_bias_;
    for (std::int64_t row = 0; row < linear.out(); ++row) {
      const std::int64_t to = names.stored_row(row);
      std::copy_n(linear.row(row).data(), linear.in, grouped_.row(to).data());
      if (linear.bias->size() > 0) grouped_bias_.data()[to] = linear.bias->data()[row];
    }
    return grouped_;
  }

  static void adopt(FloatLinear& linear, FloatMatrix& matrix, FloatVector& bias, std::vector<TensorName> parts) {
    linear.parts = std::move(parts);
    linear.in = matrix.in;
    linear.weight.reserve(static_cast<std::size_t>(matrix.out * matrix.in));
    for (const auto& segment : matrix.segments) {
      linear.weight.insert(linear.weight.end(), segment.data, segment.data + segment.rows * matrix.in);
    }
    linear.bias = &bias;
    matrix = matrix_of(linear.weight, linear.in);
  }

  // As stored, valid until the next for_each():
  mutable std::vector<float> less_one_[2];  // norms
  mutable FloatLinear grouped_;             // qkv in groups of rows
  mutable FloatVector grouped_bias_;
};

}}}
