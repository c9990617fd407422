// Writes a Llama checkpoint of any shape with random weights, in Hugging Face's format.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/json.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm::testing {

/// A small shape with grouped queries, for tests that need any model.
inline constexpr ModelConfig tiny_shape{
    .layers = 2, .hidden = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_dim = 16, .vocab = 101};

inline Json config_json(const ModelConfig& shape, bool tied, int context) {
  return {{"model_type", "llama"},
          {"num_hidden_layers", shape.layers},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.ffn},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"vocab_size", shape.vocab},
          {"max_position_embeddings", context},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", tied},
          {"eos_token_id", nullptr}};
}

/// Weights are uniform with the variance 1 / in, norms are 1: activations keep their size through the layers.
template <class Element>
void write_random_checkpoint(const std::filesystem::path& folder, const ModelConfig& shape, std::uint64_t seed,
                             bool tied = false, int context = 512) {
  constexpr DType dtype = sizeof(Element) == 4                  ? DType::f32
                          : std::is_same_v<Element, bfloat16_t> ? DType::bf16
                                                                : DType::f16;
  ModelSettings settings;
  settings.tied_embeddings = tied;
  const std::vector<TensorName> names = TensorNames(shape, settings).all();

  std::uint64_t state = seed * 2 + 1;
  std::vector<std::vector<Element>> data;
  std::vector<Tensor> tensors;
  for (const auto& [name, extents, transposed] : names) {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents) count *= extent;
    std::vector<Element>& values = data.emplace_back(static_cast<std::size_t>(count), from_float<Element>(1.0f));
    if (extents.size() == 2) {
      const float scale = std::sqrt(12.0f / static_cast<float>(extents[1]));
      for (Element& value : values) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value = from_float<Element>((static_cast<float>(state >> 40) * 0x1p-24f - 0.5f) * scale);
      }
    }
    static_cast<void>(transposed);
    tensors.push_back(
        {name, dtype, extents, reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(Element)});
  }
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors);
  std::ofstream(folder / "config.json") << config_json(shape, tied, context).dump(1);
}

}  // namespace slm::testing
