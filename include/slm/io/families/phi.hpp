// Phi-1, 1.5 and 2: one LayerNorm for parallel attention and MLP, partial rotation, biases everywhere.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_phi(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "hidden_act", "gelu_new");
  config.gated = false;
  config.order = BlockOrder::parallel;
  config.attention_bias = AttentionBias::all;
  config.mlp_bias = config.head_bias = true;
  if (fields.boolean("qk_layernorm", false)) config.qk_norm = QkNorm::per_head;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("layer_norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 0.5f);
  read_tied(fields, model);
}

inline constexpr Family phi{.model_type = "phi",
                            .architecture = "PhiForCausalLM",
                            .names = {.final_norm = "final_layernorm",
                                      .mlp_norm = "",
                                      .q_norm = "self_attn.q_layernorm",
                                      .k_norm = "self_attn.k_layernorm",
                                      .attention_out = "self_attn.dense",
                                      .up = {"mlp.fc1"},
                                      .down = "mlp.fc2"},
                            .read = read_phi};

}}}
