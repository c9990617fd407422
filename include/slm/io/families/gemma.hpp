// Gemma 1, 2 and 3: norm weights stored as weight - 1, a scaled embedding, tanh GELU with a gate.
#pragma once

#include <cmath>
#include <string>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// tied by default; Gemma 1 has "gelu" in hidden_act, and means tanh.
inline void read_gemma(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, 256);
  config.activation = ActivationKind::gelu_tanh;
  const std::string named = fields.string("hidden_activation", fields.string("hidden_act", "gelu_pytorch_tanh"));
  if (named != "gelu_pytorch_tanh" && named != "gelu") {
    throw unsupported(fields.file(), text("the activation ", quote(named), " in a Gemma model"));
  }
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  if (fields.boolean("use_bidirectional_attention", false)) throw unsupported(fields.file(), "bidirectional attention");
  settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 8192);
  settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  settings.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  read_rope(fields, model);
  read_tied_by_default(fields, model);
}

/// A soft cap; null means none.
inline float read_cap(const JsonFields& fields, const char* name, float otherwise) {
  if (!fields.states(name)) return otherwise;
  return fields.has(name) ? fields.number(name, 1e-3, 1e6) : 0;
}

inline void read_gemma2(const JsonFields& fields, ModelDescription& model) {
  read_gemma(fields, model);
  ModelSettings& settings = model.settings;
  model.config.order = BlockOrder::sandwich;
  settings.attention_scale = 1 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-3, 1e6, 256));
  settings.attention_cap = read_cap(fields, "attn_logit_softcapping", 50);
  settings.logit_cap = read_cap(fields, "final_logit_softcapping", 30);
  settings.window = read_window(fields, 4096);
  read_window_pattern(fields, 2, model);
}

inline void read_gemma3(const JsonFields& fields, ModelDescription& model) {
  read_gemma(fields, model);
  ModelSettings& settings = model.settings;
  model.config.order = BlockOrder::sandwich;
  model.config.qk_norm = QkNorm::per_head;
  settings.attention_scale = 1 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-3, 1e6, 256));
  settings.attention_cap = read_cap(fields, "attn_logit_softcapping", 0);
  settings.logit_cap = read_cap(fields, "final_logit_softcapping", 0);
  settings.window = read_window(fields, 4096);
  const int pattern = fields.integer("_sliding_window_pattern", 1, 1 << 20, 6);
  read_window_pattern(fields, fields.integer("sliding_window_pattern", 1, 1 << 20, pattern), model);
  if (!fields.has("rope_parameters")) {  // transformers 4
    if (!fields.has("rope_theta")) settings.rope_theta = 1000000;
    settings.windowed_rope_theta = fields.number("rope_local_base_freq", 1, 1e12, 10000);
  }
}

/// Norms in the order of the block. Gemma 1's post_attention_layernorm is the norm before the MLP.
constexpr TensorTable gemma_names(bool sandwich) {
  TensorTable names{.norms_less_one = true};
  if (!sandwich) return names;
  names.attention_output_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.mlp_output_norm = "post_feedforward_layernorm";
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}

inline constexpr Family gemma{
    .model_type = "gemma", .architecture = "GemmaForCausalLM", .names = gemma_names(false), .read = read_gemma};

inline constexpr Family gemma2{
    .model_type = "gemma2", .architecture = "Gemma2ForCausalLM", .names = gemma_names(true), .read = read_gemma2};

inline constexpr Family gemma3{
    .model_type = "gemma3_text", .architecture = "Gemma3ForCausalLM", .names = gemma_names(true), .read = read_gemma3};

}}}
