// The models whose batches tests compare with single sequences.
#pragma once

namespace slm::testing {

/// Every family of docs/models.md, and newer ones with other traits, recurrent layers, experts, sinks or layers of
/// different shapes.
inline const char* const batch_fixtures[] = {"llama-mha3h",
                                             "llama3-gqa-scaled-tied",
                                             "mistral-swa8",
                                             "mistral-long",
                                             "qwen2-long",
                                             "qwen3-qknorm-headdim",
                                             "phi-partial",
                                             "phi3-longrope",
                                             "gpt2",
                                             "opt-postln-proj",
                                             "mpt-alibi-4h",
                                             "mpt-foundry-gqa-qkgn-swa",
                                             "olmo-clip-untied",
                                             "mosaicgpt-qkln-alibi",
                                             "gemma3-4b",
                                             "olmo3",
                                             "smollm3-window",
                                             "gptneox-parallel",
                                             "ministral3",
                                             "stablelm-12b",
                                             "qwen3moe-dense-layers",
                                             "qwen2moe",
                                             "lfm2",
                                             "qwen35moe",
                                             "granitehybrid-moe",
                                             "falcon-h1-norm",
                                             "nemotron-h-moe",
                                             "gpt-oss-trunc",
                                             "gemma3n",
                                             "gemma4-e2b",
                                             "gemma4-moe",
                                             "deepseek-v2-lite",
                                             "deepseek-v3"};

}  // namespace slm::testing
