// The axes on which kernels are templates, all of them. Every other dimension is an argument. A new axis needs a
// measured reason: each one multiplies compile time and the size of a program.
//
//   weight format     Fp32, Fp16, Bf16, Int4, Int8: what a lane reads, and how it becomes a fragment
//
//   form              Vectors, Tiles: few rows (waves share out the depth) or many (they share out outputs)
//
//   head dimension    64, 128, 256: registers of attention; a smaller head is padded with zeros
//
//   query tile        16, 32: attention for few rows and for many
//
//   matrix layout     Lane::Matrix: a fact of the device, with it the wave width
#pragma once

#include "slm/formats/format.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Codes of four and of eight bits in the order of formats/code_tiles.hpp: AWQ's layers and GGUF's blocks. How many
/// inputs share a scale, and whether there are zero points, one zero for all, or minima, is said at run time.
struct Int4 {
  static constexpr std::string_view name = "int4";
};
struct Int8 {
  static constexpr std::string_view name = "int8";
};

/// Rows of one block of the two forms of a product.
inline constexpr int vector_rows = 8;

/// Positions of one step of attention. Every split of a sequence lies at a multiple of it, whoever computes it.
inline constexpr int chunk = 64;

/// How a format is computed.
///   Element     of the matrix unit
///   w_terms, x_terms   a float is the sum of that many elements: three bfloat16 hold all its bits
///   chunk_steps        steps of 32 inputs that are loaded together
///   tile_rows          rows of a block in the form Tiles
///   line_words         of eight inputs of an output, where weights are floats
///   code_bits          of a weight; 0: it is a float
///   least_block        inputs that share a scale, at least
template <class Format>
struct Compute;

template <>
struct Compute<Fp32> {
  using Element = bfloat16_t;
  static constexpr int w_terms = 3, x_terms = 3, chunk_steps = 1, tile_rows = 16, line_words = 8, code_bits = 0;
};
template <>
struct Compute<Fp16> {
  using Element = half_t;
  static constexpr int w_terms = 1, x_terms = 1, chunk_steps = 2, tile_rows = 64, line_words = 4, code_bits = 0;
};
template <>
struct Compute<Bf16> {
  using Element = bfloat16_t;
  static constexpr int w_terms = 1, x_terms = 1, chunk_steps = 2, tile_rows = 64, line_words = 4, code_bits = 0;
};
template <>
struct Compute<Int4> {
  using Element = bfloat16_t;
  static constexpr int w_terms = 1, x_terms = 1, chunk_steps = 4, tile_rows = 64, code_bits = 4, least_block = 32;
};
template <>
struct Compute<Int8> {
  using Element = bfloat16_t;
  static constexpr int w_terms = 1, x_terms = 1, chunk_steps = 2, tile_rows = 64, code_bits = 8, least_block = 16;
};

template <class Format>
inline constexpr bool in_codes = Compute<Format>::code_bits != 0;

}}}
