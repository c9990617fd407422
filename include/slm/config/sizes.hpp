// Sizes of a model computed from its shape: parameters, bytes per format, KV cache.
#pragma once

#include <cstdint>
#include <type_traits>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

/// Parameters of the model's size that ModelConfig lacks.
struct TableSizes {
  bool tied = false;      // the head is the embedding table
  int position_rows = 0;  // rows of the learned position table
};

/// Sizes of a registered config, from its optional members `tied` and `position_rows`.
template <class Model>
constexpr TableSizes table_sizes_of() {
  TableSizes sizes;
  if constexpr (requires { Model::tied; }) sizes.tied = Model::tied;
  if constexpr (requires { Model::position_rows; }) sizes.position_rows = Model::position_rows;
  return sizes;
}

namespace detail {

constexpr std::int64_t query_width(const ModelConfig &config) { return std::int64_t{config.heads} * config.head_dim; }
constexpr std::int64_t key_width(const ModelConfig &config) { return std::int64_t{config.kv_heads} * config.head_dim; }

/// Parameters of one norm over the residual stream.
constexpr std::int64_t norm_count(const ModelConfig &config) {
  if (config.norm_affine == NormAffine::none) return 0;
  return (config.norm_affine == NormAffine::weight_and_bias ? 2 : 1) * std::int64_t{config.hidden};
}

}  // namespace detail

/// Linear weights of one block, which 4-bit formats quantize.
constexpr std::int64_t block_linear_count(const ModelConfig &config) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t attention = 2 * hidden * (detail::query_width(config) + detail::key_width(config));
  return attention + (config.gated ? 3 : 2) * hidden * config.ffn;
}

/// Norms and biases of one block.
constexpr std::int64_t block_vector_count(const ModelConfig &config) {
  const std::int64_t queries = detail::query_width(config);
  const std::int64_t keys = detail::key_width(config);
  const int norms = config.order == BlockOrder::parallel ? 1 : config.order == BlockOrder::sandwich ? 4 : 2;
  const bool all_heads = config.qk_norm == QkNorm::whole || config.qk_norm == QkNorm::own_weights;
  std::int64_t count = norms * detail::norm_count(config);
  if (all_heads) count += queries + keys;
  if (!all_heads && config.qk_norm != QkNorm::none) count += std::int64_t{2} * config.head_dim;
  if (config.inner_norms) count += queries + config.ffn;
  if (config.attention_bias != AttentionBias::none) count += queries + 2 * keys;
  if (config.attention_bias == AttentionBias::all) count += config.hidden;
  if (config.mlp_bias) count += (config.gated ? 2 : 1) * std::int64_t{config.ffn} + config.hidden;
  return count;
}

/// Parameters outside the blocks: embedding table, head, positions, final norm.
constexpr std::int64_t outer_count(const ModelConfig &config, const TableSizes &tables) {
  const std::int64_t table = std::int64_t{config.vocab} * config.embedding_dim();
  const std::int64_t projections = config.embedding != 0 ? std::int64_t{2} * config.embedding * config.hidden : 0;
  const std::int64_t positions = std::int64_t{tables.position_rows} * config.hidden;
  return (tables.tied ? 1 : 2) * table + projections + positions + (config.head_bias ? config.vocab : 0) +
         (config.final_norm ? detail::norm_count(config) : 0);
}

constexpr std::int64_t parameter_count(const ModelConfig &config, const TableSizes &tables) {
  return config.layers * (block_linear_count(config) + block_vector_count(config)) + outer_count(config, tables);
}

/// Group size for 4-bit weights of this shape: the largest of 128, 64 and 32 that divides the inputs of every linear
/// layer, or 0.
constexpr int int4_group(const ModelConfig &config) {
  for (const int group : {128, 64, 32}) {
    const bool divides =
        config.hidden % group == 0 && config.heads * config.head_dim % group == 0 && config.ffn % group == 0;
    if (divides) return group;
  }
  return 0;
}

/// Bytes with 4-bit linear layers (one fp16 scale and one 4-bit zero point per group) and fp16 for other parameters.
constexpr std::int64_t int4_bytes(const ModelConfig &config, const TableSizes &tables) {
  const std::int64_t linear = config.layers * block_linear_count(config);
  const std::int64_t rest = parameter_count(config, tables) - linear;
  const int group = int4_group(config);
  return group == 0 ? 2 * (linear + rest) : linear / 2 + linear / group * 5 / 2 + 2 * rest;
}

/// Elements that one token adds to the KV cache.
constexpr std::int64_t kv_count_per_token(const ModelConfig &config) {
  return std::int64_t{2} * config.layers * config.kv_heads * config.head_dim;
}

}}
