// InternLM 2 (also 2.5) and 3: Llama with a fused matrix of grouped rows, and with other biases.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_internlm2(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  if (fields.boolean("bias", true)) model.config.attention_bias = AttentionBias::all;
}

inline void read_internlm3(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  const bool all = fields.boolean("bias", false);
  if (fields.boolean("qkv_bias", false)) model.config.attention_bias = AttentionBias::qkv;
  if (all || fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
  model.config.mlp_bias = all || fields.boolean("mlp_bias", false);
}

inline constexpr Family internlm2{.model_type = "internlm2",
                                  .architecture = "InternLM2ForCausalLM",
                                  .names = {.embedding = "tok_embeddings",
                                            .head = "output",
                                            .attention_norm = "attention_norm",
                                            .mlp_norm = "ffn_norm",
                                            .qkv = {"attention.wqkv"},
                                            .attention_out = "attention.wo",
                                            .up = {"feed_forward.w1", "feed_forward.w3"},
                                            .down = "feed_forward.w2",
                                            .grouped_qkv = true},
                                  .read = read_internlm2};

inline constexpr Family internlm3{
    .model_type = "internlm3", .architecture = "InternLM3ForCausalLM", .names = {}, .read = read_internlm3};

}}}
