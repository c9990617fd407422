// Command-R (cohere) and Command-R7B (cohere2): parallel branches of one LayerNorm, neighbouring dimensions rotate.
#pragma once

#include <algorithm>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_cohere(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, std::max(config.hidden / config.heads, 1));
  if (!fields.has("head_dim")) split_evenly(fields.file(), config);
  config.norm = NormKind::layer;
  config.activation = read_activation(fields, "hidden_act", "silu");
  config.order = BlockOrder::parallel;
  config.rotates_pairs = true;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  if (fields.boolean("use_qk_norm", false)) config.qk_norm = QkNorm::own_weights;
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 8192);
  model.settings.norm_epsilon = fields.number("layer_norm_eps", 0, 1, 1e-5f);
  model.settings.logit_scale = fields.number("logit_scale", 1e-6, 1e6, 0.0625f);
  read_rope(fields, model);
  read_tied_by_default(fields, model);
}

/// Layers without the window are not rotated.
inline void read_cohere2(const JsonFields& fields, ModelDescription& model) {
  read_cohere(fields, model);
  if (!fields.boolean("use_parallel_block", true) || !fields.boolean("use_gated_activation", true)) {
    throw unsupported(fields.file(), "a block without parallel branches or without a gate");
  }
  expect_value(fields, "position_embedding_type", "rope_gptj");
  expect_value(fields, "order_of_interleaved_layers", "local_attn_first");
  ModelSettings& settings = model.settings;
  settings.window = read_window(fields, 4096);
  read_window_pattern(fields, fields.integer("sliding_window_pattern", 1, 1 << 20, 4), model);
  for (int l = 0; l < model.config.layers; ++l) settings.unrotated_layers.push_back(settings.window_of(l) == 0);
}

inline constexpr Family cohere{.model_type = "cohere",
                               .architecture = "CohereForCausalLM",
                               .names = {.q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
                               .read = read_cohere};

inline constexpr Family cohere2{
    .model_type = "cohere2", .architecture = "Cohere2ForCausalLM", .names = {}, .read = read_cohere2};

}}}
