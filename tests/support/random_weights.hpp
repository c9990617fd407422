// Writes a model of any config.json with random weights.
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

/// Products keep the size of their inputs; vectors are near 1.
inline void write_random_weights(const std::filesystem::path& folder, const Json& config, std::uint64_t seed) {
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
