// Families that differ from Llama in biases, in the order of rotated dimensions, or in a norm.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// ERNIE 4.5: rotates neighbouring dimensions.
inline void read_ernie4_5(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 500000);
  ModelConfig& config = model.config;
  config.rotates_pairs = true;
  config.mlp_bias = fields.boolean("use_bias", false);
  if (config.mlp_bias) config.attention_bias = AttentionBias::all;
  read_tied_by_default(fields, model);
}

/// Helium: rotates neighbouring dimensions.
inline void read_helium(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-8f, 100000);
  model.config.rotates_pairs = true;
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::qkv;
  model.config.mlp_bias = fields.boolean("mlp_bias", false);
}

/// Seed-OSS: biases on q, k and v.
inline void read_seed_oss(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  ModelConfig& config = model.config;
  const bool inputs = fields.boolean("attention_bias", true), output = fields.boolean("attention_out_bias", false);
  if (output && !inputs) throw unsupported(fields.file(), "a bias of the output projection alone");
  config.attention_bias = output ? AttentionBias::all : inputs ? AttentionBias::qkv : AttentionBias::none;
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

/// Hunyuan: a norm of every head, after the rotation.
inline void read_hunyuan(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
  if (fields.boolean("use_qk_norm", true)) model.config.qk_norm = QkNorm::rotated;
  if (fields.boolean("use_cla", false)) throw unsupported(fields.file(), "keys and values shared between layers");
}

/// EXAONE 3 and 3.5: other names of fields and tensors.
inline void read_exaone(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  config.layers = fields.integer("num_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
  split_evenly(fields.file(), config);
  config.activation = read_activation(fields, "activation_function", "silu");
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("layer_norm_epsilon", 0, 1, 1e-5f);
  read_rope(fields, model);
  read_tied(fields, model);
}

/// BitNet's graph with ordinary weights: norms before the output projection and before the MLP's second matrix.
inline void read_bitnet(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 500000);
  model.config.activation = read_activation(fields, "hidden_act", "relu2");
  model.config.inner_norms = true;
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
}

inline constexpr Family ernie4_5{
    .model_type = "ernie4_5", .architecture = "Ernie4_5ForCausalLM", .names = {}, .read = read_ernie4_5};

inline constexpr Family helium{
    .model_type = "helium", .architecture = "HeliumForCausalLM", .names = {}, .read = read_helium};

inline constexpr Family seed_oss{
    .model_type = "seed_oss", .architecture = "SeedOssForCausalLM", .names = {}, .read = read_seed_oss};

inline constexpr Family hunyuan{.model_type = "hunyuan_v1_dense",
                                .architecture = "HunYuanDenseV1ForCausalLM",
                                .names = {.q_norm = "self_attn.query_layernorm", .k_norm = "self_attn.key_layernorm"},
                                .read = read_hunyuan};

inline constexpr Family exaone{
    .model_type = "exaone",
    .architecture = "ExaoneForCausalLM",
    .names = {.prefix = "transformer.",
              .embedding = "wte",
              .final_norm = "ln_f",
              .layer = "h.{}.",
              .attention_norm = "ln_1",
              .mlp_norm = "ln_2",
              .qkv = {"attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"},
              .attention_out = "attn.attention.out_proj",
              .up = {"mlp.c_fc_0", "mlp.c_fc_1"},
              .down = "mlp.c_proj"},
    .read = read_exaone};

inline constexpr Family bitnet{.model_type = "bitnet",
                               .architecture = "BitNetForCausalLM",
                               .names = {.mixed_norm = "self_attn.attn_sub_norm", .gated_norm = "mlp.ffn_sub_norm"},
                               .read = read_bitnet};

}}}
