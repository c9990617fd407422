// CodeTiles: the memory layout in which kernels read weights of four to eight bits, made once at load.
//
// A tile is 16 outputs, contiguous in memory: scales, minima and zero points, then codes. Codes are in lines of 64
// bytes; word r of a line belongs to output r. With four bits, byte i of a word has input i in its lower half and input
// i + 4 in its upper half. `line & 0x0f..` and `line >> 4 & 0x0f..` are two byte vectors with four adjacent inputs per
// 32-bit lane. Byte dot products (VNNI, SDOT, DP4A) and matrix units take such vectors whole, halved or quartered. With
// eight bits, byte i has input i, and a line is such a vector.
//
// Five and six bits are in bundles of lines. Five: four lines in the 4-bit layout have the lower bits of 32 inputs; in
// the fifth line, byte i has the upper bits of inputs i, i + 4, i + 8.. from the lowest bit up. Six: three lines have
// one input per byte; their two free bits hold the bundle's last four inputs, the lowest bits in the first line.
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

namespace slm { inline namespace v0_1 {

/// The meaning of codes: a weight is scale * (code - zero) or scale * code + minimum.
enum class CodeOffset {
  zero_points,  // AWQ: one zero byte per block and output
  constant,     // one zero for the whole matrix
  minimum,      // one minimum per block and output
};

/// Extents and offsets of tiles, and a non-owning pointer to their bytes.
struct CodeTiles {
  static constexpr int height = 16;  // outputs per tile
  static constexpr int line_bytes = 64;

  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;   // bits per code: 4, 5, 6 or 8
  int block = 0;  // inputs per scale and zero point or minimum: 16 to 128; divides the stored group
  int span = 0;  // inputs per superblock, which has a scale and minimum; blocks have factors of them; 0: no superblocks
  bool half_scales = true;  // true: scales are F16, else F32; minima are F16
  CodeOffset offset = CodeOffset::zero_points;
  int zero = 0;                      // used if constant
  const std::byte* bytes = nullptr;  // [tiles(), tile_bytes()], aligned to a line

  std::int64_t tiles() const { return ceil_div<std::int64_t>(out, height); }
  std::int64_t blocks() const { return ceil_div<std::int64_t>(in, block); }  // per output
  std::int64_t spans() const { return span == 0 ? blocks() : in / span; }    // per output
  int blocks_of_span() const { return span == 0 ? 1 : span / block; }
  bool has_minima() const { return offset == CodeOffset::minimum; }
  // Lines per bundle.
  static constexpr int bundle_lines(int bits) { return bits == 5 ? 5 : bits == 6 ? 3 : 1; }
  static constexpr int bundle_inputs(int bits) { return 32 * bundle_lines(bits) / bits; }

  /// Whether products with both use the same packed activations. Row block heights depend on the code width.
  bool packs_like(const CodeTiles& other) const {
    return block == other.block && offset == other.offset && zero == other.zero && bits == other.bits;
  }

  // Offsets in a tile: scales [spans, height], minima likewise, then bytes [blocks, height]: signed factors of scales,
  // factors of minima, zero points. Absent parts use no space.
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
  std::int64_t block_bytes() const { return std::int64_t{block} * height * bits / 8; }  // codes of one block of a tile
  std::int64_t tile_bytes() const { return lines_offset() + blocks() * block_bytes(); }
  std::int64_t total_bytes() const { return tiles() * tile_bytes(); }

