// GPT-2: learned positions, LayerNorm, biases, and transposed matrices.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_gpt2(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  config.layers = fields.integer("n_layer", 1, 1024);
  config.hidden = fields.integer("n_embd", 1, 1 << 20);
  config.ffn = fields.integer("n_inner", 1, 1 << 22, 4 * config.hidden);
  config.heads = config.kv_heads = fields.integer("n_head", 1, 4096);
  config.vocab = fields.integer("vocab_size", 1, 1 << 24);
  split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "activation_function", "gelu_new");
  config.gated = false;
  config.positions = Positions::learned;
  config.attention_bias = AttentionBias::all;
  config.mlp_bias = true;
  model.settings.context = fields.integer("n_positions", 1, 1 << 24, 1024);
  model.settings.norm_epsilon = fields.number("layer_norm_epsilon", 0, 1, 1e-5f);
  if (!fields.boolean("scale_attn_weights", true)) model.settings.attention_scale = 1;
  if (fields.boolean("scale_attn_by_inverse_layer_idx", false)) {
    throw unsupported(fields.file(), "attention scaled by the layer number");
  }
  read_tied_by_default(fields, model);
}

inline constexpr Family gpt2{.model_type = "gpt2",
                             .architecture = "GPT2LMHeadModel",
                             .names = {.prefix = "transformer.",
                                       .embedding = "wte",
                                       .positions = "wpe",
                                       .final_norm = "ln_f",
                                       .layer = "h.{}.",
                                       .attention_norm = "ln_1",
                                       .mlp_norm = "ln_2",
                                       .qkv = {"attn.c_attn"},
                                       .attention_out = "attn.c_proj",
                                       .up = {"mlp.c_fc"},
                                       .down = "mlp.c_proj",
                                       .transposed = true},
                             .read = read_gpt2};

}}}
