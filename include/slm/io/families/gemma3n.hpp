// Gemma 3n (text): residual streams (AltUp) with a low-rank branch beside attention (LAuReL), inputs of each layer,
// layers that read keys and values of earlier ones, MLPs that drop most of their gates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/gemma.hpp"
#include "slm/io/families/gemma4.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// The number that a part `share` of a standard normal distribution is below, for 0 < share < 1.
inline float normal_quantile(double share) {
  double low = -40, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < share ? low : high) = middle;
  }
  return static_cast<float>((low + high) / 2);
}

/// activation_sparsity_pattern: the share of gates that each layer drops.
inline void read_gate_cutoffs(const JsonFields& fields, ModelDescription& model) {
  const auto layers = static_cast<std::size_t>(model.config.layers);
  std::vector<float>& cutoffs = model.settings.gate_cutoffs;
  cutoffs.assign(layers, -std::numeric_limits<float>::infinity());
  const char* const name = "activation_sparsity_pattern";
  if (!fields.has(name)) {
    std::fill_n(cutoffs.begin(), layers > 10 ? 10 : 0, normal_quantile(0.95));
    return;
  }
  const Json& list = fields.at(name);
  const std::string numbers = text("a list of ", layers, " numbers of 0 to below 1");
  if (!list.is_array() || list.size() != layers) throw fields.bad(name, numbers.c_str(), list);
  for (std::size_t l = 0; l < layers; ++l) {
    const double share = list[l].is_number() ? list[l].get<double>() : -1;
    if (!(share >= 0 && share < 1)) throw fields.bad(name, numbers.c_str(), list[l]);
    if (share > 0) cutoffs[l] = normal_quantile(share);
  }
}

/// intermediate_size: one width, or one of each layer, of which at most two differ.
inline void read_widths(const JsonFields& fields, ModelConfig& config) {
  const char* const name = "intermediate_size";
  if (!fields.has(name) || !fields.at(name).is_array()) {
    config.ffn = fields.integer(name, 1, 1 << 22, 16384);
    return;
  }
  const Json& list = fields.at(name);
  if (list.size() != static_cast<std::size_t>(config.layers))
    throw fields.bad(name, text("a list of ", config.layers, " widths").c_str(), list);
  for (int l = 0; l < config.layers; ++l) {
    const Json& width = list[static_cast<std::size_t>(l)];
    if (width == 0 || !is_index(width, (1 << 22) + 1)) throw fields.bad(name, "widths of 1..4194304", width);
    const int own = width.get<int>();
    if (l == 0) config.ffn = own;
    if (own == config.ffn) continue;
    if (config.shapes.ffn != 0 && own != config.shapes.ffn)
      throw unsupported(fields.file(), text("MLPs of more than two widths (layer ", l, ")"));
    config.shapes.ffn = own;
    config.shapes.wide_mlps.add(l);
  }
}

inline void read_gemma3n(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  read_sizes(fields, config);
  read_widths(fields, config);
  config.head_dim = fields.integer("head_dim", 1, 1024, 256);
  config.activation = read_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
  config.order = BlockOrder::sandwich;
  config.qk_norm = QkNorm::per_head;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 32768);
  settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  settings.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  settings.attention_scale = 1;
  settings.logit_cap = read_cap(fields, "final_logit_softcapping", 30);
  settings.window = fields.integer("sliding_window", 1, 1 << 24, 512);
  read_window_pattern(fields, 5, model);
  read_rope(fields, model, 1, 1000000);
  const bool states_kinds = fields.has("rope_parameters") && fields.object("rope_parameters").has("sliding_attention");
  if (!states_kinds || !fields.object("rope_parameters").object("sliding_attention").has("rope_theta"))
    settings.windowed_rope_theta = fields.number("rope_local_base_freq", 1, 1e12, 10000);
  read_shared_layers(fields, 15, model);
  read_gate_cutoffs(fields, model);
  LayerShapes& shapes = config.shapes;
  shapes.value_norm = true;
  shapes.inputs = fields.integer("hidden_size_per_layer_input", 1, 1 << 16, 256);
  if (const int rows = fields.integer("vocab_size_per_layer_input", 1, most_vocab, 262144); rows != config.vocab)
    shapes.input_rows = rows;
  config.streams = {.count = fields.integer("altup_num_inputs", 2, most_streams, 4),
                    .low_rank = fields.integer("laurel_rank", 1, 1 << 16, 64),
                    .scaled = fields.boolean("altup_correct_scale", true)};
  if (const int active = fields.integer("altup_active_idx", 0, config.streams.count - 1, 0); active != 0)
    throw unsupported(fields.file(), text("altup_active_idx ", active, " (slm has 0)"));
  read_tied_by_default(fields, model);
}

constexpr TensorTable gemma3n_names() {
  TensorTable names = gemma4_names();
  names.layer_factor = {};
  names.experts = {};
  names.streams = {.in = "altup_projections.{}",
                   .out = "altup_unembed_projections.{}",
                   .router_norm = "altup.router_norm",
                   .router = "altup.modality_router",
                   .prediction = "altup.prediction_coefs",
                   .correction = "altup.correction_coefs",
                   .scale = "altup.correct_output_scale",
                   .low_rank_in = "laurel.linear_left",
                   .low_rank_out = "laurel.linear_right",
                   .low_rank_norm = "laurel.post_laurel_norm"};
  return names;
}

inline constexpr Family gemma3n{
    .model_type = "gemma3n_text", .architecture = "Gemma3nForCausalLM", .names = gemma3n_names(), .read = read_gemma3n};

}}}
