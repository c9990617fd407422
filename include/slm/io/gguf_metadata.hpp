// Conversion of a model's properties to GGUF metadata: the counterpart of gguf_model.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_file.hpp"
#include "slm/io/gguf_model.hpp"
#include "slm/io/gguf_writer.hpp"

namespace slm { inline namespace v0_1 {

/// The GGUF architecture of a model. Throws Error if GGUF has none for its family.
inline const GgufArchitecture& gguf_architecture_for(const Checkpoint& checkpoint) {
  if (const GgufFile* file = checkpoint.gguf()) return architecture_of(*file);
  const std::string_view type = checkpoint.family().model_type;
  const bool llama = type == "mistral" || type == "internlm3";
  const std::string_view wanted = llama ? "llama" : type == "olmo3" ? "olmo2" : type;
  const auto found = std::find_if(std::begin(gguf_architectures), std::end(gguf_architectures),
                                  [&](const auto& known) { return known.apart.model_type == wanted; });
  if (found != std::end(gguf_architectures)) {
    return detail::variant_of(*found, checkpoint.config().order == BlockOrder::parallel_norms);
  }
  throw Error(
      "quantize.not-for-gguf",
      text("'", checkpoint.folder().string(), "' is of the family '", type, "', which has no GGUF architecture"),
      "Use the model's folder directly, or write AWQ");
}

/// The keys of single architectures, see GgufFamilyReader.
inline void write_gguf_family(GgufWriter& out, std::string_view architecture, const ModelConfig& config,
                              const ModelSettings& settings) {
  const auto key = [architecture](std::string_view name) { return text(architecture, ".", name); };
  const bool granite = architecture == "granite";
  if (granite || architecture == "minicpm") {
    out.number(key("embedding_scale"), settings.embedding_scale);
    out.number(key("residual_scale"), settings.residual_scale);
    out.number(key("logit_scale"), 1 / settings.logit_scale);
    if (granite) out.number(key("attention.scale"), settings.attention_scale);
  }
  if (architecture == "cohere2" || architecture == "command-r") out.number(key("logit_scale"), settings.logit_scale);
  if (architecture == "gemma2") out.number(key("attn_logit_softcapping"), settings.attention_cap);
  if (settings.logit_cap != 0) out.number(key("final_logit_softcapping"), settings.logit_cap);
  if (settings.has_two_ropes()) out.number(key("rope.freq_base_swa"), settings.windowed_rope_theta);
  if (settings.temperature != 0) out.number(key("attention.temperature_scale"), settings.temperature);
  if (architecture == "gptneox" || architecture == "stablelm") {
    out.boolean(key("use_parallel_residual"), is_parallel(config.order));
  }
  if (settings.window == 0 || (architecture != "olmo2" && architecture != "exaone4")) return;
  std::vector<bool> windowed;
  for (int layer = 0; layer < config.layers; ++layer) windowed.push_back(settings.window_of(layer) != 0);
  out.booleans(key("attention.sliding_window_pattern"), windowed);
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
  const bool patterned = detail::gguf_family_reads(architecture, "attention.sliding_window_pattern");
  const int window = patterned ? settings.window : settings.window_of(config.layers - 1);
  if (window > 0 || architecture == "phi3") integer("attention.sliding_window", window);
  if (config.positions == Positions::alibi) out.number(key("attention.max_alibi_bias"), settings.alibi_bias_max);
  write_gguf_family(out, architecture, config, settings);
  if (config.positions != Positions::rope) return;
  out.number(key("rope.freq_base"), settings.rope_theta);
  integer("rope.dimension_count", config.rotary_dim());
  const RopeScaling& scaling = settings.rope_scaling;
  if (scaling.kind == RopeScaling::Kind::linear) {
    out.string(key("rope.scaling.type"), "linear");
    out.number(key("rope.scaling.factor"), scaling.factor);
  }
  if (scaling.kind == RopeScaling::Kind::yarn) {
    out.string(key("rope.scaling.type"), "yarn");
    out.number(key("rope.scaling.factor"), scaling.factor);
    integer("rope.scaling.original_context_length", static_cast<int>(scaling.original_context));
    out.number(key("rope.scaling.yarn_beta_fast"), scaling.beta_fast);
    out.number(key("rope.scaling.yarn_beta_slow"), scaling.beta_slow);
    const auto usual = static_cast<float>(0.1 * std::log(double{scaling.factor}) + 1);
    if (scaling.attention_factor == 1) {
      out.number(key("rope.scaling.yarn_log_multiplier"), 1.0f);
    } else if (scaling.attention_factor != usual) {
      out.number(key("rope.scaling.yarn_attn_factor"), scaling.attention_factor);
    }
  }
  if (scaling.kind == RopeScaling::Kind::longrope) {
    integer("rope.scaling.original_context_length", static_cast<int>(scaling.original_context));
    out.number(key("rope.scaling.attn_factor"), scaling.attention_factor);
  }
}

/// Whether settings read back from a GGUF file compute the same as the model's. Llama 3's scaling becomes divisors.
inline bool gguf_keeps(const ModelConfig& config, const ModelSettings& model, const ModelSettings& file) {
  const RopeScaling &one = model.rope_scaling, &other = file.rope_scaling;
  const bool llama3 = one.kind == RopeScaling::Kind::llama3 && other.kind == RopeScaling::Kind::divisors;
  const bool scaling =
      llama3 || (one.kind == other.kind && one.factor == other.factor && one.short_factors == other.short_factors &&
                 one.long_factors == other.long_factors && one.attention_factor == other.attention_factor);
  for (int layer = 0; layer < config.layers; ++layer) {
    if (model.window_of(layer) != file.window_of(layer) || model.rotates(layer) != file.rotates(layer)) return false;
  }
  const auto scale_of = [&](const ModelSettings& settings) {
    return settings.attention_scale != 0 ? settings.attention_scale
                                         : 1 / std::sqrt(static_cast<float>(config.head_dim));
  };
  const bool yarn = one.beta_fast == other.beta_fast && one.beta_slow == other.beta_slow &&
                    one.truncate == other.truncate &&
                    (one.kind != RopeScaling::Kind::yarn || one.original_context == other.original_context);
  const bool scales = model.embedding_scale == file.embedding_scale && model.residual_scale == file.residual_scale &&
                      model.attention_cap == file.attention_cap && model.logit_cap == file.logit_cap &&
                      model.temperature == file.temperature && model.temperature_context == file.temperature_context &&
                      model.windowed_rope_theta == file.windowed_rope_theta && model.activations == file.activations;
  if (!yarn || !scales || scale_of(model) != scale_of(file)) return false;
  return scaling && model.context == file.context && model.norm_epsilon == file.norm_epsilon &&
         model.rope_theta == file.rope_theta && model.tied_embeddings == file.tied_embeddings &&
         model.clip_qkv == file.clip_qkv && model.alibi_bias_max == file.alibi_bias_max &&
         model.alibi_power_of_two == file.alibi_power_of_two && model.logit_scale == file.logit_scale &&
         model.position_offset == file.position_offset;
}

}}
