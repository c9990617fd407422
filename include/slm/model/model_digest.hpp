// model_digest: equal for two models if and only if their keys and values are interchangeable.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/core/checksum.hpp"
#include "slm/io/checkpoint.hpp"

namespace slm { inline namespace v0_1 {

/// Digest of all weights and of the settings that affect keys and values. Reads the whole checkpoint (some seconds for
/// 7B), or the first `most` bytes of each tensor. The latter distinguishes models but does not detect damage.
inline std::uint64_t model_digest(const Checkpoint& checkpoint,
                                  std::size_t most = std::numeric_limits<std::size_t>::max()) {
  Checksum sum;
  const auto add_text = [&](std::string_view text) { sum.add(std::as_bytes(std::span(text))); };
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    add_text(name);
    add_text(name_of(tensor->dtype));
    sum.add({tensor->bytes, std::min(most, tensor->size_bytes)});
  }
  checkpoint.check_unchanged();
  const ModelSettings& settings = checkpoint.settings();
  const RopeScaling& scaling = settings.rope_scaling;
  for (const float number : {settings.norm_epsilon, settings.rope_theta, settings.clip_qkv, settings.attention_scale,
                             settings.alibi_bias_max, settings.alibi_power_of_two ? 1.0f : 0.0f,
                             static_cast<float>(settings.window), static_cast<float>(settings.position_offset),
                             static_cast<float>(scaling.kind), scaling.factor, scaling.low_frequency_factor,
                             scaling.high_frequency_factor, scaling.original_context, scaling.attention_factor}) {
    sum.add(number);
  }
  sum.add(std::as_bytes(std::span(scaling.short_factors)));
  sum.add(std::as_bytes(std::span(scaling.long_factors)));
  for (int layer = 0; layer < checkpoint.config().layers; ++layer) sum.add(settings.window_of(layer));
  // Settings of newer families count where they have an effect, so that older models keep their digests.
  const ModelSettings usual;
  const auto add_unusual = [&](float number, float of_others) {
    if (number != of_others) sum.add(number);
  };
  add_unusual(scaling.beta_fast, usual.rope_scaling.beta_fast);
  add_unusual(scaling.beta_slow, usual.rope_scaling.beta_slow);
  add_unusual(scaling.truncate ? 1.0f : 0.0f, 1);
  add_unusual(settings.attention_cap, 0);
  add_unusual(settings.temperature, 0);
  add_unusual(static_cast<float>(settings.temperature_context), 1);
  add_unusual(settings.embedding_scale, 1);
  add_unusual(settings.residual_scale, 1);
  add_unusual(settings.windowed_rope_theta, 0);
  add_unusual(settings.clips_normed ? 1 : 0, 0);
  add_unusual(settings.router.normalizes ? 1 : 0, 0);
  add_unusual(settings.router.added_to_sum, 0);
  add_unusual(settings.router.least_sum, 0);
  add_unusual(settings.router.scale, 1);
  add_unusual(static_cast<float>(settings.router.groups), 0);
  add_unusual(static_cast<float>(settings.router.kept_groups), 0);
  add_unusual(settings.router.by_best ? 1 : 0, 0);
  add_unusual(settings.router.gate_limit, 0);
  add_unusual(settings.router.gate_alpha, 1);
  add_unusual(settings.router.closeness, 0);
  if (const LayerFactors& factors = settings.factors; factors != LayerFactors{}) {
    for (const float factor : {factors.attention_in, factors.attention_out, factors.mixer_in, factors.mixer_out,
                               factors.mlp_gate, factors.mlp_out})
      sum.add(factor);
    for (const float factor : factors.projected) sum.add(factor);
  }
  const ModelConfig& config = checkpoint.config();
  for (int layer = 0; layer < config.layers; ++layer) {
    add_unusual(settings.rotates(layer) ? 0 : layer + 1, 0);
    const int source = kv_layer_of(config, settings, layer);
    add_unusual(source != layer && source >= 0 ? static_cast<float>(source) : -1, -1);
  }
  add_unusual(config.shapes.value_norm ? 1 : 0, 0);
  for (const float cutoff : settings.gate_cutoffs) sum.add(cutoff);
  add_unusual(config.streams.scaled ? 1 : 0, 0);
  return sum.value();
}

}}
