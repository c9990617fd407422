// GPT-NeoX (Pythia) and Falcon: LayerNorm, GELU without a gate, one matrix for grouped queries, keys and values.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_gpt_neox(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.kv_heads = config.heads;
  split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "hidden_act", "gelu");
  config.gated = false;
  config.mlp_bias = true;
  if (fields.boolean("attention_bias", true)) config.attention_bias = AttentionBias::all;
  if (fields.boolean("use_parallel_residual", true)) config.order = BlockOrder::parallel_norms;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("layer_norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 0.25f);
  read_tied(fields, model);
}

constexpr TensorTable falcon_names(std::string_view attention_norm, std::string_view mlp_norm) {
  return {.prefix = "transformer.",
          .embedding = "word_embeddings",
          .final_norm = "ln_f",
          .layer = "h.{}.",
          .attention_norm = attention_norm,
          .mlp_norm = mlp_norm,
          .qkv = {"self_attention.query_key_value"},
          .attention_out = "self_attention.dense",
          .up = {"mlp.dense_h_to_4h"},
          .down = "mlp.dense_4h_to_h",
          .grouped_qkv = true};
}

/// Falcon 40B and 180B have other names of norms than 7B.
inline void read_falcon(const JsonFields& fields, ModelDescription& model);
inline constexpr Family falcon{.model_type = "falcon",
                               .architecture = "FalconForCausalLM",
                               .names = falcon_names("input_layernorm", "post_attention_layernorm"),
                               .read = read_falcon};
inline constexpr Family falcon_new{.model_type = "falcon",
                                   .architecture = "FalconForCausalLM",
                                   .names = falcon_names("ln_attn", "ln_mlp"),
                                   .read = read_falcon};

/// Published files lack most fields.
inline void read_falcon(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  config.layers = fields.integer("num_hidden_layers", 1, 1024, fields.integer("n_layer", 1, 1024, 32));
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.heads = fields.integer("num_attention_heads", 1, 4096, fields.integer("n_head", 1, 4096, 71));
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
  config.ffn = fields.integer("ffn_hidden_size", 1, 1 << 22, 4 * config.hidden);
  split_evenly(fields.file(), config);
  const bool grouped = fields.boolean("new_decoder_architecture", false);
  const bool shared = fields.boolean("multi_query", true);
  const int stated = fields.integer("num_kv_heads", 1, 4096, fields.integer("n_head_kv", 1, 4096, config.heads));
  config.kv_heads = grouped ? stated : shared ? 1 : config.heads;
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  config.activation = read_activation(fields, "activation", "gelu");
  config.gated = false;
  config.mlp_bias = fields.boolean("bias", false);
  if (config.mlp_bias) config.attention_bias = AttentionBias::all;
  const bool two_norms = grouped && fields.integer("num_ln_in_parallel_attn", 1, 2, 2) == 2;
  const bool parallel = grouped || fields.boolean("parallel_attn", true);
  config.order = two_norms ? BlockOrder::parallel_norms : parallel ? BlockOrder::parallel : BlockOrder::pre_norm;
  if (fields.boolean("alibi", false)) throw unsupported(fields.file(), "Falcon with ALiBi");
  if (grouped && !two_norms) throw unsupported(fields.file(), "Falcon's new decoder with one norm");
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("layer_norm_epsilon", 0, 1, 1e-5f);
  read_rope(fields, model);
  read_tied_by_default(fields, model);
  if (two_norms) model.family = &falcon_new;
}

inline constexpr Family gpt_neox{.model_type = "gpt_neox",
                                 .architecture = "GPTNeoXForCausalLM",
                                 .names = {.prefix = "gpt_neox.",
                                           .embedding = "embed_in",
                                           .final_norm = "final_layer_norm",
                                           .head = "embed_out",
                                           .qkv = {"attention.query_key_value"},
                                           .attention_out = "attention.dense",
                                           .up = {"mlp.dense_h_to_4h"},
                                           .down = "mlp.dense_4h_to_h",
                                           .grouped_qkv = true},
                                 .read = read_gpt_neox};

}}}
