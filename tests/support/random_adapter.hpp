// Writes an adapter with random weights for any model in PEFT's format, and the merged model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "slm/formats/convert.hpp"
#include "slm/io/adapted_product.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/json.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/io/tensor_names.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// The trained matrices of one module: W + scale * b . a.
struct TrainedModule {
  std::string name;  // of the model class
  bool embedding = false, transposed = false;
  std::int64_t out = 0, in = 0, rank = 0;
  double scale = 0;
  std::vector<float> a = {}, b = {};  // [rank, in], [out, rank]
};

struct RandomAdapter {
  std::uint64_t seed = 1;
  int rank = 0;    // 0: a different one per module, 1..7
  float size = 1;  // approximate magnitude of b; 0: b is zero
  DType type = DType::f32;
  bool by_root = false;  // rank-stabilised scales
  std::function<bool(const std::string&)> only = {};
};

/// All modules of a model that an adapter may change.
inline std::vector<TrainedModule> modules_of(const Checkpoint& checkpoint) {
  ModelSettings settings = checkpoint.settings();
  settings.tied_embeddings = false;
  const TensorTable& table = checkpoint.family().names;
  std::vector<TrainedModule> modules;
  TensorNames(checkpoint.config(), settings, table).for_each([&](Role role, int, const auto& weights, const auto&) {
    if (!detail::adapted_product(role)) return;
    for (const TensorName& weight : weights) {
      const bool turned = weight.transposed || role == Role::embedding;
      TrainedModule module{.name = weight.module()};
      module.embedding = role == Role::embedding;
      module.transposed = weight.transposed;
      module.out = weight.shape[turned ? 1 : 0];
      module.in = weight.shape[turned ? 0 : 1];
      modules.push_back(std::move(module));
    }
  });
  return modules;
}

/// Writes the adapter's folder. Its matrices then contain the written values, in the written type.
inline std::vector<TrainedModule> write_random_adapter(const std::filesystem::path& folder,
                                                       const Checkpoint& checkpoint, const RandomAdapter& how) {
  constexpr int alpha = 6;
  std::vector<TrainedModule> modules;
  for (TrainedModule& module : modules_of(checkpoint)) {
    if (!how.only || how.only(module.name)) modules.push_back(std::move(module));
  }
  std::uint64_t salt = how.seed << 32;
  const auto draw = [&](float size) { return (static_cast<float>(mix(++salt) >> 40) * 0x1p-24f - 0.5f) * size; };
  Json ranks = Json::object(), alphas = Json::object();
  std::vector<std::vector<std::byte>> data;
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, std::vector<float>& values) {
    std::vector<std::byte>& bytes = data.emplace_back();
    const auto round = [&]<class Element>(Element) {
      bytes.resize(values.size() * sizeof(Element));
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Element rounded = from_float<Element>(values[i]);
        values[i] = to_float(rounded);
        std::memcpy(&bytes[i * sizeof(Element)], &rounded, sizeof rounded);
      }
    };
    if (how.type == DType::f32) round(float{});
    if (how.type == DType::f16) round(half_t{});
    if (how.type == DType::bf16) round(bfloat16_t{});
    tensors.push_back({name, how.type, std::move(shape), nullptr, bytes.size()});
  };
  for (TrainedModule& module : modules) {
    const int wanted = how.rank != 0 ? how.rank : 1 + static_cast<int>(mix(++salt) % 7);
    module.rank = std::min<std::int64_t>({wanted, module.in, module.out});
    if (module.rank != 8) ranks[module.name] = module.rank;
    const bool other_alpha = module.rank % 2 == 0;
    if (other_alpha) alphas["^" + module.name] = 3;
    const auto rank = static_cast<double>(module.rank);
    module.scale = (other_alpha ? 3 : alpha) / (how.by_root ? std::sqrt(rank) : rank);
    module.a.resize(static_cast<std::size_t>(module.rank * module.in));
    module.b.resize(static_cast<std::size_t>(module.out * module.rank));
    for (float& value : module.a) value = draw(std::sqrt(12.0f / static_cast<float>(module.embedding ? 1 : module.in)));
    for (float& value : module.b) value = draw(how.size);
    const std::string stem = "base_model.model." + module.name;
    add(stem + (module.embedding ? ".lora_embedding_A" : ".lora_A.weight"), {module.rank, module.in}, module.a);
    add(stem + (module.embedding ? ".lora_embedding_B" : ".lora_B.weight"), {module.out, module.rank}, module.b);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = data[i].data();
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  std::ofstream(folder / "adapter_config.json") << Json{
      {"peft_type", "LORA"},
      {"r", 8},
      {"lora_alpha", alpha},
      {"use_rslora", how.by_root},
      {"rank_pattern", ranks},
      {"alpha_pattern", alphas},
      {"target_modules", "all-linear"},
      {"bias", "none"},
      {"init_lora_weights", true}}.dump(1);
  return modules;
}

/// Writes a model in fp32 with the adapter merged into its weights, embedding and head separate.
inline void write_merged(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                         const std::vector<TrainedModule>& modules) {
  const std::string prefix{checkpoint.family().names.prefix};
  const auto module_of = [&](std::string name) {
    name = name.substr(0, name.rfind('.'));
    const auto found = std::find_if(modules.begin(), modules.end(), [&](const TrainedModule& module) {
      return module.name == name || module.name == prefix + name;
    });
    return found == modules.end() ? nullptr : &*found;
  };
  std::vector<std::vector<float>> data;
  std::vector<Tensor> tensors;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    std::vector<float>& values = data.emplace_back(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    const TrainedModule* module = name.ends_with(".weight") ? module_of(name) : nullptr;
    for (std::int64_t o = 0; module != nullptr && o < module->out; ++o) {
      for (std::int64_t i = 0; i < module->in; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j < module->rank; ++j) {
          sum += double{module->b[static_cast<std::size_t>(o * module->rank + j)]} *
                 double{module->a[static_cast<std::size_t>(j * module->in + i)]};
        }
        const bool turned = module->transposed || module->embedding;
        float& weight = values[static_cast<std::size_t>(turned ? i * module->out + o : o * module->in + i)];
        weight = static_cast<float>(double{weight} + module->scale * sum);
      }
    }
    tensors.push_back({name, DType::f32, tensor.shape, nullptr, values.size() * sizeof(float)});
  };
  for (const auto& [name, tensor] : checkpoint.tensors()) add(name, *tensor);
  if (checkpoint.settings().tied_embeddings) {
    const TensorName table = checkpoint.names().weights(Role::embedding).front();
    add("lm_head.weight", *checkpoint.find(table.name));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    tensors[i].bytes = reinterpret_cast<const std::byte*>(data[i].data());
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors);
  Json config = read_json_object(checkpoint.folder() / "config.json");
  config["tie_word_embeddings"] = false;
  std::ofstream(folder / "config.json") << config.dump(1);
}

}  // namespace slm::testing
