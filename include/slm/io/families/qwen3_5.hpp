// Qwen3.5 without experts: layers with a gated delta net, and some with gated attention.
#pragma once

#include "slm/io/families/common.hpp"
#include "slm/io/families/layer_kinds.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_qwen3_5(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, 256);
  config.activation = read_activation(fields, "hidden_act", "silu");
  config.qk_norm = QkNorm::per_head;
  config.attention_gate = fields.boolean("attn_output_gate", true);
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  config.mixer = {.kind = MixerKind::delta_net,
                  .taps = fields.integer("linear_conv_kernel_dim", 1, 64, 4),
                  .heads = fields.integer("linear_num_value_heads", 1, 4096, 32),
                  .head_dim = fields.integer("linear_value_head_dim", 1, 4096, 128),
                  .groups = fields.integer("linear_num_key_heads", 1, 4096, 16),
                  .state = fields.integer("linear_key_head_dim", 1, 4096, 128)};
  if (fields.has("layer_types")) {
    read_layer_kinds(fields, {"linear_attention"}, config);
  } else {
    const int interval = fields.integer("full_attention_interval", 1, 1 << 20, 4);
    for (int l = 0; l < config.layers; ++l) {
      if ((l + 1) % interval != 0) set_recurrent(config, l);
    }
    drop_unused_mixer(config);
  }
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 32768);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6);
  read_rope(fields, model, 0.25f, 1e7f);
  read_tied(fields, model);
}

inline constexpr Family qwen3_5{.model_type = "qwen3_5_text",
                                .architecture = "Qwen3_5ForCausalLM",
                                .names = {.q_norm = "self_attn.q_norm",
                                          .k_norm = "self_attn.k_norm",
                                          .mixer_in = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
                                                       "linear_attn.in_proj_b", "linear_attn.in_proj_a"},
                                          .mixer_conv = "linear_attn.conv1d",
                                          .mixer_out = "linear_attn.out_proj",
                                          .mixer_norm = "linear_attn.norm",
                                          .mixer_vectors = {"linear_attn.A_log", "linear_attn.dt_bias"},
                                          .norms_less_one = true},
                                .read = read_qwen3_5};

}}}
