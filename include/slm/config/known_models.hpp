// The one list of models that slm knows at compile time. Adding one is five lines here and no kernel.
#pragma once

#include <string_view>

#include "slm/config/model_config.hpp"
#include "slm/config/registry.hpp"

namespace slm::configs {

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

}  // namespace slm::configs

namespace slm {

using KnownModels = Registry<configs::AmdLlama_135M, configs::CodeLlama_7B, configs::Llama2_7B, configs::Llama2_13B,
                             configs::Llama3_8B, configs::Llama32_1B, configs::TinyLlama_1B, configs::SmolLM2_135M,
                             configs::JackFram_68M, configs::JackFram_160M>;

}  // namespace slm
