// Metadata of single architectures besides the common keys, and properties that their files leave out.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/family.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Gemma 4 and Gemma 3n, whose layers have different shapes.
constexpr bool is_shaped_gemma(std::string_view architecture) {
  return architecture == "gemma4" || architecture == "gemma3n";
}

/// Whether an architecture's formulas have the factor or pattern of a key.
constexpr bool gguf_family_reads(std::string_view architecture, std::string_view key) {
  const bool scaled = architecture == "granite" || architecture == "minicpm" || architecture == "granitemoe" ||
                      architecture == "granitehybrid";
  const bool windowed = architecture == "gemma2" || architecture == "gemma3" || architecture == "olmo2" ||
                        architecture == "exaone4" || architecture == "cohere2" || architecture == "gpt-oss" ||
                        is_shaped_gemma(architecture);
  if (key == "logit_scale") return scaled || architecture == "cohere2" || architecture == "command-r";
  if (key == "embedding_scale" || key == "residual_scale") return scaled;
  if (key == "attention.scale") return scaled && architecture != "minicpm";
  if (key == "attn_logit_softcapping") return architecture == "gemma2";
  if (key == "final_logit_softcapping")
    return architecture == "gemma2" || architecture == "gemma3" || is_shaped_gemma(architecture);
  return key == "attention.sliding_window_pattern" && windowed;
}

class GgufFamilyReader {
 public:
  GgufFamilyReader(const GgufFile& file, std::string_view architecture, ModelDescription& model)
      : fields_(file.fields()), architecture_(architecture), model_(model) {}

  void read() {
    const ModelConfig& config = model_.config;
    ModelSettings& settings = model_.settings;
    if (is("gemma") || is("gemma2") || is("gemma3")) {
      settings.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
      // The files lack query_pre_attn_scalar, which is head_dim except in the models of 27B.
      const bool large = (is("gemma2") && config.layers == 46) || (is("gemma3") && config.layers == 62);
      if (large) settings.attention_scale = 1 / std::sqrt(static_cast<float>(config.hidden / config.heads));
    }
    if (is("gemma2")) {
      settings.attention_cap = fields_.number(key("attn_logit_softcapping"), 0, 1e6, 50);
      settings.logit_cap = fields_.number(key("final_logit_softcapping"), 0, 1e6, 30);
      read_window(2);
    }
    if (is("gemma3")) {
      settings.logit_cap = fields_.number(key("final_logit_softcapping"), 0, 1e6, 0);
      read_window(6);
      settings.windowed_rope_theta = fields_.number(key("rope.freq_base_swa"), 1, 1e12, 10000);
    }
    if (is("granite") || is("minicpm") || is("granitemoe") || is("granitehybrid")) read_scales();
    if (is("smollm3")) {
      for (int l = 0; l < config.layers; ++l) settings.unrotated_layers.push_back(l % 4 == 3);
    }
    if (is("olmo2")) {
      read_window(4);
      const bool scaled = settings.rope_scaling.kind != RopeScaling::Kind::none;
      const float theta = fields_.number(key("rope.freq_base_swa"), 1, 1e12, settings.rope_theta);
      if (settings.window != 0 && (scaled || theta != settings.rope_theta)) settings.windowed_rope_theta = theta;
    }
    if (is("exaone4") || is("cohere2")) {
      read_window(4);
      for (int l = 0; settings.window != 0 && l < config.layers; ++l)
        settings.unrotated_layers.push_back(settings.window_of(l) == 0);
    }
    if (is("cohere2") || is("command-r")) settings.logit_scale = fields_.number(key("logit_scale"), 1e-6, 1e6, 1);
    if (is("mistral3")) {
      settings.temperature = fields_.number(key("attention.temperature_scale"), 0, 1e3, 0);
      const char* original = "rope.scaling.original_context_length";
      if (settings.temperature != 0) settings.temperature_context = fields_.integer(key(original), 1, 1 << 24);
    }
    if (is("apertus")) read_xielu();
    if (is("gpt-oss")) {
      read_window(2);
      settings.rope_scaling.truncate = false;
    }
  }

 private:
  bool is(std::string_view name) const { return architecture_ == name; }
  std::string key(std::string_view name) const { return text(architecture_, ".", name); }

  /// Absent factors of MiniCPM are those of its first model.
  void read_scales() {
    const ModelConfig& config = model_.config;
    ModelSettings& settings = model_.settings;
    const auto take = [&](const char* name, float otherwise) {
      const float factor = fields_.number(key(name), 0, 1e6, otherwise);
      return factor == 0 ? otherwise : factor;
    };
    const bool minicpm = is("minicpm");
    const float root = std::sqrt(static_cast<float>(config.layers));
    settings.embedding_scale = take("embedding_scale", minicpm ? 12.0f : 1.0f);
    settings.residual_scale = take("residual_scale", minicpm ? 1.4f / root : 1.0f);
    settings.logit_scale = 1 / take("logit_scale", minicpm ? static_cast<float>(config.hidden) / 256 : 1.0f);
    if (!minicpm) settings.attention_scale = fields_.number(key("attention.scale"), 0, 1e6, 0);
  }

  /// The layers with the window: those that the pattern names, or all but every `period`-th.
  void read_window(int period) {
    const int layers = model_.config.layers;
    ModelSettings& settings = model_.settings;
    if (settings.window == 0) return;
    const std::string name = key("attention.sliding_window_pattern");
    const GgufValue* const pattern = fields_.find(name);
    settings.windowed_layers.assign(static_cast<std::size_t>(layers), false);
    if (pattern == nullptr || !pattern->is_array) {
      if (pattern != nullptr) period = fields_.integer(name, 1, 1 << 20);
      for (int l = 0; l < layers; ++l) settings.windowed_layers[static_cast<std::size_t>(l)] = (l + 1) % period != 0;
      return;
    }
    settings.windowed_layers = fields_.booleans(name, static_cast<std::size_t>(layers));
  }

  void read_xielu() {
    const auto layers = static_cast<std::size_t>(model_.config.layers);
    const auto take = [&](const char* name) { return fields_.numbers(name, layers); };
    const auto positive = take("xielu.alpha_p"), negative = take("xielu.alpha_n"), beta = take("xielu.beta"),
               epsilon = take("xielu.eps");
    for (std::size_t l = 0; l < layers; ++l) {
      const auto stored = [l](const std::vector<double>& values) { return static_cast<float>(values[l]); };
      model_.settings.activations.push_back(
          stored_xielu(stored(positive), stored(negative), stored(beta), stored(epsilon)));
    }
  }

  const GgufFields& fields_;
  std::string_view architecture_;
  ModelDescription& model_;
};

}}}
