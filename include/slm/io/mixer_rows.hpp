// The order of rows in the input matrices of gated delta nets and of gated attention.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/mixer.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The outputs of the matrices of TensorTable::mixer_in, whose names are `modules`.
inline std::vector<std::int64_t> mixer_in_outputs(const std::array<std::string_view, 4>& modules, const Mixer& mixer) {
  const std::int64_t heads = mixer.heads, channels = mixer.channels(), inner = mixer.inner();
  if (modules[1].empty()) return {mixer.projected()};
  if (modules[2].empty()) return {channels + inner, 2 * heads};
  if (modules[3].empty()) return {channels, inner, 2 * heads};
  return {channels, inner, heads, heads};
}

/// The stored rows of such a matrix in the order of Mixer::projected(); empty: they are in this order. Matrices of
/// several parts, q | k | v | z or b | a, hold for each key head its rows of all parts.
inline std::vector<std::int64_t> mixer_in_rows(const std::array<std::string_view, 4>& modules, const Mixer& mixer,
                                               std::size_t matrix) {
  if (modules[1].empty() || !modules[3].empty()) return {};
  const std::size_t last = modules[2].empty() ? 1 : 2;
  if (matrix != last && (matrix != 0 || last == 2)) return {};
  const std::int64_t values = mixer.heads / mixer.groups, width = mixer.head_dim;
  std::vector<std::int64_t> parts{values, values}, rows;
  if (matrix == 0) parts = {mixer.state, mixer.state, values * width, values * width};
  std::int64_t of_key_head = 0, before = 0;
  for (const std::int64_t part : parts) of_key_head += part;
  for (const std::int64_t part : parts) {
    for (std::int64_t row = 0; row < mixer.groups * part; ++row)
      rows.push_back(row / part * of_key_head + before + row % part);
    before += part;
  }
  return rows;
}

/// The stored matrix of queries of gated attention has for each head its rows, then those of its gate.
inline std::vector<std::int64_t> rows_of_gated(const ModelConfig& shape, bool gate) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < std::int64_t{shape.heads} * shape.head_dim; ++row)
    rows.push_back((2 * (row / shape.head_dim) + (gate ? 1 : 0)) * shape.head_dim + row % shape.head_dim);
  return rows;
}

}}}
