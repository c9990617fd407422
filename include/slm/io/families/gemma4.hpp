// Gemma 4 (text): heads of another shape in layers without the window, layers that read keys and values of earlier
// ones, inputs of each layer from a table of tokens, experts beside an MLP.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/gemma.hpp"
#include "slm/io/families/layer_shapes.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// Divisors of the frequencies of a head of which only the first `rotating` pairs turn.
inline std::vector<float> proportional_divisors(int head_dim, int rotating, float factor) {
  std::vector<float> divisors(static_cast<std::size_t>(head_dim / 2), factor);
  for (std::size_t i = static_cast<std::size_t>(rotating); i < divisors.size(); ++i)
    divisors[i] = std::numeric_limits<float>::infinity();
  return divisors;
}

/// per_layer_config: an object for some layers, of which slm reads the sizes of heads; without it, the sizes of layers
/// without the window have own fields.
inline std::vector<LayerHeads> read_layer_heads(const JsonFields& fields, const ModelDescription& model) {
  const ModelConfig& config = model.config;
  const LayerHeads usual{config.kv_heads, fields.integer("head_dim", 1, 1024, 256)};
  std::vector<LayerHeads> heads(static_cast<std::size_t>(config.layers), usual);
  const char* const name = "per_layer_config";
  if (!fields.has(name)) {
    LayerHeads full{usual.kv_heads, fields.integer("global_head_dim", 1, 1024, 512)};
    if (fields.boolean("attention_k_eq_v", false))
      full.kv_heads = fields.integer("num_global_key_value_heads", 1, 4096, usual.kv_heads);
    for (int l = 0; l < config.layers; ++l) {
      if (model.settings.window_of(l) == 0) heads[static_cast<std::size_t>(l)] = full;
    }
    return heads;
  }
  const JsonFields layers = fields.object(name);
  std::size_t read = 0;
  for (int l = 0; l < config.layers; ++l) {
    const std::string number = std::to_string(l);
    if (!layers.has(number.c_str())) continue;
    const JsonFields layer = layers.object(number.c_str());
    for (const auto& [field, value] : layers.at(number.c_str()).items()) {
      if (field != "head_dim" && field != "num_key_value_heads")
        throw unsupported(fields.file(), text(quote(field), " of single layers (per_layer_config)"));
    }
    heads[static_cast<std::size_t>(l)] = {layer.integer("num_key_value_heads", 1, 4096, usual.kv_heads),
                                          layer.integer("head_dim", 1, 1024, usual.head_dim)};
    ++read;
  }
  if (read != fields.at(name).size()) throw fields.bad(name, "an object with numbers of layers", fields.at(name));
  return heads;
}

/// Rotation: by whole heads in layers with the window, by a part of the pairs ("proportional") in the others.
inline void read_gemma4_rope(const JsonFields& fields, ModelDescription& model) {
  ModelSettings& settings = model.settings;
  settings.rope_theta = 1000000;
  settings.windowed_rope_theta = 10000;
  std::string kind = "proportional";
  double part = 0.25;
  float factor = 1;
  if (fields.has("rope_parameters")) {
    const JsonFields kinds = fields.object("rope_parameters");
    const JsonFields full = kinds.object("full_attention"), windowed = kinds.object("sliding_attention");
    kind = full.string("rope_type", "default");
    full.number("partial_rotary_factor", 0, 1, 1);  // checks the range
    part = full.has("partial_rotary_factor") ? full.at("partial_rotary_factor").get<double>() : 1;
    factor = full.number("factor", 1e-3, 1e6, 1);
    settings.rope_theta = full.number("rope_theta", 1, 1e12, settings.rope_theta);
    settings.windowed_rope_theta = windowed.number("rope_theta", 1, 1e12, settings.windowed_rope_theta);
    expect_value(windowed, "rope_type", "default");
    if (windowed.number("partial_rotary_factor", 0, 1, 1) != 1)
      throw unsupported(fields.file(), "rotation of a part of the heads in layers with a window");
  }
  if (kind == "default" && part == 1) return;
  if (kind != "proportional") throw unsupported(fields.file(), text("rope scaling of type ", quote(kind)));
  const ModelConfig& config = model.config;
  const int head_dim = config.shapes.head_dim != 0 ? config.shapes.head_dim : config.head_dim;
  settings.rope_scaling.kind = RopeScaling::Kind::divisors;
  settings.rope_scaling.short_factors =
      proportional_divisors(head_dim, static_cast<int>(std::floor(part * head_dim / 2)), factor);
}

