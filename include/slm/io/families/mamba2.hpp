// Families with Mamba-2 layers: Granite 4 H, Bamba, Falcon-H1 and Nemotron-H.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/granite.hpp"
#include "slm/io/families/layer_kinds.hpp"
#include "slm/io/families/mixtures.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// Refuses bounds of the time step other than 0 and infinity, which JSON states in several ways.
inline void expect_unbounded_steps(const JsonFields& fields) {
  const char* const name = "time_step_limit";
  if (!fields.has(name)) return;
  const Json& limits = fields.at(name);
  if (!limits.is_array() || limits.size() != 2) throw fields.bad(name, "a list of two bounds", limits);
  const auto is_infinite = [](const Json& bound) {
    return is_text(bound, "Infinity") ||
           (bound.is_object() && bound.contains("__float__") && is_text(*bound.find("__float__"), "Infinity"));
  };
  if (limits[0] != 0 || !is_infinite(limits[1])) throw unsupported(fields.file(), "bounds of the time step");
}

/// The mixer under the names that Granite, Falcon and Bamba share. width: the stated width of all heads.
inline void read_mamba2(const JsonFields& fields, std::int64_t width, ModelConfig& config) {
  expect_unbounded_steps(fields);
  config.mixer = {.kind = MixerKind::mamba2,
                  .taps = fields.integer("mamba_d_conv", 1, 64, 4),
                  .heads = fields.integer("mamba_n_heads", 1, 4096, 128),
                  .groups = fields.integer("mamba_n_groups", 1, 4096, 1),
                  .state = fields.integer("mamba_d_state", 1, 4096, 256),
                  .bias = fields.boolean("mamba_proj_bias", false),
                  .conv_bias = fields.boolean("mamba_conv_bias", true)};
  const char* const name = "mamba_d_head";
  const bool stated = fields.has(name) && !is_text(fields.at(name), "auto");
  const std::int64_t even = std::max<std::int64_t>(width / config.mixer.heads, 1);
  config.mixer.head_dim = stated ? fields.integer(name, 1, 4096) : static_cast<int>(even > 4096 ? 0 : even);
  if (config.mixer.inner() != width) {
    throw contradictory(fields.file(), text("mamba_n_heads ", config.mixer.heads, " of ", config.mixer.head_dim,
                                            " for a width of ", width));
  }
}

inline std::int64_t expanded_width(const JsonFields& fields, const ModelConfig& config) {
  return std::int64_t{fields.integer("mamba_expand", 1, 1024, 2)} * config.hidden;
}

/// Attention has no positions, unless position_embedding_type is rope. Every layer has a shared MLP, and experts beside
/// it if the model has them.
inline void read_granite_hybrid(const JsonFields& fields, ModelDescription& model) {
  const bool sparse = fields.integer("num_local_experts", 0, 1024) != 0;
  if (sparse) {
    read_granite_moe(fields, model);
  } else {
    read_granite(fields, model);
    model.config.mlp_bias = false;
    model.config.ffn = fields.integer("shared_intermediate_size", 1, 1 << 22);
  }
  ModelConfig& config = model.config;
  expect_value(fields, "normalization_function", "rmsnorm");
  if (const std::string positions = fields.string("position_embedding_type", "nope"); positions != "rope") {
    if (positions != "nope") throw unsupported(fields.file(), text("position_embedding_type ", quote(positions)));
    config.positions = Positions::none;
    config.rotary = 0;
  }
  read_mamba2(fields, expanded_width(fields, config), config);
  if (fields.has("layer_types")) return read_layer_kinds(fields, {"mamba", "linear_attention"}, config);
  for (int l = 0; l < config.layers; ++l) set_recurrent(config, l);
}

/// Mamba-2, or attention in the layers of attn_layer_indices, of whose heads a half rotates.
inline void read_bamba(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  split_evenly(fields.file(), config);
  config.activation = read_activation(fields, "hidden_act", "silu");
  read_biases(fields, config);
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 262144);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-5f);
  read_rope(fields, model, 0.5f);
  read_mamba2(fields, expanded_width(fields, config), config);
  read_tied(fields, model);
  if (fields.has("attn_layer_indices")) return read_attention_layers(fields, "attn_layer_indices", config);
  for (int l = 0; l < config.layers; ++l) set_recurrent(config, l);
}

