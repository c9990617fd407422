// Adapters for the benchmark: one written in PEFT's format, the others in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/lm/adapter.hpp"

namespace slm::bench {

/// Random bf16 bits whose magnitudes lie between 0.0039 and 0.031, of either sign.
inline std::uint64_t random_weights(std::uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return ((state ^ (state >> 29)) & 0x817f817f817f817fu) | 0x3c003c003c003c00u;
}

/// Writes an adapter of the attention projections in bf16.
inline void write_adapter(const std::filesystem::path& folder, const Checkpoint& checkpoint, int rank,
                          std::uint64_t seed) {
  std::vector<std::vector<std::uint64_t>> data;
  std::vector<Tensor> tensors;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    Tensor tensor{std::move(name), DType::bf16, std::move(shape), nullptr, 0};
    tensor.size_bytes = 2 * static_cast<std::size_t>(tensor.elements());
    std::vector<std::uint64_t>& words = data.emplace_back((tensor.size_bytes + 7) / 8);
    for (std::uint64_t& word : words) word = random_weights(seed);
    tensor.bytes = reinterpret_cast<const std::byte*>(words.data());
    tensors.push_back(std::move(tensor));
  };
  for (int layer = 0; layer < checkpoint.config().layers; ++layer) {
    for (const Role role : {Role::qkv, Role::attention_out}) {
      for (const TensorName& weight : checkpoint.names().weights(role, layer)) {
        const std::string stem = "base_model.model." + weight.module();
        add(stem + ".lora_A.weight", {rank, weight.shape[1]});
        add(stem + ".lora_B.weight", {weight.shape[0], rank});
      }
    }
  }
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "adapter_model.safetensors", tensors);
  write_text_file(folder / "adapter_config.json",
                  text("{\"peft_type\": \"LORA\", \"r\": ", rank, ", \"lora_alpha\": ", rank, "}\n"));
}

/// An adapter of the same shape with other weights in separate memory.
inline AdapterRef another(const Adapter& one, std::uint64_t seed) {
  constexpr std::size_t line = 64;
  Adapter other = one;
  const std::byte* const begin = one.changes.front().down;  // the first of all matrices
  const std::shared_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(one.bytes + line);
  std::byte* to = memory.get();
  to += (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
  for (std::size_t at = 0; at + sizeof seed <= one.bytes; at += sizeof seed) {
    const std::uint64_t word = random_weights(seed);
    std::memcpy(to + at, &word, sizeof word);
  }
  for (LowRank& change : other.changes) {
    change.down = to + (change.down - begin);
    change.up = to + (change.up - begin);
  }
  other.digest = seed;
  other.memory = memory;
  return std::make_shared<const Adapter>(std::move(other));
}

}  // namespace slm::bench
