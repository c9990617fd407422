// SmolLM3: Llama with layers without rotation.
#pragma once

#include <vector>

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// no_rope_layers has 1 for rotated layers; without it, every no_rope_layer_interval-th layer has no rotation.
inline std::vector<bool> read_unrotated_layers(const JsonFields& fields, int layers) {
  std::vector<bool> unrotated(static_cast<std::size_t>(layers));
  if (!fields.has("no_rope_layers")) {
    const int interval = fields.integer("no_rope_layer_interval", 1, 1 << 20, 4);
    for (int l = interval - 1; l < layers; l += interval) unrotated[static_cast<std::size_t>(l)] = true;
    return unrotated;
  }
  const Json& list = fields.at("no_rope_layers");
  if (!list.is_array() || list.size() != unrotated.size()) {
    throw fields.bad("no_rope_layers", text("a list of ", layers, " numbers").c_str(), list);
  }
  for (std::size_t l = 0; l < unrotated.size(); ++l) {
    if (list[l] != 0 && list[l] != 1) throw fields.bad("no_rope_layers", "a list of 0 and 1", list[l]);
    unrotated[l] = list[l] == 0;
  }
  return unrotated;
}

inline void read_smollm3(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-6f, 2000000);
  read_biases(fields, model.config);
  read_tied_by_default(fields, model);
  ModelSettings& settings = model.settings;
  settings.unrotated_layers = read_unrotated_layers(fields, model.config.layers);
  if (!fields.boolean("use_sliding_window", false)) return;
  settings.window = read_window(fields, 0);
  settings.windowed_layers =
      fields.has("layer_types") ? read_windowed_layers(fields, model.config.layers, 0) : settings.unrotated_layers;
}

inline constexpr Family smollm3{
    .model_type = "smollm3", .architecture = "SmolLM3ForCausalLM", .names = {}, .read = read_smollm3};

}}}
