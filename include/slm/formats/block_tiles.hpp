// Matrices in GGUF block formats as tiles with 4-bit or 8-bit codes, the layout of GPUs.
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

/// Returns true if all sources are matrices in block formats with equally long blocks. Scales in fp32 and minima
/// exclude each other.
inline bool block_tiles_hold(std::span<const LinearSource> sources) {
  const auto values = [](const LinearSource& source) {
    const auto* tensor = std::get_if<Tensor>(&source);
    return tensor == nullptr ? 1 : values_of_block(tensor->dtype);
  };
  const int first = values(sources.front());
  if (first == 1) return false;
  bool floats = false, minima = false;
  for (const LinearSource& source : sources) {
    if (values(source) != first) return false;
    const CodeTiles tiles = code_tiles_of(std::get<Tensor>(source).dtype);
    floats = floats || !tiles.half_scales;
    minima = minima || tiles.has_minima();
  }
  return !(floats && minima);
}

/// The tile layout of stacked matrices that block_tiles_hold() accepts, without memory. Different types share a common
/// layout: signed 8-bit codes, the shortest block, and minima if any type has them.
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
    tiles.half_scales = tiles.half_scales && own.half_scales;
    if (own.has_minima()) tiles.offset = CodeOffset::minimum;
  }
  tiles.in = in_features(sources.front());
  tiles.out = out;
  return tiles;
}

}}
