// Reading of the rotary embedding from config.json, in the forms of transformers 4 and 5.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "slm/io/families/refusals.hpp"
#include "slm/io/family.hpp"
#include "slm/io/json.hpp"

namespace slm { inline namespace v0_1 { namespace families {

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

/// YaRN. The context may be longer than max_position_embeddings, which some files give as the original one.
inline void read_yarn(const JsonFields& fields, ModelDescription& model) {
  ModelSettings& settings = model.settings;
  RopeScaling& scaling = settings.rope_scaling;
  scaling.kind = RopeScaling::Kind::yarn;
  scaling.factor = fields.number("factor", 1, 1e6);
  const int original = fields.integer("original_max_position_embeddings", 1, 1 << 24, settings.context);
  scaling.original_context = static_cast<float>(original);
  scaling.beta_fast = fields.number("beta_fast", 1e-3, 1e6, 32);
  scaling.beta_slow = fields.number("beta_slow", 1e-3, 1e6, 1);
  scaling.truncate = fields.boolean("truncate", true);
  const auto log_factor = [&](double scale) { return 0.1 * scale * std::log(double{scaling.factor}) + 1; };
  const auto mscale = double{fields.number("mscale", 0, 1e3, 0)};
  const auto mscale_all = double{fields.number("mscale_all_dim", 0, 1e3, 0)};
  const double usual = mscale != 0 && mscale_all != 0 ? log_factor(mscale) / log_factor(mscale_all) : log_factor(1);
  scaling.attention_factor = fields.number("attention_factor", 1e-3, 1e3, static_cast<float>(usual));
  const double stretched = std::min(static_cast<double>(original) * double{scaling.factor}, double{1 << 24});
  settings.context = std::max(settings.context, static_cast<int>(stretched));
}

/// Dynamic scaling changes the base beyond max_position_embeddings, slm's limit of a text; with alpha, at every length.
inline void read_dynamic(const JsonFields& fields, ModelDescription& model) {
  ModelSettings& settings = model.settings;
  if (const float alpha = fields.number("alpha", 1e-3, 1e9, 0); alpha != 0) {
    const double dim = model.config.rotary_dim();
    if (dim <= 2) throw unsupported(fields.file(), "dynamic rope scaling with alpha of two dimensions");
    settings.rope_theta = static_cast<float>(double{settings.rope_theta} * std::pow(double{alpha}, dim / (dim - 2)));
    return;
  }
  fields.number("factor", 1e-3, 1e6);
  model.notes.push_back(text("'", fields.file(), "': dynamic rope scaling begins after ", settings.context,
                             " positions, where a text of slm ends"));
}

inline void read_rope_scaling(const JsonFields& outer, const JsonFields& fields, ModelDescription& model) {
  RopeScaling& scaling = model.settings.rope_scaling;
  const std::string kind = fields.string("rope_type", fields.string("type", "default"));
  if (fields.has("type") && fields.string("type", "") != kind) {
    throw contradictory(fields.file(), text("rope_type ", quote(kind), " and type ", quote(fields.string("type", ""))));
  }
  if (kind == "default") return;
  // Two older names of LongRoPE; a genuine "yarn" has no lists.
  if (kind == "longrope" || kind == "su" ||
      (kind == "yarn" && (fields.has("short_factor") || fields.has("long_factor")))) {
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
  } else if (kind == "yarn") {
    read_yarn(fields, model);
  } else if (kind == "dynamic") {
    read_dynamic(fields, model);
  } else {
    throw unsupported(fields.file(), text("rope scaling of type ", quote(kind)));
  }
}

/// The object with the rotation of all layers, or of those without a window if layers differ.
inline JsonFields rope_object(const JsonFields& fields, const char* name) {
  const JsonFields rope = fields.object(name);
  return rope.has("full_attention") ? rope.object("full_attention") : rope;
}

/// The rotation of layers with the window, if rope_parameters states it for each kind of layer.
inline void read_windowed_rope(const JsonFields& fields, ModelDescription& model) {
  if (!fields.has("rope_parameters")) return;
  const JsonFields kinds = fields.object("rope_parameters");
  if (!kinds.has("sliding_attention")) return;
  const JsonFields windowed = kinds.object("sliding_attention");
  if (const std::string kind = windowed.string("rope_type", "default"); kind != "default") {
    throw unsupported(fields.file(), text("rope scaling of type ", quote(kind), " in layers with a window"));
  }
  const ModelSettings& settings = model.settings;
  const float theta = windowed.number("rope_theta", 1, 1e12, settings.rope_theta);
  const bool same = theta == settings.rope_theta && settings.rope_scaling.kind == RopeScaling::Kind::none;
  if (!same) model.settings.windowed_rope_theta = theta;
}

/// Reads theta, rotary part and scaling; head_dim and context must be known. transformers 5 writes all of them into
/// rope_parameters.
inline void read_rope(const JsonFields& fields, ModelDescription& model, float part_otherwise = 1,
                      float theta_otherwise = 10000) {
  const float base = fields.number("rotary_emb_base", 1, 1e12, theta_otherwise);  // the name of GPT-NeoX
  model.settings.rope_theta = fields.number("rope_theta", 1, 1e12, base);
  const auto part_of = [](const JsonFields& from, double otherwise) {
    for (const char* name : {"partial_rotary_factor", "rotary_pct"}) {
      from.number(name, 0, 1, 1);  // checks the range
      if (from.has(name)) otherwise = from.at(name).get<double>();
    }
    return otherwise;
  };
  double part = part_of(fields, double{part_otherwise});
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(name)) continue;
    const JsonFields rope = rope_object(fields, name);
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
    if (fields.has(name)) read_rope_scaling(fields, rope_object(fields, name), model);
  }
  read_windowed_rope(fields, model);
}

}}}
