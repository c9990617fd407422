// config.json and generation_config.json of a Hugging Face folder -> ModelConfig and ModelSettings.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/json.hpp"

namespace slm {

struct ModelDescription {
  ModelConfig config;
  ModelSettings settings;
  bool says_tied = false;  // whether the file states tie_word_embeddings at all
};

namespace detail {

inline Error unsupported(const std::string& file, const std::string& what) {
  return Error("config.unsupported", text("'", file, "' asks for ", what),
               "This version of slm runs the Llama family; docs/models.md lists what it covers");
}

inline RopeScaling read_rope_scaling(const JsonFields& fields) {
  RopeScaling scaling;
  const std::string kind = fields.string("rope_type", fields.string("type", "default"));
  if (kind == "default") return scaling;
  scaling.factor = fields.number("factor", 1e-3, 1e6, 1);
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.low_frequency_factor = fields.number("low_freq_factor", 1e-3, 1e6, 1);
    scaling.high_frequency_factor = fields.number("high_freq_factor", 1e-3, 1e6, 4);
    scaling.original_context = static_cast<float>(fields.integer("original_max_position_embeddings", 1, 1 << 24));
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor) {
      throw fields.bad("high_freq_factor", "more than low_freq_factor", fields.at("high_freq_factor"));
    }
  } else {
    throw unsupported(fields.file(), text("rope scaling of type '", kind, "'"));
  }
  return scaling;
}

inline std::vector<Token> read_end_tokens(const JsonFields& fields, int vocab) {
  std::vector<Token> tokens;
  if (!fields.has("eos_token_id")) return tokens;
  const Json& field = fields.at("eos_token_id");
  const auto add = [&](const Json& id) {
    if (!is_index(id, static_cast<std::uint64_t>(vocab)))
      throw fields.bad("eos_token_id", text("ids below the vocabulary size ", vocab).c_str(), id);
    tokens.push_back(id.get<Token>());
  };
  if (field.is_array()) {
    for (const Json& id : field) add(id);
  } else {
    add(field);
  }
  return tokens;
}

}  // namespace detail

/// Reads the fields that shape a Llama-family model; everything else in the file is ignored.
inline ModelDescription read_config_json(const Json& json, const std::string& file) {
  const JsonFields fields(json, file);
  if (const std::string type = fields.string("model_type", "llama"); type != "llama") {
    throw detail::unsupported(file, text("model_type '", type, "'"));
  }
  if (const std::string activation = fields.string("hidden_act", "silu"); activation != "silu") {
    throw detail::unsupported(file, text("the activation '", activation, "'"));
  }

  ModelDescription model;
  ModelConfig& config = model.config;
  config.layers = fields.integer("num_hidden_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.head_dim = fields.integer("head_dim", 1, 1024, config.hidden / config.heads);
  config.vocab = fields.integer("vocab_size", 1, 1 << 24);
  if (const auto what = fault_of(config); !what.empty()) {
    throw Error("config.unsound", text("'", file, "': ", what), "Take the file from the model's original repository");
  }

  ModelSettings& settings = model.settings;
  settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  settings.rope_theta = fields.number("rope_theta", 1, 1e12, 10000);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {  // transformers 5 writes the latter
    if (!fields.has(name)) continue;
    const JsonFields rope = fields.object(name);
    settings.rope_theta = rope.number("rope_theta", 1, 1e12, settings.rope_theta);
    settings.rope_scaling = detail::read_rope_scaling(rope);
  }
  model.says_tied = fields.has("tie_word_embeddings");
  settings.tied_embeddings = fields.boolean("tie_word_embeddings", false);
  settings.attention_bias = fields.boolean("attention_bias", false);
  settings.mlp_bias = fields.boolean("mlp_bias", false);
  settings.end_tokens = detail::read_end_tokens(fields, config.vocab);
  return model;
}

/// Reads a model folder's config.json; the end tokens of a generation_config.json win over its own.
inline ModelDescription read_model_description(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const Json json = read_json_object(path);
  ModelDescription model = read_config_json(json, path.string());
  if (const auto generation = folder / "generation_config.json"; std::filesystem::exists(generation)) {
    const Json generation_json = read_json_object(generation);
    const JsonFields fields(generation_json, generation.string());
    if (auto tokens = detail::read_end_tokens(fields, model.config.vocab); !tokens.empty()) {
      model.settings.end_tokens = std::move(tokens);
    }
  }
  return model;
}

}  // namespace slm