  const std::byte* tile(std::int64_t index) const { return bytes + index * tile_bytes(); }
};

/// The block size for a group of `group` out of `in` inputs; 0 if tiles cannot hold it. The scale of a larger group is
/// repeated. A group of a whole row may have any length.
constexpr int int4_block(std::int64_t group, std::int64_t in) {
  for (const int block : {128, 64, 32}) {
    if (group % block == 0) return block;
  }
  return group == in ? 32 : 0;
}

/// Whether the scale is exactly representable in F16.
inline bool fits_half(float scale) { return to_float(from_float<half_t>(scale)) == scale; }

namespace detail {

/// Writes the codes of one output's bundle as words of its lines.
inline void write_bundle(int bits, const std::byte* codes, std::byte* word) {
  const auto quad = [codes](int index) { return load_unaligned<std::uint32_t>(codes + 4 * index); };
  const auto put = [word](int line, std::uint32_t value) {
    std::memcpy(word + line * CodeTiles::line_bytes, &value, sizeof value);
  };
  const auto halves = [](std::uint32_t first, std::uint32_t second) {
    return (first & 0x0f0f0f0fu) | (second & 0x0f0f0f0fu) << 4;
  };
  if (bits == 4) return put(0, halves(quad(0), quad(1)));
  if (bits == 8) return put(0, quad(0));
  if (bits == 5) {
    std::uint32_t upper = 0;
    for (int i = 0; i < 8; ++i) upper |= (quad(i) >> 4 & 0x01010101u) << i;
    for (int line = 0; line < 4; ++line) put(line, halves(quad(2 * line), quad(2 * line + 1)));
    return put(4, upper);
  }
  for (int line = 0; line < 3; ++line) put(line, quad(line) | (quad(3) >> 2 * line & 0x03030303u) << 6);
}

/// Reads the code of input k; word: the output's first word.
inline int code_of(int bits, const std::byte* word, std::int64_t k) {
  const std::int64_t inputs = CodeTiles::bundle_inputs(bits), bundle = k / inputs;
  const int quad = static_cast<int>(k % inputs / 4);
  const auto byte = [&](int line) {
    return static_cast<int>(word[(bundle * CodeTiles::bundle_lines(bits) + line) * CodeTiles::line_bytes + k % 4]);
  };
  switch (bits) {
    case 4: return byte(0) >> 4 * quad & 15;
    case 5: return (byte(quad / 2) >> 4 * (quad % 2) & 15) | (byte(4) >> quad & 1) << 4;
    case 6: return quad < 3 ? byte(quad) & 63 : byte(0) >> 6 | byte(1) >> 6 << 2 | byte(2) >> 6 << 4;
    default: return byte(0);
  }
}

}  // namespace detail

/// Writes one output of 4-bit codes; codes and zero points are bytes, 0..15. Inputs after `in` get the code for zero.
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
      std::byte eight[8];
      std::fill_n(eight, 8, static_cast<std::byte>(zero));
      if (k + 8 <= tiles.in) {
        std::memcpy(eight, codes + k, 8);
      } else if (k < tiles.in) {
        std::memcpy(eight, codes + k, static_cast<std::size_t>(tiles.in - k));
      }
      detail::write_bundle(4, eight, line);
    }
  }
}

/// The tile layout for a GGUF block type, without extents, with codes of four or eight bits: reading them needs at most
/// a shift by half a byte.
constexpr CodeTiles code_tiles_of(DType type) {
  const auto tiles = [](int bits, int block, int span, CodeOffset offset, int zero) {
    return CodeTiles{.bits = bits, .block = block, .span = span, .offset = offset, .zero = zero};
  };
  const auto with_floats = [](CodeTiles layout) {  // scales that are not always exact in F16
    layout.half_scales = false;
    return layout;
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
    case DType::iq4_xs: return tiles(8, 32, 256, constant, 128);
    case DType::iq3_s: return tiles(8, 32, 256, constant, 16);
    case DType::tq1_0:
    case DType::tq2_0: return tiles(4, 32, 256, constant, 8);
    case DType::iq3_xxs: return with_floats(tiles(8, 32, 256, constant, 32));
    case DType::iq2_xxs: return with_floats(tiles(8, 32, 256, constant, 128));
    case DType::iq2_xs:
    case DType::iq2_s: return with_floats(tiles(8, 16, 256, constant, 128));
    case DType::iq1_s: return with_floats(tiles(8, 32, 256, constant, 16));
    case DType::iq1_m: return with_floats(tiles(8, 16, 256, constant, 16));
    case DType::mxfp4: return with_floats(tiles(8, 32, 0, constant, 16));
    default: return {};
  }
}

/// The narrowest tile layout that CPU kernels unpack: five and six bits for types that have them, six for types with
/// fewer than four.
constexpr CodeTiles narrow_code_tiles_of(DType type) {
  CodeTiles tiles = code_tiles_of(type);
  switch (type) {
    case DType::q5_0:
    case DType::q5_1:
    case DType::q5_k:
    case DType::iq3_s:
    case DType::iq1_s:
    case DType::mxfp4: tiles.bits = 5; break;
    case DType::q2_k:
    case DType::q3_k:
    case DType::q6_k:
    case DType::iq1_m: tiles.bits = 6; break;
    default: break;
  }
  return tiles;
}

