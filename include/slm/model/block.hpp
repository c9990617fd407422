// One transformer block: backend operations for attention and MLP, each added to the residual stream. The traits of the
// config select the operations, never the name of a model family.
#pragma once

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/model/weights.hpp"

namespace slm { inline namespace v0_1 {

/// Buffers of one step. Each row is one token of the step.
template <Backend B>
struct Activations {
  using Rows = View<typename B::Activation, 2>;
  Rows x;      // [rows, hidden]      residual stream
  Rows q;      // [rows, heads * dim] queries
  Rows mixed;  // [rows, heads * dim] attention output
  Rows gated;  // [rows, ffn]
};

/// Settings of a checkpoint that a block needs besides its weights.
struct BlockSettings {
  float norm_epsilon = 0;
  float clip_qkv = 0;  // 0: none
  Rope rope = {};
  Attention attention = {};
};

/// Computes q, k, v = projections of input_norm(x), then the attention output `mixed`.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_attention(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
                   KvLayer kv, const Norm& input_norm, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;  // a constant unless Shape is Dynamic
  const Heads heads{.query = shape.heads, .kv = shape.kv_heads, .dim = shape.head_dim};
  QkvShaping shaping{.clip = settings.clip_qkv, .norm = shape.qk_norm, .query = {}, .key = {}};
  if (shape.qk_norm != QkNorm::none) {
    shaping.query = norm_of<B>(layer.q_norm, shape.norm, settings.norm_epsilon);
    shaping.key = norm_of<B>(layer.k_norm, shape.norm, settings.norm_epsilon);
  }
  const auto projections = linear(layer.qkv, layer.qkv_bias, layer.number(AdaptedProduct::qkv));
  step.qkv(rows.x, input_norm, projections, settings.rope, heads, kv, rows.q, shaping);
  step.attend(rows.q, heads, kv, rows.mixed, settings.attention);
}

/// Computes the MLP's inner activations of input_norm(x).
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_mlp(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const Norm& input_norm,
             const Activations<B>& rows) {
  const ModelConfig& shape = config.value;
  const auto up = linear(layer.gate_up, layer.gate_up_bias, layer.number(AdaptedProduct::gate_up));
  if (shape.gated) {
    step.gated_mlp(rows.x, input_norm, up, rows.gated, shape.activation);
  } else {
    step.mlp(rows.x, input_norm, up, shape.activation, data_or_null(layer.down_divisor), rows.gated);
  }
}

template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_block(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
               KvLayer kv, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;
  const Norm attention_norm = norm_of<B>(layer.attention_norm, shape.norm, settings.norm_epsilon);
  const Norm mlp_norm = norm_of<B>(layer.mlp_norm, shape.norm, settings.norm_epsilon);
  const Norm as_it_is{.kind = NormKind::none};
  const bool before = shape.order != BlockOrder::post_norm;
  const bool parallel = shape.order == BlockOrder::parallel;
  const auto attention_out =
      linear(layer.attention_out, layer.attention_out_bias, layer.number(AdaptedProduct::attention_out));
  const auto down = linear(layer.down, layer.down_bias, layer.number(AdaptedProduct::down));

  run_attention<B>(step, config, layer, settings, kv, before ? attention_norm : as_it_is, rows);
  if (parallel) run_mlp<B>(step, config, layer, attention_norm, rows);  // x does not contain the attention output yet
  step.project(rows.mixed, attention_out, rows.x);
  if (!before) step.normalize(rows.x, attention_norm);

  if (!parallel) run_mlp<B>(step, config, layer, before ? mlp_norm : as_it_is, rows);
  step.project(rows.gated, down, rows.x);
  if (!before) step.normalize(rows.x, mlp_norm);
}

}}
