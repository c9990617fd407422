// StarCoder 2: GPT-2-like blocks with rotation, grouped queries and a sliding window.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_starcoder2(const JsonFields& fields, ModelDescription& model) {
  expect_value(fields, "norm_type", "layer_norm");
  expect_value(fields, "mlp_type", "default");
  ModelConfig& config = model.config;
  read_shape(fields, config);
  split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "hidden_act", "gelu_pytorch_tanh");
  config.gated = false;
  config.mlp_bias = fields.boolean("use_bias", true);
  if (config.mlp_bias) config.attention_bias = AttentionBias::all;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 4096);
  model.settings.norm_epsilon = fields.number("norm_epsilon", 0, 1, 1e-5f);
  model.settings.window = read_window(fields, 0);
  read_rope(fields, model);
  read_tied_by_default(fields, model);
}

inline constexpr Family starcoder2{.model_type = "starcoder2",
                                   .architecture = "Starcoder2ForCausalLM",
                                   .names = {.up = {"mlp.c_fc"}, .down = "mlp.c_proj"},
                                   .read = read_starcoder2};

}}}
