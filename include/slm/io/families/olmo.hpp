// OLMo 1: Llama with LayerNorms without weights.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_olmo(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  model.config.norm = NormKind::layer;
  model.config.norm_affine = NormAffine::none;
  model.settings.norm_epsilon = 1e-5f;  // fixed by the architecture; config.json may have another, unused value
  model.settings.clip_qkv = fields.number("clip_qkv", 1e-6, 1e6, 0);
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
}

inline constexpr Family olmo{.model_type = "olmo",
                             .architecture = "OlmoForCausalLM",
                             .names = {.final_norm = "", .attention_norm = "", .mlp_norm = ""},
                             .read = read_olmo};

}}}
