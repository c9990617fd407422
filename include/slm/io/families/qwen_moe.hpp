// Qwen3 MoE (30B-A3B): Qwen3 with experts in place of the MLPs of all or some layers.
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

inline constexpr Family qwen3_moe{
    .model_type = "qwen3_moe", .architecture = "Qwen3MoeForCausalLM", .names = qwen3.names, .read = read_qwen3_moe};

}}}
