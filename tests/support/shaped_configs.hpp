// Models with layers of different shapes or latent attention, for random weights, of widths that quantized formats can
// divide into groups.
#pragma once

#include <vector>

#include "slm/io/json.hpp"
#include "support/random_weights.hpp"

namespace slm::testing {

/// Five layers with heads of two shapes, the last two of which share keys and values; or three layers with experts
/// whose keys are values.
inline Json gemma4_config(bool sparse) {
  Json config{{"model_type", "gemma4_text"},
              {"num_hidden_layers", sparse ? 3 : 5},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"head_dim", 16},
              {"global_head_dim", 32},
              {"vocab_size", 101},
              {"vocab_size_per_layer_input", 101},
              {"hidden_size_per_layer_input", sparse ? 0 : 32},
              {"max_position_embeddings", 512},
              {"sliding_window", 24},
              {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
              {"eos_token_id", nullptr}};
  if (!sparse) {
    config["layer_types"].push_back("sliding_attention");
    config["layer_types"].push_back("full_attention");
    config.merge_patch({{"num_kv_shared_layers", 2}, {"use_double_wide_mlp", true}, {"final_logit_softcapping", 20}});
  } else {
    config.merge_patch({{"attention_k_eq_v", true},
                        {"num_global_key_value_heads", 1},
                        {"enable_moe_block", true},
                        {"num_experts", 6},
                        {"top_k_experts", 2},
                        {"moe_intermediate_size", 32}});
  }
  return config;
}

/// Five layers with three residual streams. Some MLPs drop gates, and two are wider.
inline Json gemma3n_config() {
  return {{"model_type", "gemma3n_text"},
          {"num_hidden_layers", 5},
          {"hidden_size", 64},
          {"intermediate_size", {96, 128, 96, 96, 128}},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"vocab_size", 101},
          {"vocab_size_per_layer_input", 101},
          {"hidden_size_per_layer_input", 32},
          {"altup_num_inputs", 3},
          {"laurel_rank", 32},
          {"activation_sparsity_pattern", {0.9, 0.5, 0, 0, 0.7}},
          {"num_kv_shared_layers", 2},
          {"max_position_embeddings", 512},
          {"sliding_window", 24},
          {"layer_types",
           {"sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"}},
          {"eos_token_id", nullptr}};
}

/// Three layers of latent attention. query_rank 0: queries from the layer's input.
inline Json latent_config(int query_rank) {
  Json config{{"model_type", "deepseek_v3"},
              {"num_hidden_layers", 3},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_attention_heads", 4},
              {"kv_lora_rank", 64},
              {"qk_rope_head_dim", 16},
              {"qk_nope_head_dim", 32},
              {"v_head_dim", 48},
              {"vocab_size", 101},
              {"max_position_embeddings", 512},
              {"n_routed_experts", 8},
              {"num_experts_per_tok", 2},
              {"moe_intermediate_size", 32},
              {"n_group", 2},
              {"topk_group", 1},
              {"tie_word_embeddings", true},
              {"eos_token_id", nullptr}};
  if (query_rank != 0) config["q_lora_rank"] = query_rank;
  return config;
}

/// One config of each kind with keys and values of heads.
inline std::vector<Json> shaped_configs() { return {gemma4_config(false), gemma4_config(true), gemma3n_config()}; }

}  // namespace slm::testing
