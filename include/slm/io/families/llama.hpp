// Llama and models with its tensor names: CodeLlama, TinyLlama, SmolLM2, AMD-Llama. The defaults of TensorTable are its
// names.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_llama(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model);
  if (fields.boolean("attention_bias", false)) model.config.attention_bias = AttentionBias::all;
  model.config.mlp_bias = fields.boolean("mlp_bias", false);
}

inline constexpr Family llama{
    .model_type = "llama", .architecture = "LlamaForCausalLM", .names = {}, .read = read_llama};

}}}
