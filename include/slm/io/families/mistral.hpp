// Mistral and Ministral: Llama with a sliding window. Ministral 3: scores that grow with the position.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_mistral(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  model.settings.window = read_window(fields, 4096);
  if (fields.has("layer_types")) model.settings.windowed_layers = read_windowed_layers(fields, model.config.layers, 0);
}

/// Ministral 3: queries grow with the position beyond the original context.
inline void read_ministral3(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  ModelSettings& settings = model.settings;
  settings.window = read_window(fields, 0);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(name)) continue;
    const JsonFields rope = fields.object(name);
    settings.temperature = rope.number("llama_4_scaling_beta", 0, 1e3, settings.temperature);
    if (settings.temperature == 0) continue;
    settings.temperature_context = rope.integer("original_max_position_embeddings", 1, 1 << 24);
  }
}

inline constexpr Family ministral{
    .model_type = "ministral", .architecture = "MinistralForCausalLM", .names = {}, .read = read_mistral};

inline constexpr Family ministral3{
    .model_type = "ministral3", .architecture = "Ministral3ForCausalLM", .names = {}, .read = read_ministral3};

inline constexpr Family mistral{
    .model_type = "mistral", .architecture = "MistralForCausalLM", .names = {}, .read = read_mistral};

}}}
