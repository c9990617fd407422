// Qwen2 MoE and Qwen3 MoE (30B-A3B): Qwen2 and Qwen3 with experts in place of the MLPs of all or some layers.
#pragma once

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"
#include "slm/io/families/qwen.hpp"

namespace slm { inline namespace v0_1 { namespace families {

/// Layer i has experts if i is not in mlp_only_layers and i + 1 is a multiple of decoder_sparse_step.
inline void read_qwen_dense_layers(const JsonFields& fields, ModelDescription& model) {
  const int layers = model.config.layers, step = fields.integer("decoder_sparse_step", 1, 1024, 1);
  std::vector<bool> dense(static_cast<std::size_t>(layers));
  for (int l = 0; l < layers; ++l) dense[static_cast<std::size_t>(l)] = (l + 1) % step != 0;
  if (fields.has("mlp_only_layers")) {
    const Json& list = fields.at("mlp_only_layers");
    if (!list.is_array()) throw fields.bad("mlp_only_layers", "a list of layers", list);
    for (const Json& layer : list) {
      if (!is_index(layer, 1024)) throw fields.bad("mlp_only_layers", "layers of 0..1023", layer);
      if (const auto l = layer.get<std::size_t>(); l < dense.size()) dense[l] = true;
    }
  }
  set_dense_layers(fields.file(), std::move(dense), model);
}

inline void read_qwen3_moe(const JsonFields& fields, ModelDescription& model) {
  read_qwen3(fields, model);
  read_experts(fields, {"num_experts", "num_local_experts"}, "moe_intermediate_size", model);
  model.settings.router.normalizes = fields.boolean("norm_topk_prob", false);
  read_qwen_dense_layers(fields, model);
}

/// Qwen2 MoE has a shared expert with a gate.
inline void read_qwen2_moe(const JsonFields& fields, ModelDescription& model) {
  read_qwen2(fields, model);
  if (!fields.boolean("qkv_bias", true)) model.config.attention_bias = AttentionBias::none;
  read_experts(fields, {"num_experts", "num_local_experts"}, "moe_intermediate_size", model);
  model.config.mixture.shared_ffn = fields.integer("shared_expert_intermediate_size", 1, 1 << 22);
  model.config.mixture.shared_gate = true;
  model.settings.router.normalizes = fields.boolean("norm_topk_prob", false);
  read_qwen_dense_layers(fields, model);
}

inline constexpr Family qwen2_moe{
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .names = {.experts = {.shared_up = {"mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"},
                          .shared_down = "mlp.shared_expert.down_proj",
                          .shared_gate = "mlp.shared_expert_gate"}},
    .read = read_qwen2_moe};

inline constexpr Family qwen3_moe{
    .model_type = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM", .names = qwen3.names, .read = read_qwen3_moe};

}}}