/// Attention and Mamba-2 in every layer, of one input, and constant factors of most parts.
inline void read_falcon_h1(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  read_biases(fields, config);
  const auto width = fields.has("mamba_d_ssm") ? std::int64_t{fields.integer("mamba_d_ssm", 1, 1 << 24)}
                                               : expanded_width(fields, config);
  read_mamba2(fields, width, config);
  if (fields.boolean("projectors_bias", config.mixer.bias) != config.mixer.bias)
    throw unsupported(fields.file(), "biases of only some projections (projectors_bias)");
  config.mixer.norm = !fields.boolean("mamba_rms_norm", false)         ? MixerNorm::none
                      : fields.boolean("mamba_norm_before_gate", true) ? MixerNorm::before_gate
                                                                       : MixerNorm::after_gate;
  for (int l = 0; l < config.layers; ++l) config.mixer_layers.add(l);
  const auto factor = [](const JsonFields& of, const char* name) { return of.number(name, 1e-9, 1e9, 1); };
  settings.embedding_scale = factor(fields, "embedding_multiplier");
  settings.logit_scale = factor(fields, "lm_head_multiplier");
  settings.attention_scale = factor(fields, "key_multiplier") / std::sqrt(static_cast<float>(config.head_dim));
  LayerFactors& factors = settings.factors;
  factors.attention_in = factor(fields, "attention_in_multiplier");
  factors.attention_out = factor(fields, "attention_out_multiplier");
  factors.mixer_in = factor(fields, "ssm_in_multiplier");
  factors.mixer_out = factor(fields, "ssm_out_multiplier");
  const auto read_list = [&](const char* name, std::initializer_list<float*> to) {
    if (!fields.has(name)) return;
    const Json& list = fields.at(name);
    const auto is_factor = [](const Json& item) {
      return item.is_number() && item.get<double>() >= 1e-9 && item.get<double>() <= 1e9;
    };
    if (!list.is_array() || list.size() != to.size() || !std::all_of(list.begin(), list.end(), is_factor))
      throw fields.bad(name, text("a list of ", to.size(), " positive numbers").c_str(), list);
    std::size_t at = 0;
    for (float* const value : to) *value = list[at++].get<float>();
  };
  read_list("mlp_multipliers", {&factors.mlp_gate, &factors.mlp_out});
  std::array<float, 5>& parts = factors.projected;
  read_list("ssm_multipliers", {&parts[0], &parts[1], &parts[2], &parts[3], &parts[4]});
}

/// One of Mamba-2, attention without positions, MLP and experts in each layer: by layers_block_type, or a letter for
/// each layer. Returns the layers with an MLP.
inline std::vector<bool> read_nemotron_layers(const JsonFields& fields, ModelConfig& config) {
  const bool listed = fields.has("layers_block_type");
  const char* const name = listed ? "layers_block_type" : "hybrid_override_pattern";
  const Json& kinds = fields.at(name);
  const std::string letters = listed ? std::string{} : fields.string(name, "");
  const std::size_t count = listed ? kinds.size() : letters.size();
  if ((listed && !kinds.is_array()) || count < 1 || count > LayerSet::most_layers)
    throw fields.bad(name, "the kinds of 1..1024 layers", kinds);
  config.layers = fields.integer("num_hidden_layers", 1, 1024, static_cast<int>(count));
  if (static_cast<std::size_t>(config.layers) != count)
    throw contradictory(fields.file(), text("num_hidden_layers ", config.layers, " and ", count, " in ", name));
  std::vector<bool> dense(count);
  for (int l = 0; l < config.layers; ++l) {
    const auto index = static_cast<std::size_t>(l);
    const auto is = [&](char letter, std::string_view kind, std::string_view other) {
      return listed ? is_text(kinds[index], kind) || is_text(kinds[index], other) : letters[index] == letter;
    };
    dense[index] = is('-', "mlp", "mlp");
    const bool mlp = dense[index] || is('E', "moe", "moe"), attention = is('*', "full_attention", "attention");
    if (!mlp && !attention && !is('M', "linear_attention", "mamba"))
      throw fields.bad(name, "kinds of Mamba-2, attention, MLP and experts", listed ? kinds[index] : kinds);
    if (!mlp) config.no_mlp.add(l);
    if (!attention) config.no_attention.add(l);
    if (!mlp && !attention) config.mixer_layers.add(l);
  }
  return dense;
}

inline void read_nemotron_experts(const JsonFields& fields, std::vector<bool> dense, ModelDescription& model) {
  MixtureConfig& mixture = model.config.mixture;
  RouterSettings& router = model.settings.router;
  read_experts(fields, {"n_routed_experts"}, "moe_intermediate_size", model);
  if (fields.has("moe_latent_size")) throw unsupported(fields.file(), "experts of another width (moe_latent_size)");
  if (const int shared = fields.integer("n_shared_experts", 0, 1024, 1); shared > 1) {
    throw unsupported(fields.file(), text(shared, " shared experts"));
  } else if (shared == 1) {
    mixture.shared_ffn = fields.integer("moe_shared_expert_intermediate_size", 1, 1 << 22);
  }
  mixture.scores = RouterScores::sigmoid;
  mixture.choice_bias = true;
  router.normalizes = fields.boolean("norm_topk_prob", true);
  router.added_to_sum = 1e-20f;
  router.scale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1);
  read_expert_groups(fields, 2, model);
  set_dense_layers(fields.file(), std::move(dense), model);
}

