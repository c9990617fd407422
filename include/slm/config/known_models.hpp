// Models whose config is known at compile time. A new model needs five lines here and no kernel. `tied` (the head is
// the embedding table) and `position_rows` (learned positions) serve to count parameters.
#pragma once

#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/config/registry.hpp"

namespace slm { inline namespace v0_1 { namespace configs {

struct AmdLlama_135M {  // and AMD-Llama-135M-code
  static constexpr std::string_view name = "AMD-Llama-135M";
  static constexpr ModelConfig value{
      .layers = 12, .hidden = 768, .ffn = 2048, .heads = 12, .kv_heads = 12, .head_dim = 64, .vocab = 32000};
};

struct CodeLlama_7B {  // with the 16 infill tokens
  static constexpr std::string_view name = "CodeLlama-7B";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 4096, .ffn = 11008, .heads = 32, .kv_heads = 32, .head_dim = 128, .vocab = 32016};
};

struct Llama2_7B {
  static constexpr std::string_view name = "Llama-2-7B";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 4096, .ffn = 11008, .heads = 32, .kv_heads = 32, .head_dim = 128, .vocab = 32000};
};

using CodeLlama_7B_Python = Llama2_7B;  // the same shape: without the infill tokens

struct Llama2_13B {
  static constexpr std::string_view name = "Llama-2-13B";
  static constexpr ModelConfig value{
      .layers = 40, .hidden = 5120, .ffn = 13824, .heads = 40, .kv_heads = 40, .head_dim = 128, .vocab = 32000};
};

struct Llama3_8B {
  static constexpr std::string_view name = "Llama-3-8B";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 4096, .ffn = 14336, .heads = 32, .kv_heads = 8, .head_dim = 128, .vocab = 128256};
};

struct Llama32_1B {
  static constexpr std::string_view name = "Llama-3.2-1B";
  static constexpr ModelConfig value{
      .layers = 16, .hidden = 2048, .ffn = 8192, .heads = 32, .kv_heads = 8, .head_dim = 64, .vocab = 128256};
  static constexpr bool tied = true;
};

struct TinyLlama_1B {
  static constexpr std::string_view name = "TinyLlama-1.1B";
  static constexpr ModelConfig value{
      .layers = 22, .hidden = 2048, .ffn = 5632, .heads = 32, .kv_heads = 4, .head_dim = 64, .vocab = 32000};
};

struct SmolLM2_135M {
  static constexpr std::string_view name = "SmolLM2-135M";
  static constexpr ModelConfig value{
      .layers = 30, .hidden = 576, .ffn = 1536, .heads = 9, .kv_heads = 3, .head_dim = 64, .vocab = 49152};
  static constexpr bool tied = true;
};

struct JackFram_68M {
  static constexpr std::string_view name = "JackFram-68M";
  static constexpr ModelConfig value{
      .layers = 2, .hidden = 768, .ffn = 3072, .heads = 12, .kv_heads = 12, .head_dim = 64, .vocab = 32000};
};

struct JackFram_160M {
  static constexpr std::string_view name = "JackFram-160M";
  static constexpr ModelConfig value{
      .layers = 12, .hidden = 768, .ffn = 3072, .heads = 12, .kv_heads = 12, .head_dim = 64, .vocab = 32000};
};

// Variants that replace Llama's RMSNorm, gated SiLU and rotary positions.

constexpr ModelConfig with_plain_mlp(ModelConfig config, ActivationKind activation, Positions positions) {
  config.norm = NormKind::layer;
  config.activation = activation;
  config.gated = false;
  config.positions = positions;
  return config;
}

constexpr ModelConfig with_biases(ModelConfig config) {
  config.norm_affine = NormAffine::weight_and_bias;
  config.attention_bias = AttentionBias::all;
  config.mlp_bias = true;
  return config;
}

constexpr ModelConfig with_learned_positions(ModelConfig config, ActivationKind activation) {
  return with_biases(with_plain_mlp(config, activation, Positions::learned));
}

constexpr ModelConfig with_alibi(ModelConfig config, QkNorm qk_norm = QkNorm::none) {
  config.qk_norm = qk_norm;
  return with_plain_mlp(config, ActivationKind::gelu_erf, Positions::alibi);
}

constexpr ModelConfig with_phi_block(ModelConfig config) {
  config.order = BlockOrder::parallel;
  config.head_bias = true;
  return with_biases(with_plain_mlp(config, ActivationKind::gelu_tanh, Positions::rope));
}

struct AmdOlmo_1B {  // and -SFT, -SFT-DPO
  static constexpr std::string_view name = "AMD-OLMo-1B";
  static constexpr ModelConfig value{.layers = 16,
                                     .hidden = 2048,
                                     .ffn = 8192,
                                     .heads = 16,
                                     .kv_heads = 16,
                                     .head_dim = 128,
                                     .vocab = 50304,
                                     .norm = NormKind::layer,
                                     .norm_affine = NormAffine::none};
  static constexpr bool tied = true;
};

using Olmo_1B = AmdOlmo_1B;
using Olmo_1B_0724 = AmdOlmo_1B;  // clips q, k and v, and has a separate head: settings

struct Mpt_1B_RedPajama {
  static constexpr std::string_view name = "MPT-1B-RedPajama";
  static constexpr ModelConfig value = with_alibi(
      {.layers = 24, .hidden = 2048, .ffn = 8192, .heads = 16, .kv_heads = 16, .head_dim = 128, .vocab = 50432},
      QkNorm::whole);
  static constexpr bool tied = true;
};

