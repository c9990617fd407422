// AWQ layers of any published layout as tiles, for CPU and GPU matrices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "slm/core/tensor.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// Returns true if all sources are 4-bit layers with group sizes that tiles support.
inline bool int4_tiles_hold(std::span<const LinearSource> sources) {
  return std::all_of(sources.begin(), sources.end(), [](const LinearSource& source) {
    const auto* layer = std::get_if<Int4Tensor>(&source);
    return layer != nullptr && int4_block(layer->group, layer->in) != 0;
  });
}

/// Whether all scales of a layer are exactly representable in F16.
inline bool scales_fit_half(const Int4Tensor& layer) {
  const Tensor& scales = *layer.scales;
  if (scales.dtype == DType::f16) return true;
  std::vector<float> values(static_cast<std::size_t>(scales.elements()));
  convert(scales, 0, scales.elements(), values.data());
  return std::all_of(values.begin(), values.end(), fits_half);
}

/// The tile layout of stacked layers that int4_tiles_hold() accepts, without memory.
inline CodeTiles int4_tiles_of(std::span<const LinearSource> sources) {
  CodeTiles tiles{.in = in_features(sources.front()), .block = 128};
  for (const LinearSource& source : sources) {  // groups may differ: the smallest block serves all
    const Int4Tensor& layer = std::get<Int4Tensor>(source);
    tiles.out += layer.out;
    tiles.block = std::min(tiles.block, int4_block(layer.group, layer.in));
    tiles.half_scales = tiles.half_scales && scales_fit_half(layer);
  }
  return tiles;
}

/// Number of outputs to write at once: a cache line of words with eight outputs each.
inline constexpr std::int64_t int4_rows_at_once = 128;

/// Writes outputs begin.. end - 1 of a layer; its output 0 is output `first` of the tiles. Threads may write disjoint
/// ranges concurrently.
inline void write_int4_rows(const CodeTiles& tiles, std::byte* bytes, std::int64_t first, const Int4Tensor& layer,
                            std::int64_t begin, std::int64_t end) {
  for (std::int64_t from = begin; from < end; from += int4_rows_at_once) {
    const std::int64_t count = std::min(int4_rows_at_once, end - from);
    const Int4Rows rows = unpack(layer, from, count);
    for (std::int64_t r = 0; r < count; ++r) write_int4_row(tiles, bytes, first + (from - begin) + r, rows, r);
  }
}

}}
