// One transformer block: five operations of the backend, attention and MLP each added to the residual stream.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/model/weights.hpp"

namespace slm {

/// Buffers of one step; rows are the tokens of the step.
template <Backend B>
struct Activations {
  using Rows = View<typename B::Activation, 2>;
  Rows x;      // [rows, hidden]      residual stream
  Rows q;      // [rows, heads * dim] queries
  Rows mixed;  // [rows, heads * dim] attention output
  Rows gated;  // [rows, ffn]

  Activations slice(int first, int count) const {
    return {x.slice(first, count), q.slice(first, count), mixed.slice(first, count), gated.slice(first, count)};
  }
};

template <Config Shape, WeightFormat Format, Backend B>
void run_block(B& device, const Shape& config, const LayerWeights<Format, B>& layer, float norm_epsilon, Rope rope,
               int position, KvLayer<typename B::KvElement> kv, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;  // a constant unless Shape is Dynamic
  const Heads heads{.query = shape.heads, .kv = shape.kv_heads, .dim = shape.head_dim};
  const auto or_null = [](const auto& bias) { return bias.size() == 0 ? nullptr : bias.data(); };

  const Norm attention_norm{.weight = layer.attention_norm.data(), .epsilon = norm_epsilon};
  device.qkv(rows.x, attention_norm, layer.qkv, or_null(layer.qkv_bias), rope, heads, position, rows.q, kv);
  device.attend(rows.q, heads, position, kv, rows.mixed);
  device.project(rows.mixed, layer.attention_out, or_null(layer.attention_out_bias), rows.x);

  const Norm mlp_norm{.weight = layer.mlp_norm.data(), .epsilon = norm_epsilon};
  device.gated_mlp(rows.x, mlp_norm, layer.gate_up, or_null(layer.gate_up_bias), rows.gated);
  device.project(rows.gated, layer.down, or_null(layer.down_bias), rows.x);
}

}  // namespace slm
