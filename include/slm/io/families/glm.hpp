// GLM-4 (0414; glm4) and GLM-4 9B chat, Edge (glm): neighbouring dimensions of half a head rotate.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_glm(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, 128);
  config.activation = read_activation(fields, "hidden_act", "silu");
  config.rotates_pairs = true;
  if (fields.boolean("attention_bias", true)) config.attention_bias = AttentionBias::qkv;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 131072);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1.5625e-7f);
  read_rope(fields, model, 0.5f);
  read_tied(fields, model);
}

inline void read_glm4(const JsonFields& fields, ModelDescription& model) {
  read_glm(fields, model);
  model.config.order = BlockOrder::sandwich;
}

inline constexpr Family glm{
    .model_type = "glm", .architecture = "GlmForCausalLM", .names = {.up = {"mlp.gate_up_proj"}}, .read = read_glm};

inline constexpr Family glm4{.model_type = "glm4",
                             .architecture = "Glm4ForCausalLM",
                             .names = {.attention_output_norm = "post_self_attn_layernorm",
                                       .mlp_output_norm = "post_mlp_layernorm",
                                       .up = {"mlp.gate_up_proj"}},
                             .read = read_glm4};

}}}
