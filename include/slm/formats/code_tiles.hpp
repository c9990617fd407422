// CodeTiles: the order in which kernels read weights of four or eight bits, made once when a model is loaded.
//
// 16 outputs are a tile, and a tile is one run of memory: its scales, minima and zero points, then its codes. Codes
// come in lines of 64 bytes; word r of a line belongs to output r. With four bits byte i of it holds input i in its
// lower and input i + 4 in its upper half: `line & 0x0f..` and `line >> 4 & 0x0f..` are two vectors of bytes with four
// neighbouring inputs in each 32-bit lane: what a dot product of bytes (VNNI, SDOT, DP4A) and a tile of a matrix unit
// take, whole, halved or quartered. With eight bits byte i holds input i, and a line is such a vector as it is.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "slm/core/dim.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/gguf_blocks.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tensor.hpp"

static_assert(std::endian::native == std::endian::little, "codes are handled eight at a time, the first one lowest");

namespace slm::inline v0_1 {

/// What a code means: a weight is scale * (code - zero) or scale * code + minimum.
enum class CodeOffset {
  zero_points,  // the zeros of AWQ: a byte for each block and output
  constant,     // one zero for the whole matrix
  minimum,      // one for each block and output
};

/// Extents and offsets, and the bytes they describe. It owns nothing.
struct CodeTiles {
  static constexpr int height = 16;  // outputs of a tile
  static constexpr int line_bytes = 64;

  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;             // of a code, 4 or 8
  int block = 0;            // inputs with one scale and zero point or minimum: 16 to 128, a part of the stored group
  int span = 0;             // inputs of a superblock, whose scale and minimum each block has a factor of; 0: none
  bool half_scales = true;  // scales are F16, else F32; minima are F16
  CodeOffset offset = CodeOffset::zero_points;
  int zero = 0;                      // where it is constant
  const std::byte* bytes = nullptr;  // [tiles(), tile_bytes()], aligned to a line

  std::int64_t tiles() const { return ceil_div<std::int64_t>(out, height); }
  std::int64_t blocks() const { return ceil_div<std::int64_t>(in, block); }  // of an output
  std::int64_t spans() const { return span == 0 ? blocks() : in / span; }    // of an output
  int blocks_of_span() const { return span == 0 ? 1 : span / block; }
  bool has_minima() const { return offset == CodeOffset::minimum; }
  int line_depth() const { return 32 / bits; }  // inputs of a line

  /// Whether products with both take the same packed activations.
  bool packs_like(const CodeTiles& other) const {
    return block == other.block && offset == other.offset && zero == other.zero;
  }

