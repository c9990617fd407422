// LayerWeights: the weights of one transformer block, in the backend's layout.
#pragma once

#include <optional>

#include "slm/backend/concept.hpp"
#include "slm/backend/recurrence.hpp"
#include "slm/config/layer_factors.hpp"
#include "slm/formats/format.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/model/experts.hpp"
#include "slm/model/latent_weights.hpp"
#include "slm/model/stream_weights.hpp"

namespace slm { inline namespace v0_1 {

/// Weight and bias of a norm; empty if the architecture has none.
template <Backend B>
struct NormWeights {
  typename B::template Buffer<float> weight;
  typename B::template Buffer<float> bias;
};

/// Pointer to the elements of a device buffer; null if the buffer is empty.
template <class Buffer>
const float* data_or_null(const Buffer& buffer) {
  return buffer.size() == 0 ? nullptr : buffer.data();
}

/// A matrix with its optional bias, as an operand. product: see Linear.
template <class Matrix, class Buffer>
Linear<Matrix> linear(const Matrix& weight, const Buffer& bias, int product = -1) {
  return {weight, data_or_null(bias), product};
}

template <Backend B>
Norm norm_of(const NormWeights<B>& weights, NormKind kind, float epsilon) {
  return {.weight = data_or_null(weights.weight), .epsilon = epsilon, .bias = data_or_null(weights.bias), .kind = kind};
}

template <WeightFormat Format, Backend B>
struct LayerWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Vector = typename B::template Buffer<float>;

  NormWeights<B> attention_norm, mlp_norm;                // [hidden]
  NormWeights<B> mixer_input_norm;                        // [hidden]; empty: attention_norm
  NormWeights<B> attention_output_norm, mlp_output_norm;  // [hidden]
  NormWeights<B> mixed_norm, gated_norm;  // [heads * dim] and [ffn]: of the inputs of attention_out and down
  NormWeights<B> q_norm, k_norm;          // [head_dim], or [heads * dim] and [kv_heads * dim]
  Matrix qkv;                             // [heads * dim + 2 * kv_heads * dim, hidden]
  Matrix attention_out;                   // [hidden, heads * dim]
  Matrix gate_up;                         // [2 * ffn, hidden]; [ffn, hidden] without a gate
  Matrix down;                            // [hidden, ffn]
  Vector qkv_bias, attention_out_bias;    // empty if the architecture has none
  Vector gate_up_bias, down_bias;
  Vector sinks;                                     // [heads] or empty
  Vector down_divisor;                              // [ffn] or empty
  std::optional<ExpertWeights<Format, B>> experts;  // in place of gate_up and down, which are then empty
  std::optional<LatentWeights<Format, B>> latent;   // in place of qkv
  std::optional<StreamWeights<Format, B>> streams;  // of residual streams
  Matrix attention_gate;                            // [heads * dim, hidden], or empty
  Vector attention_gate_bias;
  Matrix mixer_in, mixer_out;  // [projected, hidden] and [hidden, inner]; empty in layers without a mixer
  Vector mixer_in_bias, mixer_out_bias;
  Vector conv, conv_bias;        // see Recurrence
  Vector decay, dt_bias, skip;   // see Recurrence
  Vector mixer_norm;             // see Recurrence
  Matrix input_gate, input_out;  // [inputs, hidden] and [hidden, inputs] of the layer's own input, or empty
  NormWeights<B> input_norm;     // [hidden]
  float factor = 1;              // of the layer's output
  Activation activation = {};    // with the parameters of xIELU
  int index = 0;                 // layer index

  int number(AdaptedProduct product) const { return number_of(product, index); }

  Recurrence recurrence(const Mixer& shape, const LayerFactors& factors, float epsilon) const {
    return {.shape = shape,
            .conv = data_or_null(conv),
            .conv_bias = data_or_null(conv_bias),
            .decay = data_or_null(decay),
            .dt_bias = data_or_null(dt_bias),
            .skip = data_or_null(skip),
            .gate_factor = factors.projected[0],
            .dt_factor = factors.projected[4],
            .norm = {.weight = data_or_null(mixer_norm), .epsilon = epsilon}};
  }
};

}}
