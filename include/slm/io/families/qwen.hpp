// Qwen2 (and 2.5): Llama with biases on q, k and v. Qwen3: without them, with a norm per head.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// The window applies only if use_sliding_window is true, to layers from max_window_layers on.
inline void read_qwen_window(const JsonFields& fields, ModelDescription& model) {
  if (!fields.boolean("use_sliding_window", false)) return;
  model.settings.window = read_window(fields, 4096);
  const int first = fields.integer("max_window_layers", 0, 1 << 20, 28);
  model.settings.windowed_layers = read_windowed_layers(fields, model.config.layers, first);
}

inline void read_qwen2(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  model.config.attention_bias = AttentionBias::qkv;
  read_qwen_window(fields, model);
}

inline void read_qwen3(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  model.config.qk_norm = QkNorm::per_head;
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
  read_qwen_window(fields, model);
}

inline constexpr Family qwen2{
    .model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .names = {}, .read = read_qwen2};

inline constexpr Family qwen3{.model_type = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .names = {.q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
                              .read = read_qwen3};

}}}
