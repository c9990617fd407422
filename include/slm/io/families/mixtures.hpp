// Mixtral, Phi MoE, OLMoE, Granite MoE and ERNIE 4.5 MoE: experts in place of the MLPs of Llama's relatives.
#pragma once

#include <utility>
#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/granite.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_mixtral(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 1e6f);
  model.settings.window = read_window(fields, 0);
  read_experts(fields, {"num_local_experts"}, "intermediate_size", model);
  model.settings.router.normalizes = true;
}

/// LayerNorms and biases; two experts, chosen one after the other.
inline void read_phimoe(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 1e6f);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  config.norm = NormKind::layer;
  config.norm_affine = NormAffine::weight_and_bias;
  if (fields.boolean("attention_bias", false)) config.attention_bias = AttentionBias::all;
  config.head_bias = fields.boolean("lm_head_bias", false);
  settings.window = read_window(fields, 0);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {  // LongRoPE with a stated factor of cosines and sines
    if (!fields.has(name) || !fields.object(name).has("short_mscale")) continue;
    const JsonFields rope = fields.object(name);
    settings.rope_scaling.attention_factor = rope.number("short_mscale", 1e-3, 1e3);
    if (rope.number("long_mscale", 1e-3, 1e3) != settings.rope_scaling.attention_factor)
      throw unsupported(fields.file(), "two factors of LongRoPE (short_mscale, long_mscale)");
  }
  read_experts(fields, {"num_local_experts"}, "intermediate_size", model);
  if (config.mixture.chosen != 2)
    throw unsupported(fields.file(), text(config.mixture.chosen, " experts of a token (slm has 2)"));
  config.mixture.scores = RouterScores::masked;
  settings.router.closeness = 2 * fields.number("router_jitter_noise", 0, 1e3, 0.01f);
}

inline void read_olmoe(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
  model.config.qk_norm = QkNorm::whole;
  model.settings.clip_qkv = fields.number("clip_qkv", 1e-6, 1e6, 0);
  model.settings.clips_normed = model.settings.clip_qkv != 0;
  read_experts(fields, {"num_experts", "num_local_experts"}, "intermediate_size", model);
  model.settings.router.normalizes = fields.boolean("norm_topk_prob", false);
}

/// The softmax of the chosen experts' logits: the same weights as those of a softmax over all, divided by their sum.
inline void read_granite_moe(const JsonFields& fields, ModelDescription& model) {
  read_granite(fields, model);
  model.config.mlp_bias = false;
  read_experts(fields, {"num_local_experts"}, "intermediate_size", model);
  model.config.mixture.shared_ffn = fields.integer("shared_intermediate_size", 0, 1 << 22, 0);
  model.settings.router.normalizes = true;
}

/// Layer i has experts if it is between the two indices and i + 1 is a multiple of the interval.
inline void read_ernie_dense_layers(const JsonFields& fields, ModelDescription& model) {
  const int layers = model.config.layers, interval = fields.integer("moe_layer_interval", 1, 1024, 1);
  const int first = fields.integer("moe_layer_start_index", 0, 1024, 1);
  const int stated = fields.integer("moe_layer_end_index", -1, 1024, -1), last = stated == -1 ? layers - 1 : stated;
  std::vector<bool> dense(static_cast<std::size_t>(layers));
  for (int l = 0; l < layers; ++l)
    dense[static_cast<std::size_t>(l)] = (l + 1) % interval != 0 || l < first || l > last;
  set_dense_layers(fields.file(), std::move(dense), model);
}

inline void read_ernie4_5_moe(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 500000);
  read_tied_by_default(fields, model);
  ModelConfig& config = model.config;
  config.rotates_pairs = true;
  if (fields.boolean("use_bias", false)) {
    config.attention_bias = AttentionBias::all;
    config.mlp_bias = config.head_bias = true;
  }
  read_experts(fields, {"moe_num_experts", "num_experts"}, "moe_intermediate_size", model, "moe_k");
  MixtureConfig& mixture = config.mixture;
  const int shared = fields.integer("moe_num_shared_experts", 0, 1024, 0);
  if (shared > (1 << 22) / mixture.ffn) {
    throw fields.bad("moe_num_shared_experts", "a width of 4194304 or less in all",
                     fields.at("moe_num_shared_experts"));
  }
  mixture.shared_ffn = shared * mixture.ffn;
  mixture.choice_bias = true;
  model.settings.router.normalizes = true;
  model.settings.router.least_sum = fields.number("moe_norm_min", 0, 1, 1e-12f);
  read_ernie_dense_layers(fields, model);
}

inline constexpr ExpertTable mixtral_experts{.router = "block_sparse_moe.gate",
                                             .up = {"block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"},
                                             .down = "block_sparse_moe.experts.{}.w2",
                                             .all_up = {},
                                             .all_down = {}};

inline constexpr Family mixtral{.model_type = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .names = {.experts = mixtral_experts},
                                .read = read_mixtral};

inline constexpr Family phimoe{.model_type = "phimoe",
                               .architecture = "PhimoeForCausalLM",
                               .names = {.experts = mixtral_experts},
                               .read = read_phimoe};

inline constexpr Family olmoe{.model_type = "olmoe",
                              .architecture = "OlmoeForCausalLM",
                              .names = {.q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"},
                              .read = read_olmoe};

inline constexpr ExpertTable granite_experts{
    .router = "block_sparse_moe.router.layer",
    .up = {"block_sparse_moe.input_linear.{}.gate", "block_sparse_moe.input_linear.{}.up"},
    .down = "block_sparse_moe.output_linear.{}",
    .all_up = {"block_sparse_moe.input_linear.weight"},
    .all_down = "block_sparse_moe.output_linear.weight",
    .shared_up = {"shared_mlp.input_linear"},
    .shared_down = "shared_mlp.output_linear"};

inline constexpr Family granitemoe{.model_type = "granitemoe",
                                   .architecture = "GraniteMoeForCausalLM",
                                   .names = {.experts = granite_experts},
                                   .read = read_granite_moe};

inline constexpr Family granitemoeshared{.model_type = "granitemoeshared",
                                         .architecture = "GraniteMoeSharedForCausalLM",
                                         .names = {.experts = granite_experts},
                                         .read = read_granite_moe};

inline constexpr Family ernie4_5_moe{
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .names = {.experts = {.choice_bias = "mlp.moe_statics.e_score_correction_bias",
                          .wide_choice_bias = true,
                          .shared_up = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"},
                          .shared_down = "mlp.shared_experts.down_proj"}},
    .read = read_ernie4_5_moe};

}}}
