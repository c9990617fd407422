// How large a model is, from its shape alone: numbers, bytes in each format, KV cache.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/config/model_config.hpp"

namespace slm {

/// What the size of a model depends on besides its ModelConfig.
struct TableSizes {
  bool tied = false;  // the head is the embedding table
};

/// Those of a registered config: a member `tied` says so, and none means false.
template <class Model>
constexpr TableSizes table_sizes_of() {
  TableSizes sizes;
  if constexpr (requires { Model::tied; }) sizes.tied = Model::tied;
  return sizes;
}

/// Weights of the linear layers in one block: what 4-bit formats quantize.
constexpr std::int64_t block_linear_count(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t queries = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t keys = std::int64_t{config.kv_heads} * config.head_dim;
  return hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * config.ffn;
}

/// Norms and biases of one block.
constexpr std::int64_t block_vector_count(const ModelConfig& config) { return std::int64_t{2} * config.hidden; }

/// Embedding table, head, and what else lies outside the blocks.
constexpr std::int64_t outer_count(const ModelConfig& config, const TableSizes& tables) {
  return (tables.tied ? 1 : 2) * std::int64_t{config.vocab} * config.hidden + config.hidden;
}

constexpr std::int64_t parameter_count(const ModelConfig& config, const TableSizes& tables) {
  return config.layers * (block_linear_count(config) + block_vector_count(config)) + outer_count(config, tables);
}

/// The group that 4-bit weights of this shape are quantized in: 128 where it divides the input of every linear layer,
/// else 64 or 32; 0 where none of them does.
constexpr int int4_group(const ModelConfig& config) {
  for (const int group : {128, 64, 32}) {
    const bool divides =
        config.hidden % group == 0 && config.heads * config.head_dim % group == 0 && config.ffn % group == 0;
    if (divides) return group;
  }
  return 0;
}

/// Bytes with 4-bit linear layers, each group with an fp16 scale and a 4-bit zero point, and all else in fp16.
constexpr std::int64_t int4_bytes(const ModelConfig& config, const TableSizes& tables) {
  const std::int64_t linear = config.layers * block_linear_count(config);
  const std::int64_t rest = parameter_count(config, tables) - linear;
  const int group = int4_group(config);
  return group == 0 ? 2 * (linear + rest) : linear / 2 + linear / group * 5 / 2 + 2 * rest;
}

/// Keys and values that one token adds to the KV cache.
constexpr std::int64_t kv_count_per_token(const ModelConfig& config) {
  return std::int64_t{2} * config.layers * config.kv_heads * config.head_dim;
}

}  // namespace slm
