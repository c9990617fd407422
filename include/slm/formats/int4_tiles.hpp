// Int4Tiles: the order in which kernels read four-bit weights, made once when a model is loaded.
//
// 16 outputs are a tile, and a tile is one run of memory: its scales, its zero points, its codes. Codes come in lines
// of 64 bytes, 16 outputs x 8 inputs: word r of a line belongs to output r, byte i of it holds input i in its lower and
// input i + 4 in its upper four bits. So `line & 0x0f..` and `line >> 4 & 0x0f..` are two vectors of bytes with four
// neighbouring inputs in each 32-bit lane: what a dot product of bytes (VNNI, SDOT, DP4A) and a tile of a matrix unit
// take, whole, halved or quartered.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "slm/core/dim.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tensor.hpp"

static_assert(std::endian::native == std::endian::little, "codes are handled eight at a time, the first one lowest");

namespace slm {

/// Extents and offsets, and the bytes they describe. It owns nothing.
struct Int4Tiles {
  static constexpr int height = 16;     // outputs of a tile
  static constexpr int line_depth = 8;  // inputs of a line
  static constexpr int line_bytes = 64;

  std::int64_t out = 0;
  std::int64_t in = 0;
  int block = 0;                     // 32, 64 or 128 inputs with one scale and zero point: the group, or a part of it
  bool half_scales = true;           // scales are F16, else F32
  const std::byte* bytes = nullptr;  // [tiles(), tile_bytes()], aligned to a line

  std::int64_t tiles() const { return ceil_div<std::int64_t>(out, height); }
  std::int64_t blocks() const { return ceil_div<std::int64_t>(in, block); }  // of an output
  std::int64_t scales_bytes() const { return blocks() * height * (half_scales ? 2 : 4); }
  std::int64_t zeros_offset() const { return scales_bytes(); }  // of a tile: bytes, [blocks, height]
  std::int64_t lines_offset() const {
    return ceil_div<std::int64_t>(scales_bytes() + blocks() * height, line_bytes) * line_bytes;
  }
  std::int64_t block_bytes() const { return std::int64_t{block} * (height / 2); }  // codes of a tile's block
  std::int64_t tile_bytes() const { return lines_offset() + blocks() * block_bytes(); }
  std::int64_t total_bytes() const { return tiles() * tile_bytes(); }

  const std::byte* tile(std::int64_t index) const { return bytes + index * tile_bytes(); }
};

/// The block for a group of `group` of `in` inputs; 0 if tiles cannot hold such a group. A scale of a larger group is
/// repeated, and a group that is a whole row may have any length.
constexpr int int4_block(std::int64_t group, std::int64_t in) {
  for (const int block : {128, 64, 32}) {
    if (group % block == 0) return block;
  }
  return group == in ? 32 : 0;
}

/// Whether the scale, as stored in F16, is the same.
inline bool fits_half(float scale) { return to_float(from_float<half_t>(scale)) == scale; }

/// Writes one output: codes and zero points are bytes, 0..15. Inputs behind `in` get the code that means zero.
inline void write_int4_row(const Int4Tiles& tiles, std::byte* bytes, std::int64_t row, const Int4Rows& from,
                           std::int64_t from_row) {
  std::byte* tile = bytes + row / tiles.height * tiles.tile_bytes();
  const std::int64_t lane = row % tiles.height, groups = from.groups();
  const std::uint8_t* codes = from.codes.data() + from_row * from.in;
  const std::uint8_t* zeros = from.zeros.data() + from_row * groups;
  const float* scales = from.scales.data() + from_row * groups;
  std::byte* line = tile + tiles.lines_offset() + lane * 4;
  for (std::int64_t b = 0; b < tiles.blocks(); ++b) {
    const std::int64_t group = b * tiles.block / from.group;
    const std::uint8_t zero = zeros[group];
    const std::int64_t at = b * tiles.height + lane;
    std::byte* const to = tile + tiles.zeros_offset() + at;
    *to = static_cast<std::byte>(zero);
    if (tiles.half_scales) {
      const half_t scale = from_float<half_t>(scales[group]);
      std::memcpy(tile + at * 2, &scale, sizeof scale);
    } else {
      std::memcpy(tile + at * 4, scales + group, sizeof(float));
    }
    for (std::int64_t k = b * tiles.block; k < (b + 1) * tiles.block; k += tiles.line_depth, line += tiles.line_bytes) {
      std::uint64_t eight = 0x0101010101010101u * zero;
      if (k + 8 <= tiles.in) {
        std::memcpy(&eight, codes + k, 8);
      } else if (k < tiles.in) {
        std::memcpy(&eight, codes + k, static_cast<std::size_t>(tiles.in - k));
      }
      const std::uint32_t word = static_cast<std::uint32_t>(eight) | static_cast<std::uint32_t>(eight >> 32) << 4;
      std::memcpy(line, &word, sizeof word);
    }
  }
}

/// One output as floats, exact where (code - zero) * scale is.   out [in]
inline void dequantize_row(const Int4Tiles& tiles, std::int64_t row, float* out) {
  const std::byte* tile = tiles.tile(row / tiles.height);
  const std::int64_t lane = row % tiles.height;
  const std::byte* word = tile + tiles.lines_offset() + lane * 4;
  for (std::int64_t k = 0; k < tiles.in; ++k) {
    const std::int64_t at = k / tiles.block * tiles.height + lane;
    const int pair = static_cast<int>(word[k / 8 * tiles.line_bytes + k % 4]);
    const int zero = static_cast<int>(tile[tiles.zeros_offset() + at]);
    float scale = 0;
    if (tiles.half_scales) {
      scale = to_float(load_unaligned<half_t>(tile + at * 2));
    } else {
      std::memcpy(&scale, tile + at * 4, sizeof scale);
    }
    out[k] = static_cast<float>((k % 8 < 4 ? pair & 15 : pair >> 4) - zero) * scale;
  }
}

}  // namespace slm
