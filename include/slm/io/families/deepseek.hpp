// DeepSeek-V2 (V2-Lite), DeepSeek-V3 and GLM-4.7-Flash: latent attention, and experts in all but the first layers.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/layer_shapes.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_latent_attention(const JsonFields& fields, ModelDescription& model) {
  ModelConfig& config = model.config;
  read_shape(fields, config);
  config.activation = read_activation(fields, "hidden_act", "silu");
  if (fields.boolean("attention_bias", false)) throw unsupported(fields.file(), "biases of latent attention");
  model.settings.context = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  // Fields of the rotation describe the rotated part.
  const int rotary = fields.integer("qk_rope_head_dim", 2, 1024, 64);
  config.head_dim = rotary;
  read_rope(fields, model);
  if (config.rotary != 0) throw unsupported(fields.file(), "rotation of a part of the rotated dimensions");
  const LatentAttention latent{.rank = fields.integer("kv_lora_rank", 1, 1024, 512),
                               .query_rank = fields.integer("q_lora_rank", 1, 1 << 20, 0),
                               .unrotated = fields.integer("qk_nope_head_dim", 1, 1024, 128),
                               .value = fields.integer("v_head_dim", 1, 1024, 128)};
  const int width = latent.unrotated + rotary;
  if (fields.integer("qk_head_dim", 1, 2048, width) != width)
    throw contradictory(fields.file(), text("qk_head_dim is not qk_nope_head_dim + qk_rope_head_dim, ", width));
  set_latent(latent, rotary, config);
  float mscale = 0;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (fields.has(name)) mscale = fields.object(name).number("mscale_all_dim", 0, 1e3, mscale);
  }
  model.settings.attention_scale = latent_scale(width, model.settings.rope_scaling, double{mscale});
  read_tied(fields, model);
}

/// The layers with an MLP: the first ones, or by mlp_layer_types.
inline std::vector<bool> read_first_dense_layers(const JsonFields& fields, int layers, int first) {
  std::vector<bool> dense(static_cast<std::size_t>(layers));
  const char* const name = "mlp_layer_types";
  if (!fields.has(name)) {
    first = fields.integer("first_k_dense_replace", 0, 1024, first);
    const int every = fields.integer("moe_layer_freq", 1, 1024, 1);
    for (int l = 0; l < layers; ++l) dense[static_cast<std::size_t>(l)] = l < first || l % every != 0;
    return dense;
  }
  const Json& kinds = fields.at(name);
  if (!kinds.is_array() || kinds.size() != dense.size())
    throw fields.bad(name, text("a list of ", layers, " kinds").c_str(), kinds);
  for (std::size_t l = 0; l < dense.size(); ++l) {
    dense[l] = is_text(kinds[l], "dense");
    if (!dense[l] && !is_text(kinds[l], "sparse")) throw fields.bad(name, "dense and sparse", kinds[l]);
  }
  return dense;
}

/// otherwise: the number of shared experts in files without it.
inline void read_deepseek_experts(const JsonFields& fields, ModelDescription& model, int otherwise) {
  ModelConfig& config = model.config;
  RouterSettings& router = model.settings.router;
  read_experts(fields, {"n_routed_experts", "num_local_experts"}, "moe_intermediate_size", model);
  MixtureConfig& mixture = config.mixture;
  const char* const shared = "n_shared_experts";
  const int count = fields.states(shared) && !fields.has(shared) ? 0 : fields.integer(shared, 0, 1024, otherwise);
  if (count > (1 << 22) / mixture.ffn) throw fields.bad(shared, "a width of 4194304 or less in all", fields.at(shared));
  mixture.shared_ffn = count * mixture.ffn;
  router.scale = fields.number("routed_scaling_factor", 1e-6, 1e6, 1);
  set_dense_layers(fields.file(), read_first_dense_layers(fields, config.layers, 1), model);
}

inline void read_deepseek_v2(const JsonFields& fields, ModelDescription& model) {
  read_latent_attention(fields, model);
  model.config.rotates_pairs = true;
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  read_deepseek_experts(fields, model, 2);
  expect_value(fields, "scoring_func", "softmax");
  const std::string method = fields.string("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_expert_groups(fields, 1, model);
  } else if (method != "greedy") {
    throw unsupported(fields.file(), text("topk_method ", quote(method)));
  }
}

/// Routers by sigmoids, with a bias of the choice.
inline void read_sigmoid_router(const JsonFields& fields, ModelDescription& model) {
  expect_value(fields, "scoring_func", "sigmoid");
  expect_value(fields, "topk_method", "noaux_tc");
  model.config.mixture.scores = RouterScores::sigmoid;
  model.config.mixture.choice_bias = true;
  model.settings.router.normalizes = fields.boolean("norm_topk_prob", true);
  model.settings.router.added_to_sum = 1e-20f;
  read_expert_groups(fields, 2, model);
}

inline void read_deepseek_v3(const JsonFields& fields, ModelDescription& model) {
  read_latent_attention(fields, model);
  model.config.rotates_pairs = fields.boolean("rope_interleave", true);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-6f);
  read_deepseek_experts(fields, model, 1);
  read_sigmoid_router(fields, model);
}

inline void read_glm4_moe_lite(const JsonFields& fields, ModelDescription& model) {
  read_latent_attention(fields, model);
  model.config.rotates_pairs = fields.boolean("rope_interleave", true);
  model.settings.norm_epsilon = fields.number("rms_norm_eps", 0, 1, 1e-5f);
  read_deepseek_experts(fields, model, 1);
  read_sigmoid_router(fields, model);
}

inline constexpr TensorTable deepseek_names{
    .experts = {.choice_bias = "mlp.gate.e_score_correction_bias",
                .shared_up = {"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"},
                .shared_down = "mlp.shared_experts.down_proj"},
    .latent = {.query = "self_attn.q_proj",
               .query_latent = "self_attn.q_a_proj",
               .query_norm = "self_attn.q_a_layernorm",
               .query_heads = "self_attn.q_b_proj",
               .latent = "self_attn.kv_a_proj_with_mqa",
               .norm = "self_attn.kv_a_layernorm",
               .heads = {"self_attn.kv_b_proj"}}};

inline constexpr Family deepseek_v2{.model_type = "deepseek_v2",
                                    .architecture = "DeepseekV2ForCausalLM",
                                    .names = deepseek_names,
                                    .read = read_deepseek_v2};

inline constexpr Family deepseek_v3{.model_type = "deepseek_v3",
                                    .architecture = "DeepseekV3ForCausalLM",
                                    .names = deepseek_names,
                                    .read = read_deepseek_v3};

inline constexpr Family glm4_moe_lite{.model_type = "glm4_moe_lite",
                                      .architecture = "Glm4MoeLiteForCausalLM",
                                      .names = deepseek_names,
                                      .read = read_glm4_moe_lite};

}}}
