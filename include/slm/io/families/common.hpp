// Reading of config.json fields that several families share.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/io/families/refusals.hpp"
#include "slm/io/families/rope.hpp"
#include "slm/io/family.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// Layers, width and heads under their usual names.
inline void read_sizes(const JsonFields& fields, ModelConfig& config) {
  config.layers = fields.integer("num_hidden_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
}

/// The same, and the width of the MLPs.
inline void read_shape(const JsonFields& fields, ModelConfig& config) {
  read_sizes(fields, config);
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
}

/// Sets head_dim for families whose heads divide hidden equally.
inline void split_evenly(const std::string& file, ModelConfig& config) {
  if (config.hidden % config.heads != 0) {
    throw Error("config.unsound",
                text("'", file, "': ", config.heads, " heads do not divide a width of ", config.hidden),
                "Copy the file from the model's original repository");
  }
  config.head_dim = config.hidden / config.heads;
}

inline ActivationKind read_activation(const JsonFields& fields, const char* name, const std::string& otherwise) {
  const std::string activation = fields.string(name, otherwise);
  if (activation == "silu" || activation == "swish") return ActivationKind::silu;
  if (activation == "gelu") return ActivationKind::gelu_erf;
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast") {
    return ActivationKind::gelu_tanh;
  }
  if (activation == "relu") return ActivationKind::relu;
  if (activation == "relu2" || activation == "relu_squared") return ActivationKind::relu_squared;
  throw unsupported(fields.file(), text("the activation ", quote(activation)));
}

/// Refuses a field with another value than the only one that slm computes.
inline void expect_value(const JsonFields& fields, const char* name, const std::string& only) {
  if (const std::string value = fields.string(name, only); value != only) {
    throw unsupported(fields.file(), text(name, " ", quote(value), " (slm has ", only, ")"));
  }
}

inline void read_tied(const JsonFields& fields, ModelDescription& model) {
  model.says_tied = fields.has("tie_word_embeddings");
  model.settings.tied_embeddings = fields.boolean("tie_word_embeddings", false);
}

/// For families whose embeddings are tied by default.
inline void read_tied_by_default(const JsonFields& fields, ModelDescription& model) {
  model.says_tied = true;
  model.settings.tied_embeddings = fields.boolean("tie_word_embeddings", true);
}

/// Reads sliding_window; null means none, an absent field means `otherwise`.
inline int read_window(const JsonFields& fields, int otherwise) {
  if (!fields.states("sliding_window")) return otherwise;
  return fields.has("sliding_window") ? fields.integer("sliding_window", 1, 1 << 24) : 0;
}

/// The layers with the window: layer_types if present (transformers 5), else layers from `first` on.
inline std::vector<bool> read_windowed_layers(const JsonFields& fields, int layers, int first) {
  std::vector<bool> windowed(static_cast<std::size_t>(layers));
  if (!fields.has("layer_types")) {
    for (int l = first; l < layers; ++l) windowed[static_cast<std::size_t>(l)] = true;
    return windowed;
  }
  const Json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != windowed.size()) {
    throw fields.bad("layer_types", text("a list of ", layers, " kinds").c_str(), types);
  }
  for (std::size_t l = 0; l < windowed.size(); ++l) {
    windowed[l] = is_text(types[l], "sliding_attention");
    if (!windowed[l] && !is_text(types[l], "full_attention")) {
      throw fields.bad("layer_types", "sliding_attention and full_attention", types[l]);
    }
  }
  return windowed;
}

/// The layers with the window: layer_types, or all but every `pattern`-th layer; pattern 0: none.
inline void read_window_pattern(const JsonFields& fields, int pattern, ModelDescription& model) {
  const int layers = model.config.layers;
  std::vector<bool>& windowed = model.settings.windowed_layers;
  windowed = read_windowed_layers(fields, layers, layers);
  if (fields.has("layer_types") || pattern == 0) return;
  for (int l = 0; l < layers; ++l) windowed[static_cast<std::size_t>(l)] = (l + 1) % pattern != 0;
}

inline void read_biases(const JsonFields& fields, ModelConfig& config) {
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

/// Reads the fields shared by Llama and its closest relatives.
inline void read_llama_like(const JsonFields& fields, ModelDescription& model, float epsilon = 1e-6f,
                            float theta = 10000) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, std::max(config.hidden / config.heads, 1));
  if (!fields.has("head_dim")) split_evenly(fields.file(), config);
  config.activation = read_activation(fields, "hidden_act", "silu");
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, epsilon);
  read_rope(fields, model, 1, theta);
  read_tied(fields, model);
}

}}}
