// Granite 3 and 4 (dense), MiniCPM 1 and 2: Llama with factors of embedding, branches, scores and logits.
#pragma once

#include <cmath>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_granite(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  read_biases(fields, model.config);
  ModelSettings& settings = model.settings;
  settings.embedding_scale = fields.number("embedding_multiplier", 1e-6, 1e6, 1);
  settings.residual_scale = fields.number("residual_multiplier", 1e-6, 1e6, 1);
  settings.attention_scale = fields.number("attention_multiplier", 1e-6, 1e6, 1);
  settings.logit_scale = 1 / fields.number("logits_scaling", 1e-6, 1e6, 1);
}

inline void read_minicpm(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  if (fields.has("num_experts")) throw unsupported(fields.file(), "a mixture of experts");
  settings.embedding_scale = fields.number("scale_emb", 1e-6, 1e6, 1);
  settings.residual_scale = fields.number("scale_depth", 1e-6, 1e6, 1) / std::sqrt(static_cast<float>(config.layers));
  const int base = fields.integer("dim_model_base", 1, 1 << 20, config.hidden);
  settings.logit_scale = static_cast<float>(base) / static_cast<float>(config.hidden);
  read_tied_by_default(fields, model);
}

inline constexpr Family granite{
    .model_type = "granite", .architecture = "GraniteForCausalLM", .names = {}, .read = read_granite};

inline constexpr Family minicpm{
    .model_type = "minicpm", .architecture = "MiniCPMForCausalLM", .names = {}, .read = read_minicpm};

}}}
