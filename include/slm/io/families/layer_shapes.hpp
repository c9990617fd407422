// Shapes of layers that config.json and GGUF metadata state in different fields.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/families/refusals.hpp"
#include "slm/io/family.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// A layer with the mixer instead of attention.
inline void set_recurrent(ModelConfig& config, int layer) {
  config.mixer_layers.add(layer);
  config.no_attention.add(layer);
}

/// Without recurrent layers a model has no mixer.
inline void drop_unused_mixer(ModelConfig& config) {
  if (config.mixer_layers.empty()) config.mixer = {};
}

/// The factor of scores for heads of `width`, a latent's queries before and after its matrices give the same scores.
/// mscale: of a YaRN scaling, for all dimensions.
inline float latent_scale(int width, const RopeScaling& scaling, double mscale) {
  const double stretched =
      scaling.kind == RopeScaling::Kind::yarn ? 0.1 * mscale * std::log(double{scaling.factor}) : 0;
  return static_cast<float>((stretched + 1) * (stretched + 1) / std::sqrt(static_cast<double>(width)));
}

/// Sets the shape of the cached row. rotary: width of the rotated part.
inline void set_latent(const LatentAttention& latent, int rotary, ModelConfig& config) {
  config.latent = latent;
  config.kv_heads = 1;
  config.rotary = rotary;
  config.head_dim = latent.rank + rotary;
}

/// KV heads and width of the heads of a layer.
struct LayerHeads {
  int kv_heads = 0;
  int head_dim = 0;
  bool operator==(const LayerHeads&) const = default;
};

/// Sets the sizes of heads. Layers with the window have one shape, and the others may have another.
inline void set_layer_heads(const std::string& file, const std::vector<LayerHeads>& heads, ModelDescription& model) {
  ModelConfig& config = model.config;
  std::optional<LayerHeads> windowed, full;
  for (int l = 0; l < config.layers; ++l) {
    std::optional<LayerHeads>& kind = model.settings.window_of(l) != 0 ? windowed : full;
    const LayerHeads& own = heads[static_cast<std::size_t>(l)];
    if (kind && *kind != own) throw unsupported(file, text("different heads in layers of one kind (layer ", l, ")"));
    kind = own;
  }
  const LayerHeads usual = windowed ? *windowed : *full;
  config.kv_heads = usual.kv_heads;
  config.head_dim = usual.head_dim;
  if (!windowed || !full || *full == usual) return;
  config.shapes.kv_heads = full->kv_heads;
  config.shapes.head_dim = full->head_dim;
  for (int l = 0; l < config.layers; ++l) {
    if (model.settings.window_of(l) == 0) config.shapes.wide_heads.add(l);
  }
}

}}}
