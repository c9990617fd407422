// The rows of stored matrices in the order that backends take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The rows to read of a matrix of a role; empty: all, in their order. matrix: its place among those of the role.
inline std::vector<std::int64_t> stored_rows(const Checkpoint& checkpoint, Role role, std::size_t matrix) {
  const ModelConfig& shape = checkpoint.config();
  if (role == Role::mixer_in) return checkpoint.names().mixer_in_rows(matrix);
  if (role == Role::qkv && shape.attention_gate && matrix == 0) return rows_of_gated(shape, false);
  std::vector<std::int64_t> rows;
  // Rotated parts precede the others.
  const auto add_turned = [&rows](std::int64_t first, std::int64_t leading, std::int64_t rotated) {
    for (std::int64_t row = 0; row < rotated + leading; ++row)
      rows.push_back(first + (row < rotated ? leading + row : row - rotated));
  };
  const LatentAttention& latent = shape.latent;
  for (int head = 0; role == Role::latent_query && head < shape.heads; ++head)
    add_turned(std::int64_t{head} * (latent.unrotated + shape.rotary), latent.unrotated, shape.rotary);
  if (role == Role::latent) add_turned(0, latent.rank, shape.rotary);
  if (role == Role::gate_up && checkpoint.names().experts().interleaved) {
    const std::int64_t ffn = shape.mixture.ffn;
    for (std::int64_t row = 0; row < 2 * ffn; ++row) rows.push_back(row % ffn * 2 + row / ffn);
  }
  return rows;
}

}}}
