// One transformer block: operations of the backend, attention and MLP each added to the residual stream. What the block
// does is chosen by the traits of the config, never by the name of a family.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/model/weights.hpp"

namespace slm {

/// Buffers of one step; rows are the tokens of the step.
template <Backend B>
struct Activations {
  using Rows = View<typename B::Activation, 2>;
  Rows x;       // [rows, hidden]      residual stream
  Rows q;       // [rows, heads * dim] queries
  Rows mixed;   // [rows, heads * dim] attention output
  Rows gated;   // [rows, ffn]
  Rows narrow;  // [rows, embedding]   where the embedding is projected, else without memory

  Activations slice(int first, int count) const {
    const auto part = [&](const Rows& rows) { return rows.data == nullptr ? rows : rows.slice(first, count); };
    return {part(x), part(q), part(mixed), part(gated), part(narrow)};
  }
};

/// What a block must know of the checkpoint besides its weights.
struct BlockSettings {
  float norm_epsilon = 0;
  float clip_qkv = 0;  // 0: none
  Rope rope = {};
  Attention attention = {};
};

/// Queries, keys and values of input_norm(x), and what attention mixes of them.
template <Config Shape, WeightFormat Format, Backend B>
void run_attention(B& device, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
                   int position, KvLayer<typename B::KvElement> kv, const Norm& input_norm,
                   const Activations<B>& rows) {
  const ModelConfig& shape = config.value;  // a constant unless Shape is Dynamic
  const Heads heads{.query = shape.heads, .kv = shape.kv_heads, .dim = shape.head_dim};
  QkvShaping shaping{.clip = settings.clip_qkv, .norm = shape.qk_norm, .query = {}, .key = {}};
  if (shape.qk_norm != QkNorm::none) {
    shaping.query = norm_of<B>(layer.q_norm, shape.norm, settings.norm_epsilon);
    shaping.key = norm_of<B>(layer.k_norm, shape.norm, settings.norm_epsilon);
  }
  device.qkv(rows.x, input_norm, layer.qkv, data_or_null(layer.qkv_bias), settings.rope, heads, position, rows.q, kv,
             shaping);
  device.attend(rows.q, heads, position, kv, rows.mixed, settings.attention);
}

/// The wide activations of the MLP of input_norm(x).
template <Config Shape, WeightFormat Format, Backend B>
void run_mlp(B& device, const Shape& config, const LayerWeights<Format, B>& layer, const Norm& input_norm,
             const Activations<B>& rows) {
  const ModelConfig& shape = config.value;
  const float* bias = data_or_null(layer.gate_up_bias);
  if (shape.gated) {
    device.gated_mlp(rows.x, input_norm, layer.gate_up, bias, rows.gated, shape.activation);
  } else {
    device.mlp(rows.x, input_norm, layer.gate_up, bias, shape.activation, data_or_null(layer.down_divisor), rows.gated);
  }
}

template <Config Shape, WeightFormat Format, Backend B>
void run_block(B& device, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
               int position, KvLayer<typename B::KvElement> kv, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;
  const Norm attention_norm = norm_of<B>(layer.attention_norm, shape.norm, settings.norm_epsilon);
  const Norm mlp_norm = norm_of<B>(layer.mlp_norm, shape.norm, settings.norm_epsilon);
  const Norm as_it_is{.kind = NormKind::none};
  const bool before = shape.order != BlockOrder::post_norm;
  const bool parallel = shape.order == BlockOrder::parallel;

  run_attention(device, config, layer, settings, position, kv, before ? attention_norm : as_it_is, rows);
  if (parallel) run_mlp(device, config, layer, attention_norm, rows);  // x is still without attention
  device.project(rows.mixed, layer.attention_out, data_or_null(layer.attention_out_bias), rows.x);
  if (!before) device.normalize(rows.x, attention_norm);

  if (!parallel) run_mlp(device, config, layer, before ? mlp_norm : as_it_is, rows);
  device.project(rows.gated, layer.down, data_or_null(layer.down_bias), rows.x);
  if (!before) device.normalize(rows.x, mlp_norm);
}

}  // namespace slm
