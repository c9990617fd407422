// Phi-3: Llama with fused projections, a sliding window, and LongRoPE in the long variants.
#pragma once

#include "slm/io/families/common.hpp"

namespace slm { inline namespace v0_1 { namespace families {

inline void read_phi3(const JsonFields& fields, ModelDescription& model) {
  read_llama_like(fields, model, 1e-5f);
  model.settings.window = read_window(fields, 0);
}

inline constexpr Family phi3{.model_type = "phi3",
                             .architecture = "Phi3ForCausalLM",
                             .names = {.qkv = {"self_attn.qkv_proj"}, .up = {"mlp.gate_up_proj"}},
                             .read = read_phi3};

}}}
