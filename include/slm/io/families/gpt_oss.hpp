// gpt-oss: experts in all layers, with biases and a limited gate; a window in every other layer, a sink of each head.
#pragma once

#include <vector>

#include "slm/io/families/common.hpp"
#include "slm/io/families/experts.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_gpt_oss(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f, 150000);
  ModelConfig& config = model.config;
  ModelSettings& settings = model.settings;
  if (fields.boolean("attention_bias", true)) config.attention_bias = AttentionBias::all;
  config.sinks = true;
  settings.window = read_window(fields, 128);
  read_window_pattern(fields, 2, model);
  read_experts(fields, {"num_local_experts", "num_experts"}, "intermediate_size", model,
               fields.has("num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token");
  config.mixture.router_bias = config.mixture.expert_bias = true;
  RouterSettings& router = settings.router;
  router.normalizes = true;
  router.gate_limit = fields.number("swiglu_limit", 1e-3, 1e6, 7);
  router.gate_alpha = fields.number("swiglu_alpha", 1e-3, 1e3, 1.702f);
  set_dense_layers(fields.file(), std::vector<bool>(static_cast<std::size_t>(config.layers)), model);
}

inline constexpr Family gpt_oss{.model_type = "gpt_oss",
                                .architecture = "GptOssForCausalLM",
                                .names = {.sinks = "self_attn.sinks",
                                          .experts = {.router = "mlp.router",
                                                      .up = {"mlp.experts.{}.gate_up_proj"},
                                                      .down = "mlp.experts.{}.down_proj",
                                                      .all_up_bias = {"mlp.experts.gate_up_proj_bias"},
                                                      .all_down_bias = "mlp.experts.down_proj_bias",
                                                      .transposed = true,
                                                      .interleaved = true}},
                                .read = read_gpt_oss};

}}}