struct Mpt_7B {
  static constexpr std::string_view name = "MPT-7B";
  static constexpr ModelConfig value = with_alibi(
      {.layers = 32, .hidden = 4096, .ffn = 16384, .heads = 32, .kv_heads = 32, .head_dim = 128, .vocab = 50432});
  static constexpr bool tied = true;
};

struct Foundry_1B {  // mpt-1b.yaml of LLM Foundry, as its defaults make it
  static constexpr std::string_view name = "LLM-Foundry-1B";
  static constexpr ModelConfig value = with_learned_positions(
      {.layers = 24, .hidden = 2048, .ffn = 8192, .heads = 16, .kv_heads = 16, .head_dim = 128, .vocab = 50368},
      ActivationKind::gelu_erf);
  static constexpr bool tied = true;
  static constexpr int position_rows = 2048;
};

struct Foundry_3B {
  static constexpr std::string_view name = "LLM-Foundry-3B";
  static constexpr ModelConfig value = with_learned_positions(
      {.layers = 32, .hidden = 2560, .ffn = 10240, .heads = 20, .kv_heads = 20, .head_dim = 128, .vocab = 50368},
      ActivationKind::gelu_erf);
  static constexpr bool tied = true;
  static constexpr int position_rows = 2048;
};

struct Mistral_7B {  // its window is a setting
  static constexpr std::string_view name = "Mistral-7B-v0.1";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 4096, .ffn = 14336, .heads = 32, .kv_heads = 8, .head_dim = 128, .vocab = 32000};
};

struct Mistral_7B_v03 {
  static constexpr std::string_view name = "Mistral-7B-v0.3";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 4096, .ffn = 14336, .heads = 32, .kv_heads = 8, .head_dim = 128, .vocab = 32768};
};

struct Phi_2 {
  static constexpr std::string_view name = "Phi-2";
  static constexpr ModelConfig value = with_phi_block({.layers = 32,
                                                       .hidden = 2560,
                                                       .ffn = 10240,
                                                       .heads = 32,
                                                       .kv_heads = 32,
                                                       .head_dim = 80,
                                                       .vocab = 51200,
                                                       .rotary = 32});
};

struct Phi3_Mini_4K {
  static constexpr std::string_view name = "Phi-3-mini";
  static constexpr ModelConfig value{
      .layers = 32, .hidden = 3072, .ffn = 8192, .heads = 32, .kv_heads = 32, .head_dim = 96, .vocab = 32064};
};

using Phi3_Mini_128K = Phi3_Mini_4K;  // LongRoPE is a setting

struct Gpt2_124M {
  static constexpr std::string_view name = "GPT-2";
  static constexpr ModelConfig value = with_learned_positions(
      {.layers = 12, .hidden = 768, .ffn = 3072, .heads = 12, .kv_heads = 12, .head_dim = 64, .vocab = 50257},
      ActivationKind::gelu_tanh);
  static constexpr bool tied = true;
  static constexpr int position_rows = 1024;
};

struct Opt_125M {
  static constexpr std::string_view name = "OPT-125M";
  static constexpr ModelConfig value = with_learned_positions(
      {.layers = 12, .hidden = 768, .ffn = 3072, .heads = 12, .kv_heads = 12, .head_dim = 64, .vocab = 50272},
      ActivationKind::relu);
  static constexpr bool tied = true;
  static constexpr int position_rows = 2050;
};

struct Qwen25_05B {
  static constexpr std::string_view name = "Qwen2.5-0.5B";
  static constexpr ModelConfig value{.layers = 24,
                                     .hidden = 896,
                                     .ffn = 4864,
                                     .heads = 14,
                                     .kv_heads = 2,
                                     .head_dim = 64,
                                     .vocab = 151936,
                                     .attention_bias = AttentionBias::qkv};
  static constexpr bool tied = true;
};

struct Qwen25_15B {
  static constexpr std::string_view name = "Qwen2.5-1.5B";
  static constexpr ModelConfig value{.layers = 28,
                                     .hidden = 1536,
                                     .ffn = 8960,
                                     .heads = 12,
                                     .kv_heads = 2,
                                     .head_dim = 128,
                                     .vocab = 151936,
                                     .attention_bias = AttentionBias::qkv};
  static constexpr bool tied = true;
};

struct Qwen3_06B {
  static constexpr std::string_view name = "Qwen3-0.6B";
  static constexpr ModelConfig value{.layers = 28,
                                     .hidden = 1024,
                                     .ffn = 3072,
                                     .heads = 16,
                                     .kv_heads = 8,
                                     .head_dim = 128,
                                     .vocab = 151936,
                                     .qk_norm = QkNorm::per_head};
  static constexpr bool tied = true;
};

}}}

namespace slm { inline namespace v0_1 {

using KnownModels =
    Registry<configs::AmdLlama_135M, configs::CodeLlama_7B, configs::Llama2_7B, configs::Llama2_13B, configs::Llama3_8B,
             configs::Llama32_1B, configs::TinyLlama_1B, configs::SmolLM2_135M, configs::JackFram_68M,
             configs::JackFram_160M, configs::AmdOlmo_1B, configs::Mpt_1B_RedPajama, configs::Mpt_7B,
             configs::Foundry_1B, configs::Foundry_3B, configs::Mistral_7B, configs::Mistral_7B_v03, configs::Phi_2,
             configs::Phi3_Mini_4K, configs::Gpt2_124M, configs::Opt_125M, configs::Qwen25_05B, configs::Qwen25_15B,
             configs::Qwen3_06B>;

}}