  // Offsets in a tile: scales [spans, height], minima likewise, then bytes [blocks, height]: signed factors of scales
  // and of minima, zero points. What a kind does not have takes no room.
  std::int64_t minima_offset() const { return spans() * height * (half_scales ? 2 : 4); }
  std::int64_t factors_offset() const { return minima_offset() + (has_minima() ? spans() * height * 2 : 0); }
  std::int64_t minimum_factors_offset() const { return factors_offset() + (span != 0 ? blocks() * height : 0); }
  std::int64_t zeros_offset() const {
    return minimum_factors_offset() + (span != 0 && has_minima() ? blocks() * height : 0);
  }
  std::int64_t lines_offset() const {
    const std::int64_t zeros = offset == CodeOffset::zero_points ? blocks() * height : 0;
    return ceil_div<std::int64_t>(zeros_offset() + zeros, line_bytes) * line_bytes;
  }
  std::int64_t block_bytes() const { return std::int64_t{block} * height * bits / 8; }  // codes of a tile's block
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

namespace detail {

/// Eight codes of one output as the words of its lines: one of four bits, two of eight.
inline void write_codes(int bits, std::uint64_t eight, std::byte* word) {
  const auto first = static_cast<std::uint32_t>(eight), second = static_cast<std::uint32_t>(eight >> 32);
  const std::uint32_t words[] = {bits == 4 ? first | second << 4 : first, second};
  std::memcpy(word, &words[0], sizeof(std::uint32_t));
  if (bits == 8) std::memcpy(word + CodeTiles::line_bytes, &words[1], sizeof(std::uint32_t));
}

}  // namespace detail

/// Writes one output of four bits: codes and zero points are bytes, 0..15. Inputs behind `in` get the code that means
/// zero.
inline void write_int4_row(const CodeTiles& tiles, std::byte* bytes, std::int64_t row, const Int4Rows& from,
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
    for (std::int64_t k = b * tiles.block; k < (b + 1) * tiles.block; k += 8, line += tiles.line_bytes) {
      std::uint64_t eight = 0x0101010101010101u * zero;
      if (k + 8 <= tiles.in) {
        std::memcpy(&eight, codes + k, 8);
      } else if (k < tiles.in) {
        std::memcpy(&eight, codes + k, static_cast<std::size_t>(tiles.in - k));
      }
      detail::write_codes(4, eight, line);
    }
  }
}

/// The tiles that hold one of GGUF's block types, without extents. Types of less than four bits, of five and of six
/// have codes of eight: exact, and read without shifts.
constexpr CodeTiles code_tiles_of(DType type) {
  const auto tiles = [](int bits, int block, int span, CodeOffset offset, int zero) {
    return CodeTiles{.bits = bits, .block = block, .span = span, .offset = offset, .zero = zero};
  };
  using enum CodeOffset;
  switch (type) {
    case DType::q4_0: return tiles(4, 32, 0, constant, 8);
    case DType::q4_1: return tiles(4, 32, 0, minimum, 0);
    case DType::q5_0: return tiles(8, 32, 0, constant, 16);
    case DType::q5_1: return tiles(8, 32, 0, minimum, 0);
    case DType::q8_0: return tiles(8, 32, 0, constant, 128);
    case DType::iq4_nl: return tiles(8, 32, 0, constant, 128);
    case DType::q2_k: return tiles(8, 16, 256, minimum, 0);
    case DType::q3_k: return tiles(8, 16, 256, constant, 4);
    case DType::q4_k: return tiles(4, 32, 256, minimum, 0);
    case DType::q5_k: return tiles(8, 32, 256, minimum, 0);
    case DType::q6_k: return tiles(8, 16, 256, constant, 32);
    default: return {};
  }
}

/// Writes one output of a matrix of blocks, for tiles of its type. Throws gguf.non-finite.
inline void write_block_row(const CodeTiles& tiles, std::byte* bytes, std::int64_t row, const Tensor& from,
                            std::int64_t from_row) {
  std::byte* const tile = bytes + row / tiles.height * tiles.tile_bytes();
  const std::int64_t lane = row % tiles.height, values = values_of_block(from.dtype), count = tiles.in / values;
  const std::int64_t groups = values / tiles.block;
  std::byte* line = tile + tiles.lines_offset() + lane * 4;
  GgufBlock block;
  for (std::int64_t s = 0; s < count; ++s) {
    decode_block(from, from_row * count + s, block);
    const std::int64_t at = s * tiles.height + lane;
    std::memcpy(tile + at * 2, &block.scale, sizeof block.scale);
    if (tiles.has_minima()) {
      std::memcpy(tile + tiles.minima_offset() + at * 2, &block.minimum, sizeof block.minimum);
    }
    for (std::int64_t g = 0; tiles.span != 0 && g < groups; ++g) {
      const std::int64_t of_block = (s * groups + g) * tiles.height + lane;
      const auto index = static_cast<std::size_t>(g);
      tile[tiles.factors_offset() + of_block] = static_cast<std::byte>(block.scale_factors[index]);
      if (!tiles.has_minima()) continue;
      tile[tiles.minimum_factors_offset() + of_block] = static_cast<std::byte>(block.minimum_factors[index]);
    }
    for (std::int64_t k = 0; k < values; k += 8, line += tiles.bits * tiles.line_bytes / 4) {
      std::uint8_t eight[8];
      for (std::int64_t i = 0; i < 8; ++i) {
        eight[i] = static_cast<std::uint8_t>(block.codes[static_cast<std::size_t>(k + i)] + tiles.zero);
      }
      detail::write_codes(tiles.bits, load_unaligned<std::uint64_t>(reinterpret_cast<const std::byte*>(eight)), line);
    }
  }
}

/// One output as floats, exact where the product of code and scale is.   out [in]
inline void dequantize_row(const CodeTiles& tiles, std::int64_t row, float* out) {
  const std::byte* const tile = tiles.tile(row / tiles.height);
  const std::int64_t lane = row % tiles.height;
  const std::byte* const word = tile + tiles.lines_offset() + lane * 4;
  const auto half = [tile](std::int64_t place) { return to_float(load_unaligned<half_t>(tile + place)); };
  const auto factor = [tile](std::int64_t place) {
    return static_cast<float>(load_unaligned<std::int8_t>(tile + place));
  };
  for (std::int64_t b = 0; b < tiles.blocks(); ++b) {
    const std::int64_t at = b * tiles.height + lane, span = b / tiles.blocks_of_span() * tiles.height + lane;
    float scale = tiles.half_scales ? half(span * 2) : load_unaligned<float>(tile + span * 4), minimum = 0;
    if (tiles.has_minima()) minimum = half(tiles.minima_offset() + span * 2);
    if (tiles.span != 0) {
      scale *= factor(tiles.factors_offset() + at);
      if (tiles.has_minima()) minimum *= factor(tiles.minimum_factors_offset() + at);
    }
    const bool own_zeros = tiles.offset == CodeOffset::zero_points;
    const int zero = own_zeros ? static_cast<int>(tile[tiles.zeros_offset() + at]) : tiles.zero;
    for (std::int64_t k = b * tiles.block; k < std::min(tiles.in, (b + 1) * tiles.block); ++k) {
      const int byte = static_cast<int>(word[k / tiles.line_depth() * tiles.line_bytes + k % 4]);
      const int code = tiles.bits == 8 ? byte : k % 8 < 4 ? byte & 15 : byte >> 4;
      out[k] = static_cast<float>(code - zero) * scale + minimum;
    }
  }
}

}  // namespace slm
