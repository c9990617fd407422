// Qwen3.5 and Qwen3-Next: layers with a gated delta net, and some with gated attention. Qwen3-Next and Qwen3.5 MoE have
// experts in place of MLPs, with a shared expert as in Qwen2 MoE.
#pragma once

#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/layer_kinds.hpp"
#include "slm/io/families/qwen_moe.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// All but the widths of MLPs and experts.
inline void read_qwen_delta_net(const JsonFields& fields, ModelDescription& model, float theta) {
  ModelConfig& config = model.config;
  read_sizes(fields, config);
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
  read_rope(fields, model, 0.25f, theta);
  read_tied(fields, model);
}

inline void read_qwen3_5(const JsonFields& fields, ModelDescription& model) {
  read_qwen_delta_net(fields, model, 1e7f);
  model.config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
}

inline void read_qwen_shared_experts(const JsonFields& fields, ModelDescription& model) {
  read_experts(fields, {"num_experts", "num_local_experts"}, "moe_intermediate_size", model);
  model.config.mixture.shared_ffn = fields.integer("shared_expert_intermediate_size", 1, 1 << 22);
  model.config.mixture.shared_gate = true;
}

/// Experts in all layers.
inline void read_qwen3_5_moe(const JsonFields& fields, ModelDescription& model) {
  read_qwen_delta_net(fields, model, 1e7f);
  read_qwen_shared_experts(fields, model);
  model.settings.router.normalizes = true;
  set_dense_layers(fields.file(), std::vector<bool>(static_cast<std::size_t>(model.config.layers)), model);
}

inline void read_qwen3_next(const JsonFields& fields, ModelDescription& model) {
  read_qwen_delta_net(fields, model, 10000);
  if (!model.config.attention_gate) throw unsupported(fields.file(), "attention without a gate");
  model.config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  read_qwen_shared_experts(fields, model);
  model.settings.router.normalizes = fields.boolean("norm_topk_prob", false);
  read_qwen_dense_layers(fields, model);
}

inline constexpr TensorTable qwen3_5_names{
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .mixer_in = {"linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.in_proj_b", "linear_attn.in_proj_a"},
    .mixer_conv = "linear_attn.conv1d",
    .mixer_out = "linear_attn.out_proj",
    .mixer_norm = "linear_attn.norm",
    .mixer_vectors = {"linear_attn.A_log", "linear_attn.dt_bias"},
    .experts = qwen2_moe.names.experts,
    .norms_less_one = true};

constexpr TensorTable qwen3_next_names() {
  TensorTable names = qwen3_5_names;
  names.mixer_in = {"linear_attn.in_proj_qkvz", "linear_attn.in_proj_ba"};
  return names;
}

inline constexpr Family qwen3_5{
    .model_type = "qwen3_5_text", .architecture = "Qwen3_5ForCausalLM", .names = qwen3_5_names, .read = read_qwen3_5};

inline constexpr Family qwen3_5_moe{.model_type = "qwen3_5_moe_text",
                                    .architecture = "Qwen3_5MoeForCausalLM",
                                    .names = qwen3_5_names,
                                    .read = read_qwen3_5_moe};

inline constexpr Family qwen3_next{.model_type = "qwen3_next",
                                   .architecture = "Qwen3NextForCausalLM",
                                   .names = qwen3_next_names(),
                                   .read = read_qwen3_next};

}}}
