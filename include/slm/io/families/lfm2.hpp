// LFM2 and LFM2.5: layers with a short convolution, and some with attention. LFM2 MoE has experts in place of the MLPs
// of all but the first layers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/layer_kinds.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// The width of the MLP: two thirds of the stated one, times a factor, rounded up, unless it is stated as it is.
inline int lfm2_width(const JsonFields& fields) {
  const char* const name = fields.has("intermediate_size") ? "intermediate_size" : "block_ff_dim";
  std::int64_t width = fields.integer(name, 1, 1 << 22);
  if (!fields.boolean("block_auto_adjust_ff_dim", true)) return static_cast<int>(width);
  width = 2 * width / 3;
  if (fields.has("block_ffn_dim_multiplier") || !fields.states("block_ffn_dim_multiplier")) {
    const char* const factor = "block_ffn_dim_multiplier";
    fields.number(factor, 1e-3, 1e3, 1);  // checks the range
    if (fields.has(factor)) {
      width = static_cast<std::int64_t>(fields.at(factor).get<double>() * static_cast<double>(width));
    }
    const std::int64_t multiple = fields.integer("block_multiple_of", 1, 1 << 20, 256);
    width = (width + multiple - 1) / multiple * multiple;
  }
  return static_cast<int>(width > 1 << 22 ? 0 : width);  // 0 is refused
}

/// All but the MLPs.
inline void read_lfm2_layers(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  config.layers = fields.integer("num_hidden_layers", 1, 1024);
  config.hidden = fields.integer("hidden_size", 1, 1 << 20);
  config.heads = fields.integer("num_attention_heads", 1, 4096);
  config.kv_heads = fields.integer("num_key_value_heads", 1, 4096, config.heads);
  config.vocab = fields.integer("vocab_size", 1, most_vocab);
  split_evenly(fields.file(), config);
  config.qk_norm = QkNorm::per_head;
  const bool bias = fields.boolean("conv_bias", false);
  config.mixer = {.kind = MixerKind::short_conv,
                  .taps = fields.integer("conv_L_cache", 1, 64, 3),
                  .heads = 1,
                  .head_dim = config.hidden,
                  .bias = bias,
                  .conv_bias = bias};
  if (fields.has("layer_types")) {
    read_layer_kinds(fields, {"conv"}, config);
  } else {
    read_attention_layers(fields, "full_attn_idxs", config);
  }
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 128000);
  model.settings.norm_epsilon = fields.number("norm_eps", 0, 1, 1e-5);
  read_rope(fields, model, 1, 1e6f);
  read_tied_by_default(fields, model);
}

inline void read_lfm2(const JsonFields& fields, ModelDescription& model) {
  read_lfm2_layers(fields, model);
  model.config.ffn = lfm2_width(fields);
}

inline void read_lfm2_moe(const JsonFields& fields, ModelDescription& model) {
  read_lfm2_layers(fields, model);
  ModelConfig& config = model.config;
  config.ffn = fields.integer("intermediate_size", 1, 1 << 22);
  read_experts(fields, {"num_experts"}, "moe_intermediate_size", model);
  config.mixture.scores = RouterScores::sigmoid;
  config.mixture.choice_bias = fields.boolean("use_expert_bias", true);
  RouterSettings& router = model.settings.router;
  router.normalizes = fields.boolean("norm_topk_prob", true);
  router.added_to_sum = 1e-6f;
  router.scale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1);
  const int first = fields.integer("num_dense_layers", 0, 1024, 2);
  std::vector<bool> dense(static_cast<std::size_t>(config.layers));
  for (int l = 0; l < config.layers; ++l) dense[static_cast<std::size_t>(l)] = l < first;
  set_dense_layers(fields.file(), std::move(dense), model);
}

inline constexpr TensorTable lfm2_names{.final_norm = "embedding_norm",
                                        .attention_norm = "operator_norm",
                                        .mlp_norm = "ffn_norm",
                                        .q_norm = "self_attn.q_layernorm",
                                        .k_norm = "self_attn.k_layernorm",
                                        .attention_out = "self_attn.out_proj",
                                        .up = {"feed_forward.w1", "feed_forward.w3"},
                                        .down = "feed_forward.w2",
                                        .mixer_in = {"conv.in_proj"},
                                        .mixer_conv = "conv.conv",
                                        .mixer_out = "conv.out_proj",
                                        .experts = {.router = "feed_forward.gate",
                                                    .choice_bias = "feed_forward.expert_bias",
                                                    .up = {"feed_forward.experts.{}.w1", "feed_forward.experts.{}.w3"},
                                                    .down = "feed_forward.experts.{}.w2",
                                                    .all_up = {"feed_forward.experts.gate_up_proj"},
                                                    .all_down = "feed_forward.experts.down_proj"}};

inline constexpr Family lfm2{
    .model_type = "lfm2", .architecture = "Lfm2ForCausalLM", .names = lfm2_names, .read = read_lfm2};

inline constexpr Family lfm2_moe{
    .model_type = "lfm2_moe", .architecture = "Lfm2MoeForCausalLM", .names = lfm2_names, .read = read_lfm2_moe};

}}}
