// Writes Gemma 4 models with random weights, of widths that quantized formats can divide into groups.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "slm/io/config_json.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/io/tensor_names.hpp"
#include "support/toy_models.hpp"

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

inline void write_random_gemma4(const std::filesystem::path& folder, bool sparse, std::uint64_t seed) {
  const Json config = gemma4_config(sparse);
  const ModelDescription model = read_config_json(config, "config.json");
  std::uint64_t salt = seed << 32;
  std::vector<std::vector<float>> data;
  std::vector<Tensor> tensors;
  for (const TensorName& name : TensorNames(model.config, model.settings, model.family->names).all()) {
    std::int64_t count = 1;
    for (const std::int64_t extent : name.shape) count *= extent;
    const bool matrix = name.shape.size() == 2;
    const float size = matrix ? std::sqrt(12.0f / static_cast<float>(name.shape[1])) : 0.4f;
    std::vector<float>& values = data.emplace_back(static_cast<std::size_t>(count));
    for (float& value : values)
      value = (matrix ? 0.0f : 1.0f) + (static_cast<float>(mix(++salt) >> 40) * 0x1p-24f - 0.5f) * size;
    tensors.push_back({name.name, DType::f32, name.shape, reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(float)});
  }
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors);
  std::ofstream(folder / "config.json") << config.dump(1);
}

}  // namespace slm::testing
