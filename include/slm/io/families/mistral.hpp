// Mistral: Llama with a sliding window.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_mistral(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  model.settings.window = read_window(fields, 4096);
  if (fields.has("layer_types")) model.settings.windowed_layers = read_windowed_layers(fields, model.config.layers, 0);
}

inline constexpr Family mistral{
    .model_type = "mistral", .architecture = "MistralForCausalLM", .names = {}, .read = read_mistral};

}}}
