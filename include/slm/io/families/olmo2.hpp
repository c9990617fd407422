// OLMo 2 and 3, EXAONE 4: norms of the outputs of attention and MLP only, and of queries and keys.
#pragma once

#include <algorithm>
#include <string>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_olmo2(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  ModelConfig& config = model.config;
  config.order = BlockOrder::output_norm;
  config.qk_norm = QkNorm::whole;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
}

/// YaRN applies to the layers without a window only, with whole bounds.
inline void read_olmo3(const JsonFields& fields, ModelDescription& model) {
  read_olmo2(fields, model);
  ModelSettings& settings = model.settings;
  settings.window = read_window(fields, 4096);
  read_window_pattern(fields, 4, model);
  settings.rope_scaling.truncate = true;
  const bool scaled = settings.rope_scaling.kind != RopeScaling::Kind::none;
  if (scaled && settings.windowed_rope_theta == 0) settings.windowed_rope_theta = settings.rope_theta;
}

/// If some layers have a window, those without it are not rotated.
inline void read_exaone4(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  config.order = BlockOrder::output_norm;
  config.qk_norm = QkNorm::per_head;
  settings.window = read_window(fields, 0);
  if (settings.window == 0) return;
  const char* name = "sliding_window_pattern";
  int pattern = 4;
  if (fields.has(name) && fields.at(name).is_string()) {  // one letter for each layer of a period, the last one G
    const std::string letters = fields.string(name, "");
    pattern = static_cast<int>(std::min<std::size_t>(letters.size(), 1024));
    if (letters.empty() || letters.find('G') + 1 != letters.size())
      throw fields.bad(name, "letters L, then G", fields.at(name));
  } else {
    pattern = fields.integer(name, 0, 1 << 20, 4);
  }
  read_window_pattern(fields, pattern, model);
  for (int l = 0; l < config.layers; ++l) settings.unrotated_layers.push_back(settings.window_of(l) == 0);
}

inline constexpr TensorTable output_norm_names{.attention_norm = {},
                                               .mlp_norm = {},
                                               .attention_output_norm = "post_attention_layernorm",
                                               .mlp_output_norm = "post_feedforward_layernorm",
                                               .q_norm = "self_attn.q_norm",
                                               .k_norm = "self_attn.k_norm"};

inline constexpr Family olmo2{
    .model_type = "olmo2", .architecture = "Olmo2ForCausalLM", .names = output_norm_names, .read = read_olmo2};

inline constexpr Family olmo3{
    .model_type = "olmo3", .architecture = "Olmo3ForCausalLM", .names = output_norm_names, .read = read_olmo3};

inline constexpr Family exaone4{
    .model_type = "exaone4", .architecture = "Exaone4ForCausalLM", .names = output_norm_names, .read = read_exaone4};

}}}
