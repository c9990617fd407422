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

inline constexpr Family bitnet{.model_type = "bitnet",
                               .architecture = "BitNetForCausalLM",
                               .names = {.mixed_norm = "self_attn.attn_sub_norm", .gated_norm = "mlp.ffn_sub_norm"},
                               .read = read_bitnet};

}}}