namespace detail {

/// Writes the codes of adjacent outputs, line by line.   codes [count][256], word: the first output's first word
template <int Bits>
void write_bundles(const std::byte* codes, std::int64_t count, std::int64_t values, std::byte* word) {
  constexpr int inputs = CodeTiles::bundle_inputs(Bits), lines = CodeTiles::bundle_lines(Bits);
  for (std::int64_t k = 0; k < values; k += inputs, word += lines * CodeTiles::line_bytes) {
    for (std::int64_t n = 0; n < count; ++n) write_bundle(Bits, codes + 256 * n + k, word + 4 * n);
  }
}

/// Writes outputs of a block-format matrix that are in one tile.
inline void write_block_lanes(const CodeTiles& tiles, std::byte* bytes, std::int64_t row, const Tensor& from,
                              std::int64_t from_row, std::int64_t rows) {
  std::byte* const tile = bytes + row / tiles.height * tiles.tile_bytes();
  const std::int64_t first_lane = row % tiles.height, values = values_of_block(from.dtype), count = tiles.in / values;
  const std::int64_t groups = values / tiles.block;
  std::byte* const lines = tile + tiles.lines_offset() + first_lane * 4;
  std::byte codes[CodeTiles::height][256];
  GgufBlock block;
  const auto write_scales = [&](std::int64_t s, std::int64_t lane) {
    const std::int64_t at = s * tiles.height + lane;
    if (tiles.half_scales) {
      const half_t scale = from_float<half_t>(block.scale);
      std::memcpy(tile + at * 2, &scale, sizeof scale);
    } else {
      std::memcpy(tile + at * 4, &block.scale, sizeof block.scale);
    }
    if (tiles.has_minima()) {
      std::memcpy(tile + tiles.minima_offset() + at * 2, &block.minimum, sizeof block.minimum);
    }
    for (std::int64_t g = 0; tiles.span != 0 && g < groups; ++g) {
      const std::int64_t of_block = (s * groups + g) * tiles.height + lane;
      const auto index = static_cast<std::size_t>(g * tiles.block / block.group);
      tile[tiles.factors_offset() + of_block] = static_cast<std::byte>(block.scale_factors[index]);
      if (!tiles.has_minima()) continue;
      tile[tiles.minimum_factors_offset() + of_block] = static_cast<std::byte>(block.minimum_factors[index]);
    }
  };
  for (std::int64_t s = 0; s < count; ++s) {
    for (std::int64_t n = 0; n < rows; ++n) {
      decode_block(from, (from_row + n) * count + s, block);
      write_scales(s, first_lane + n);
      for (std::size_t i = 0; i < static_cast<std::size_t>(values); ++i) {
        codes[n][i] = static_cast<std::byte>(block.codes[i] + tiles.zero);
      }
    }
    std::byte* const to = lines + s * groups * tiles.block_bytes();
    switch (tiles.bits) {
      case 4: write_bundles<4>(codes[0], rows, values, to); break;
      case 5: write_bundles<5>(codes[0], rows, values, to); break;
      case 6: write_bundles<6>(codes[0], rows, values, to); break;
      default: write_bundles<8>(codes[0], rows, values, to); break;
    }
  }
}

}  // namespace detail

/// Writes `rows` outputs of a block-format matrix, from `from_row` on, to tiles of its type or with shorter blocks: its
/// first one to output `row`. Throws gguf.non-finite.
inline void write_block_rows(const CodeTiles& tiles, std::byte* bytes, std::int64_t row, const Tensor& from,
                             std::int64_t from_row, std::int64_t rows) {
  for (std::int64_t done = 0, count = 0; done < rows; done += count) {
    count = std::min(rows - done, tiles.height - (row + done) % tiles.height);
    detail::write_block_lanes(tiles, bytes, row + done, from, from_row + done, count);
  }
}

/// Dequantizes one output; exact if the product of code and scale is.   out [in]
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
      out[k] = static_cast<float>(detail::code_of(tiles.bits, word, k) - zero) * scale + minimum;
    }
  }
}

}}