inline void read_nemotron_h(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  const std::vector<bool> dense = read_nemotron_layers(fields, config);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.head_dim = fields.integer("head_dim", 1, 1024, fields.integer("attention_head_dim", 1, 1024, 128));
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
  config.positions = Positions::none;
  config.activation = read_activation(fields, "mlp_hidden_act", "relu2");
  config.gated = false;
  read_biases(fields, config);
  expect_value(fields, "mamba_hidden_act", "silu");
  expect_unbounded_steps(fields);
  if (fields.has("sliding_window")) throw unsupported(fields.file(), "a sliding window");
  config.mixer = {.kind = MixerKind::mamba2,
                  .taps = fields.integer("conv_kernel", 1, 64, 4),
                  .heads = fields.integer("mamba_num_heads", 1, 4096),
                  .head_dim = fields.integer("mamba_head_dim", 1, 4096),
                  .groups = fields.integer("n_groups", 1, 4096),
                  .state = fields.integer("ssm_state_size", 1, 4096),
                  .bias = fields.boolean("mamba_proj_bias", fields.boolean("use_bias", false)),
                  .conv_bias = fields.boolean("use_conv_bias", true)};
  drop_unused_mixer(config);
  bool sparse = false;
  for (int l = 0; l < config.layers; ++l) sparse = sparse || (config.has_mlp(l) && !dense[static_cast<std::size_t>(l)]);
  if (sparse) read_nemotron_experts(fields, dense, model);
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 4096);
  model.settings.norm_epsilon = fields.number("layer_norm_epsilon", 0, 1, fields.number("rms_norm_eps", 0, 1, 1e-5f));
  read_tied(fields, model);
}

inline constexpr Family granite_hybrid{.model_type = "granitemoehybrid",
                                       .architecture = "GraniteMoeHybridForCausalLM",
                                       .names = {.up = {"shared_mlp.input_linear"},
                                                 .down = "shared_mlp.output_linear",
                                                 .mixer_in = {"mamba.in_proj"},
                                                 .mixer_conv = "mamba.conv1d",
                                                 .mixer_out = "mamba.out_proj",
                                                 .mixer_norm = "mamba.norm",
                                                 .mixer_vectors = {"mamba.A_log", "mamba.dt_bias", "mamba.D"},
                                                 .experts = granite_experts},
                                       .read = read_granite_hybrid};

inline constexpr TensorTable falcon_h1_names{.final_norm = "final_layernorm",
                                             .mlp_norm = "pre_ff_layernorm",
                                             .up = {"feed_forward.gate_proj", "feed_forward.up_proj"},
                                             .down = "feed_forward.down_proj",
                                             .mixer_in = {"mamba.in_proj"},
                                             .mixer_conv = "mamba.conv1d",
                                             .mixer_out = "mamba.out_proj",
                                             .mixer_norm = "mamba.norm",
                                             .mixer_vectors = {"mamba.A_log", "mamba.dt_bias", "mamba.D"}};

inline constexpr Family falcon_h1{
    .model_type = "falcon_h1", .architecture = "FalconH1ForCausalLM", .names = falcon_h1_names, .read = read_falcon_h1};

inline constexpr Family bamba{
    .model_type = "bamba", .architecture = "BambaForCausalLM", .names = falcon_h1_names, .read = read_bamba};

inline constexpr Family nemotron_h{.model_type = "nemotron_h",
                                   .architecture = "NemotronHForCausalLM",
                                   .names = {.prefix = "backbone.",
                                             .embedding = "embeddings",
                                             .final_norm = "norm_f",
                                             .attention_norm = "norm",
                                             .mlp_norm = "norm",
                                             .qkv = {"mixer.q_proj", "mixer.k_proj", "mixer.v_proj"},
                                             .attention_out = "mixer.o_proj",
                                             .up = {"mixer.up_proj"},
                                             .down = "mixer.down_proj",
                                             .mixer_in = {"mixer.in_proj"},
                                             .mixer_conv = "mixer.conv1d",
                                             .mixer_out = "mixer.out_proj",
                                             .mixer_norm = "mixer.norm",
                                             .mixer_vectors = {"mixer.A_log", "mixer.dt_bias", "mixer.D"},
                                             .experts = {.router = "mixer.gate",
                                                         .choice_bias = "mixer.gate.e_score_correction_bias",
                                                         .up = {"mixer.experts.{}.up_proj"},
                                                         .down = "mixer.experts.{}.down_proj",
                                                         .all_up = {},
                                                         .all_down = {},
                                                         .shared_up = {"mixer.shared_experts.up_proj"},
                                                         .shared_down = "mixer.shared_experts.down_proj"}},
                                   .read = read_nemotron_h};

}}}
