// StableLM 2: LayerNorm and partial rotation; the 12B model has parallel branches and a norm of each head.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_stablelm(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "hidden_act", "silu");
  if (fields.boolean("use_qkv_bias", false)) config.attention_bias = AttentionBias::qkv;
  if (fields.boolean("qk_layernorm", false)) config.qk_norm = QkNorm::own_weights;
  if (fields.boolean("use_parallel_residual", false)) config.order = BlockOrder::parallel;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 4096);
  model.settings.norm_epsilon = fields.number("layer_norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 0.25f);
  read_tied(fields, model);
}

inline constexpr Family stablelm{
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .names = {.q_norm = "self_attn.q_layernorm.norms", .k_norm = "self_attn.k_layernorm.norms", .norm_per_head = true},
    .read = read_stablelm};

}}}
