// Conversion of a model's properties to GGUF metadata: the counterpart of gguf_model.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "slm/core/error.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_model.hpp"
#include "slm/io/gguf_writer.hpp"

namespace slm { inline namespace v0_1 {

/// The GGUF architecture of a model. Throws Error if GGUF has none for its family.
inline const GgufArchitecture& gguf_architecture_for(const Checkpoint& checkpoint) {
  if (const GgufFile* file = checkpoint.gguf()) return architecture_of(*file);
  const std::string_view type = checkpoint.family().model_type;
  const std::string_view wanted = type == "mistral" ? "llama" : type;
  const auto found = std::find_if(std::begin(gguf_architectures), std::end(gguf_architectures),
                                  [&](const auto& known) { return known.apart.model_type == wanted; });
  if (found != std::end(gguf_architectures)) return *found;
  throw Error(
      "quantize.not-for-gguf",
      text("'", checkpoint.folder().string(), "' is of the family '", type, "', which has no GGUF architecture"),
      "Use the model's folder directly, or write AWQ");
}

inline void write_gguf_metadata(GgufWriter& out, std::string_view architecture, const ModelConfig& config,
                                const ModelSettings& settings) {
  const auto key = [architecture](std::string_view name) { return text(architecture, ".", name); };
  const auto integer = [&](std::string_view name, int value) {
    out.number(key(name), static_cast<std::uint32_t>(value));
  };
  integer("vocab_size", config.vocab);
  integer("context_length", settings.context);
  integer("embedding_length", config.hidden);
  integer("block_count", config.layers);
  integer("feed_forward_length", config.ffn);
  integer("attention.head_count", config.heads);
  integer("attention.head_count_kv", config.kv_heads);
  if (config.heads * config.head_dim != config.hidden) {
    integer("attention.key_length", config.head_dim);
    integer("attention.value_length", config.head_dim);
  }
  const bool rms = config.norm == NormKind::rms;
  out.number(key(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"), settings.norm_epsilon);
  if (settings.clip_qkv > 0) out.number(key("attention.clamp_kqv"), settings.clip_qkv);
  const int window = settings.window_of(config.layers - 1);
  if (window > 0 || architecture == "phi3") integer("attention.sliding_window", window);
  if (config.positions == Positions::alibi) out.number(key("attention.max_alibi_bias"), settings.alibi_bias_max);
  if (config.positions != Positions::rope) return;
  out.number(key("rope.freq_base"), settings.rope_theta);
  integer("rope.dimension_count", config.rotary_dim());
  const RopeScaling& scaling = settings.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear) {
    out.string(key("rope.scaling.type"), "linear");
    out.number(key("rope.scaling.factor"), scaling.factor);
  }
  if (scaling.kind == RopeScaling::Kind::longrope) {
    integer("rope.scaling.original_context_length", static_cast<int>(scaling.original_context));
    out.number(key("rope.scaling.attn_factor"), scaling.attention_factor);
  }
}

/// Whether settings read back from a GGUF file compute the same as the model's, for a model of `layers` layers. Llama
/// 3's scaling becomes divisors.
inline bool gguf_keeps(const ModelSettings& model, const ModelSettings& file, int layers) {
  const RopeScaling &one = model.rope_scaling, &other = file.rope_scaling;
  const bool llama3 = one.kind == RopeScaling::Kind::llama3 && other.kind == RopeScaling::Kind::divisors;
  const bool scaling =
      llama3 || (one.kind == other.kind && one.factor == other.factor && one.short_factors == other.short_factors &&
                 one.long_factors == other.long_factors && one.attention_factor == other.attention_factor);
  for (int layer = 0; layer < layers; ++layer) {
    if (model.window_of(layer) != file.window_of(layer)) return false;
  }
  return scaling && model.context == file.context && model.norm_epsilon == file.norm_epsilon &&
         model.rope_theta == file.rope_theta && model.tied_embeddings == file.tied_embeddings &&
         model.clip_qkv == file.clip_qkv && model.attention_scale == file.attention_scale &&
         model.alibi_bias_max == file.alibi_bias_max && model.alibi_power_of_two == file.alibi_power_of_two &&
         model.logit_scale == file.logit_scale && model.position_offset == file.position_offset;
}

}}
