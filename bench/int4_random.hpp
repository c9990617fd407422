// Four-bit weights made in place: speed does not depend on what they say.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "slm/backend/cpu/int4_matrix.hpp"
#include "slm/core/types.hpp"

namespace slm::bench {

/// Random codes and zero points, scales near 0.3 / sqrt(in), with a scale for each `group` inputs.
inline backend::cpu::Int4Matrix random_int4(std::int64_t out, std::int64_t in, int group, std::uint32_t seed) {
  auto matrix = backend::cpu::Int4Matrix::allocate(out, in, group, true);
  const Int4Tiles& tiles = matrix.tiles;
  std::uint32_t state = seed * 2 + 1;
  const auto random = [&state] { return state = state * 1664525u + 1013904223u; };
  std::vector<std::uint32_t> words(static_cast<std::size_t>(tiles.tile_bytes() / 4));
  for (std::uint32_t& word : words) word = random() ^ random() >> 16;
  std::vector<half_t> scales(static_cast<std::size_t>(tiles.blocks() * tiles.height));
  const float size = 0.3f / std::sqrt(static_cast<float>(in));
  for (half_t& scale : scales) scale = from_float<half_t>(size * (0.5f + static_cast<float>(random() >> 8) * 0x1p-24f));
  for (std::int64_t t = 0; t < tiles.tiles(); ++t) {
    std::byte* tile = matrix.storage() + t * tiles.tile_bytes();
    std::memcpy(tile, words.data(), static_cast<std::size_t>(tiles.tile_bytes()));
    std::memcpy(tile, scales.data(), scales.size() * sizeof(half_t));
    for (std::int64_t i = 0; i < tiles.blocks() * tiles.height; ++i) tile[tiles.zeros_offset() + i] &= std::byte{15};
    words[static_cast<std::size_t>(random() % words.size())] = random();  // no two tiles alike
  }
  return matrix;
}

}  // namespace slm::bench
