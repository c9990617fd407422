// Reading of the kinds of layers of models with recurrent layers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/io/families/layer_shapes.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// layer_types: a name per layer. recurrent: names of layers with the mixer; the others are attention.
inline void read_layer_kinds(const JsonFields& fields, std::initializer_list<std::string_view> recurrent,
                             ModelConfig& config) {
  const Json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(config.layers)) {
    throw fields.bad("layer_types", text("a list of ", config.layers, " kinds").c_str(), types);
  }
  for (int l = 0; l < config.layers; ++l) {
    const Json& type = types[static_cast<std::size_t>(l)];
    const auto is = [&](std::string_view name) { return is_text(type, name); };
    if (std::any_of(recurrent.begin(), recurrent.end(), is)) {
      set_recurrent(config, l);
    } else if (!is("full_attention") && !is("attention")) {
      throw fields.bad("layer_types", text(*recurrent.begin(), " and full_attention").c_str(), type);
    }
  }
  drop_unused_mixer(config);
}

/// A list of the layers with attention; the others have the mixer. Absent: all layers have attention.
inline void read_attention_layers(const JsonFields& fields, const char* name, ModelConfig& config) {
  LayerSet attention;
  if (!fields.has(name)) return drop_unused_mixer(config);
  const Json& list = fields.at(name);
  if (!list.is_array()) throw fields.bad(name, "a list of layers", list);
  for (const Json& layer : list) {
    if (!is_index(layer, static_cast<std::uint64_t>(config.layers)))
      throw fields.bad(name, text("layers of 0..", config.layers - 1).c_str(), layer);
    attention.add(layer.get<int>());
  }
  for (int l = 0; l < config.layers; ++l) {
    if (!attention.has(l)) set_recurrent(config, l);
  }
  drop_unused_mixer(config);
}

}}}
