// Reading of config.json fields that several families share.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/io/family.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline Error unsupported(const std::string& file, const std::string& what) {
  return Error("config.unsupported", text("'", file, "' requires ", what),
               "See docs/models.md for the supported families and their features");
}

inline Error contradictory(const std::string& file, const std::string& what) {
  return Error("config.contradictory", text("'", file, "' contradicts itself: ", what),
               "Copy the file from the model's original repository");
}

/// Layers, widths and heads under their usual names.
inline void read_shape(const JsonFields& fields, ModelConfig& config) {
  config.layers = fields.integer("num_hidden_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
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
  throw unsupported(fields.file(), text("the activation ", quote(activation)));
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

/// Positive numbers, one per rotary frequency.
inline std::vector<float> read_factors(const JsonFields& fields, const char* name, int count) {
  const Json& list = fields.at(name);
  if (!list.is_array() || list.size() != static_cast<std::size_t>(count)) {
    throw fields.bad(name, text("a list of ", count, " numbers").c_str(), list);
  }
  std::vector<float> factors;
  for (const Json& factor : list) {
    const double value = factor.is_number() ? factor.get<double>() : 0;
    if (!(value >= 1e-3 && value <= 1e6)) throw fields.bad(name, "a list of numbers of 0.001..1000000", factor);
    factors.push_back(static_cast<float>(value));
  }
  return factors;
}

/// LongRoPE. outer: the whole file, which may hold the original context instead of the scaling object.
inline void read_longrope(const JsonFields& outer, const JsonFields& scaling, ModelDescription& model) {
  RopeScaling& rope = model.settings.rope_scaling;
  rope.kind = RopeScaling::Kind::longrope;
  const int frequencies = model.config.rotary_dim() / 2;
  rope.short_factors = read_factors(scaling, "short_factor", frequencies);
  rope.long_factors = read_factors(scaling, "long_factor", frequencies);
  const char* original = "original_max_position_embeddings";
  const int context = model.settings.context;
  double stretch = scaling.number("factor", 1e-3, 1e6, 1);
  int first_context = context;
  if (outer.has(original) && scaling.has(original) &&
      outer.integer(original, 2, 1 << 24) != scaling.integer(original, 2, 1 << 24)) {
    throw contradictory(outer.file(), text(original, " has two values"));
  }
  if (outer.has(original) || scaling.has(original)) {
    first_context = (outer.has(original) ? outer : scaling).integer(original, 2, 1 << 24);
    stretch = double(context) / first_context;
  } else if (!scaling.has("factor")) {
    throw Error("config.unsound", text("'", outer.file(), "': LongRoPE without ", original),
                "Copy the file from the model's original repository");
  }
  if (first_context < 2) throw outer.bad("max_position_embeddings", "at least 2", outer.at("max_position_embeddings"));
  rope.original_context = static_cast<float>(first_context);
  const auto stretched =
      static_cast<float>(stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(first_context)));
  rope.attention_factor = scaling.number("attention_factor", 1e-3, 1e3, stretched);
}

inline void read_rope_scaling(const JsonFields& outer, const JsonFields& fields, ModelDescription& model) {
  RopeScaling& scaling = model.settings.rope_scaling;
  const std::string kind = fields.string("rope_type", fields.string("type", "default"));
  if (fields.has("type") && fields.string("type", "") != kind) {
    throw contradictory(fields.file(), text("rope_type ", quote(kind), " and type ", quote(fields.string("type", ""))));
  }
  if (kind == "default") return;
  // Two older names of LongRoPE; a genuine "yarn" has no lists.
  if (kind == "longrope" || kind == "su" || (kind == "yarn" && fields.has("short_factor"))) {
    return read_longrope(outer, fields, model);
  }
  // As in transformers, these kinds have no default values.
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = fields.number("factor", 1e-3, 1e6);
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = fields.number("factor", 1e-3, 1e6);
    scaling.low_frequency_factor = fields.number("low_freq_factor", 1e-3, 1e6);
    scaling.high_frequency_factor = fields.number("high_freq_factor", 1e-3, 1e6);
    scaling.original_context = static_cast<float>(fields.integer("original_max_position_embeddings", 1, 1 << 24));
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
      throw fields.bad("high_freq_factor", "more than low_freq_factor", fields.at("high_freq_factor"));
    }
  } else {
    throw unsupported(fields.file(), text("rope scaling of type ", quote(kind)));
  }
}

/// Reads theta, rotary part and scaling; head_dim and context must be known. transformers 5 writes all of them into
/// rope_parameters.
inline void read_rope(const JsonFields& fields, ModelDescription& model, float part_otherwise = 1) {
  model.settings.rope_theta = fields.number("rope_theta", 1, 1e12, 10000);
  const auto part_of = [](const JsonFields& from, double otherwise) {
    from.number("partial_rotary_factor", 0, 1, 1);  // checks the range
    return from.has("partial_rotary_factor") ? from.at("partial_rotary_factor").get<double>() : otherwise;
  };
  double part = part_of(fields, double{part_otherwise});
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(name)) continue;
    const JsonFields rope = fields.object(name);
    const float theta = rope.number("rope_theta", 1, 1e12, model.settings.rope_theta);
    if (fields.has("rope_theta") && theta != model.settings.rope_theta) {
      throw contradictory(fields.file(), text("rope_theta has two values"));
    }
    model.settings.rope_theta = theta;
    part = part_of(rope, part);
  }
  ModelConfig& config = model.config;
  if (const int rotary = static_cast<int>(config.head_dim * part); rotary != config.head_dim) {
    if (rotary < 2)
      throw unsupported(fields.file(), text("rotation of ", rotary, " of ", config.head_dim, " dimensions"));
    config.rotary = rotary;
  }
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (fields.has(name)) read_rope_scaling(fields, fields.object(name), model);
  }
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

/// Reads the fields shared by Llama and its closest relatives.
inline void read_llama_like(const JsonFields& fields, ModelDescription& model, float epsilon = 1e-6f) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, std::max(config.hidden / config.heads, 1));
  if (!fields.has("head_dim")) split_evenly(fields.file(), config);
  config.activation = read_activation(fields, "hidden_act", "silu");
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, epsilon);
  read_rope(fields, model);
  read_tied(fields, model);
}

}}}