/// The last layers read the keys and values of the last layer of their kind before them.
inline void read_shared_layers(const JsonFields& fields, int otherwise, ModelDescription& model) {
  ModelConfig& config = model.config;
  const int shared = fields.integer("num_kv_shared_layers", 0, 1024, otherwise);
  if (shared >= config.layers)
    throw contradictory(fields.file(), text("num_kv_shared_layers ", shared, " of ", config.layers, " layers"));
  for (int l = config.layers - shared; l < config.layers; ++l) config.shapes.borrowing.add(l);
}

inline void read_gemma4(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  read_shape(fields, config);
  config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
  config.order = BlockOrder::sandwich;
  config.qk_norm = QkNorm::per_head;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  if (const std::string both = fields.string("use_bidirectional_attention", "vision"); both != "vision")
    throw unsupported(fields.file(), "bidirectional attention");
  settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 131072);
  settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  settings.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  settings.attention_scale = 1;
  settings.logit_cap = read_cap(fields, "final_logit_softcapping", 0);
  settings.window = fields.integer("sliding_window", 1, 1 << 24, 512);
  read_window_pattern(fields, 6, model);
  if (settings.windowed_layers.back()) {
    settings.windowed_layers.back() = false;
    if (fields.has("layer_types"))
      model.notes.push_back(text("'", fields.file(), "' states a window in the last layer: it has none"));
  }
  set_layer_heads(fields.file(), read_layer_heads(fields, model), model);
  read_gemma4_rope(fields, model);
  read_shared_layers(fields, 0, model);
  LayerShapes& shapes = config.shapes;
  if (fields.boolean("use_double_wide_mlp", false) && !shapes.borrowing.empty()) {
    shapes.ffn = 2 * config.ffn;
    shapes.wide_mlps = shapes.borrowing;
  }
  shapes.value_norm = shapes.scaled = true;
  for (int l = 0; fields.boolean("attention_k_eq_v", false) && l < config.layers; ++l) {
    if (settings.window_of(l) == 0 && !shapes.borrowing.has(l)) shapes.keys_as_values.add(l);
  }
  const char* const inputs = "hidden_size_per_layer_input";
  shapes.inputs = fields.states(inputs) && !fields.has(inputs) ? 0 : fields.integer(inputs, 0, 1 << 16, 256);
  if (const int rows = fields.integer("vocab_size_per_layer_input", 1, most_vocab, 262144);
      shapes.inputs != 0 && rows != config.vocab) {
    throw unsupported(fields.file(),
                      text("vocab_size_per_layer_input ", rows, ", which is not vocab_size ", config.vocab));
  }
  if (fields.boolean("enable_moe_block", false)) {
    read_experts(fields, {"num_experts"}, "moe_intermediate_size", model, "top_k_experts");
    config.mixture.beside_mlp = true;
    settings.router.normalizes = true;
  }
  read_tied_by_default(fields, model);
}

constexpr TensorTable gemma4_names() {
  TensorTable names = gemma_names(true);
  names.norms_less_one = false;
  names.layer_factor = "layer_scalar";
  names.inputs = {.table = "embed_tokens_per_layer",
                  .from_embedding = "per_layer_model_projection",
                  .norm = "per_layer_projection_norm",
                  .gate = "per_layer_input_gate",
                  .out = "per_layer_projection",
                  .output_norm = "post_per_layer_input_norm"};
  names.experts.router = "router.proj";
  names.experts.up = {"experts.{}.gate_proj", "experts.{}.up_proj"};
  names.experts.down = "experts.{}.down_proj";
  names.experts.all_up = {"experts.gate_up_proj"};
  names.experts.all_down = "experts.down_proj";
  names.experts.router_norm = "router.scale";
  names.experts.factors = "router.per_expert_scale";
  names.experts.norm = "pre_feedforward_layernorm_2";
  names.experts.output_norm = "post_feedforward_layernorm_2";
  names.experts.beside_norm = "post_feedforward_layernorm_1";
  return names;
}

inline constexpr Family gemma4{
    .model_type = "gemma4_text", .architecture = "Gemma4ForCausalLM", .names = gemma4_names(), .read = read_gemma4};

}}}
