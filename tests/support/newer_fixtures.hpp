// The fixture models of the families of 2024 to 2026.
#pragma once

#include <string>
#include <vector>

namespace slm::testing {

inline const std::vector<std::string> newer_fixtures = {"apertus",
                                                        "arcee",
                                                        "bitnet-plain",
                                                        "cohere",
                                                        "cohere2",
                                                        "ernie4_5",
                                                        "ernie4_5-bias",
                                                        "exaone4-1.2b",
                                                        "exaone4-32b",
                                                        "falcon-40b",
                                                        "falcon-7b",
                                                        "gemma",
                                                        "gemma2",
                                                        "gemma2-scale",
                                                        "gemma3-270m",
                                                        "gemma3-4b",
                                                        "gemma3-4b-nested",
                                                        "gemma3-4b-nested-model",
                                                        "gemma3-finalcap",
                                                        "gemma3-linear",
                                                        "gemma3n",
                                                        "gemma4-e2b",
                                                        "gemma4-moe",
                                                        "glm",
                                                        "glm4",
                                                        "gptneox-parallel",
                                                        "gptneox-serial",
                                                        "granite",
                                                        "granite-untied-bias",
                                                        "helium",
                                                        "hunyuan-dense",
                                                        "hunyuan-dense-plain",
                                                        "internlm2",
                                                        "internlm3",
                                                        "llama-dynamic",
                                                        "llama-linear",
                                                        "llama-yarn",
                                                        "llama-yarn-factor",
                                                        "llama-yarn-mscale",
                                                        "minicpm",
                                                        "ministral-layer-types",
                                                        "ministral3",
                                                        "ministral3-untied",
                                                        "mistral-headdim",
                                                        "mistral3-nested",
                                                        "mistral3-nested-mistral",
                                                        "nemotron",
                                                        "olmo2",
                                                        "olmo3",
                                                        "olmo3-plain",
                                                        "phi4-mini",
                                                        "qwen2-layer-types",
                                                        "qwen2-yarn",
                                                        "qwen3-layer-types",
                                                        "seed_oss",
                                                        "smollm3",
                                                        "smollm3-interval",
                                                        "smollm3-window",
                                                        "stablelm-1.6b",
                                                        "stablelm-12b",
                                                        "starcoder2",
                                                        "starcoder2-full",
                                                        "gptneox-parallel-v4",
                                                        "deepseek-v2-lite",
                                                        "deepseek-v3",
                                                        "glm4-moe-lite",
                                                        "ernie4.5-moe",
                                                        "ernie4.5-moe-interval",
                                                        "granitemoe",
                                                        "granitemoeshared",
                                                        "gpt-oss",
                                                        "gpt-oss-trunc",
                                                        "mixtral",
                                                        "mixtral-window",
                                                        "olmoe",
                                                        "olmoe-clip",
                                                        "phimoe",
                                                        "qwen2moe",
                                                        "qwen2moe-dense-layers",
                                                        "qwen3moe",
                                                        "qwen3moe-dense-layers",
                                                        "qwen3moe-nonorm",
                                                        "qwen3moe-one-of-all"};

/// Of them, one or two dense ones with each trait.
inline const std::vector<std::string> newer_traits = {"apertus",
                                                      "bitnet-plain",
                                                      "cohere",
                                                      "cohere2",
                                                      "falcon-40b",
                                                      "gemma2",
                                                      "gemma3-4b",
                                                      "glm4",
                                                      "gptneox-parallel",
                                                      "granite-untied-bias",
                                                      "hunyuan-dense",
                                                      "internlm2",
                                                      "llama-yarn-factor",
                                                      "ministral3",
                                                      "nemotron",
                                                      "olmo3",
                                                      "smollm3-window",
                                                      "stablelm-12b"};

/// Of the mixtures of experts, one or two with each trait.
inline const std::vector<std::string> expert_traits = {
    "ernie4.5-moe", "gpt-oss-trunc",         "granitemoeshared",   "mixtral",
    "olmoe-clip",   "qwen2moe-dense-layers", "qwen3moe",           "phimoe",
    "gpt-oss",      "qwen3moe-dense-layers", "qwen3moe-one-of-all"};

/// Of the models with layers of different shapes, residual streams or latent attention.
inline const std::vector<std::string> shaped_traits = {"gemma3n",     "gemma4-e2b",       "gemma4-moe",
                                                       "deepseek-v3", "deepseek-v2-lite", "glm4-moe-lite"};

/// Both.
inline const std::vector<std::string> mixture_traits = [] {
  std::vector<std::string> all = expert_traits;
  all.insert(all.end(), shaped_traits.begin(), shaped_traits.end());
  return all;
}();

}  // namespace slm::testing
