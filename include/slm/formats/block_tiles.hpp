// Matrices in GGUF's blocks as one run of tiles, whose codes have four or eight bits: as GPUs hold them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// Whether all are matrices in GGUF's blocks, of types whose blocks are equally long.
inline bool block_tiles_hold(std::span<const LinearSource> sources) {
  const auto values = [](const LinearSource& source) {
    const auto* tensor = std::get_if<Tensor>(&source);
    return tensor == nullptr ? 1 : values_of_block(tensor->dtype);
  };
  const int first = values(sources.front());
  return first > 1 && std::ranges::all_of(sources, [&](const auto& source) { return values(source) == first; });
}

/// The tiles of matrices in blocks, one below the other, that block_tiles_hold() accepts; without memory. Different
/// types share what holds them all: signed codes of eight bits, in the shortest of their blocks, with minima if one
/// has.
inline CodeTiles block_tiles_of(std::span<const LinearSource> sources) {
  CodeTiles tiles = code_tiles_of(std::get<Tensor>(sources.front()).dtype);
  std::int64_t out = 0;
  for (const LinearSource& source : sources) {
    const DType type = std::get<Tensor>(source).dtype;
    const CodeTiles own = code_tiles_of(type);
    out += out_features(source);
    if (type == std::get<Tensor>(sources.front()).dtype) continue;
    tiles.block = std::min(tiles.block, own.block);
    tiles.bits = 8;
    tiles.zero = 128;
    if (own.has_minima()) tiles.offset = CodeOffset::minimum;
  }
  tiles.in = in_features(sources.front());
  tiles.out = out;
  return tiles;
}

}}
