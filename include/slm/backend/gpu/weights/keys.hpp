// The template axes of all kernels. Every other dimension is an argument. A new axis needs a measured reason, since
// each multiplies compile time and program size.
//
//  weight format     Fp32, Fp16, Bf16, Int4, Int8: how a lane reads weights and converts them to fragments
//
//  form              Vectors, Tiles: few rows (waves divide the depth) or many (waves divide the outputs)
//
//  head dimension    64, 128, 256, 576: registers of attention; a smaller head is padded with zeros
//
//  query tile        16, 32: attention for few rows and for many
//
//  matrix layout     Lane::Matrix: a property of the device, which also determines the wave width
#pragma once

#include "slm/formats/format.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// 4-bit and 8-bit codes in the layout of formats/code_tiles.hpp: AWQ layers and GGUF blocks. Run-time properties:
/// inputs per scale, and zero points, one zero, or minima.
struct Int4 {
  static constexpr std::string_view name = "int4";
};
struct Int8 {
  static constexpr std::string_view name = "int8";
};

/// Rows per block for products of few rows.
inline constexpr int vector_rows = 8;

/// Positions per step of attention. Every split of a sequence is at a multiple of it.
inline constexpr int chunk = 64;

/// Dimensions of the widest heads of attention, those of latents of 512 numbers and rotated keys of 64.
inline constexpr int most_head_dim = 576;

/// How a format is computed.
///  Element     of the matrix unit
///  w_terms, x_terms   number of elements whose sum represents a float: three bfloat16 hold all its bits
///  chunk_steps        steps of 32 inputs that are loaded together
///  tile_rows          rows per block in the form Tiles
///  line_words         words per output and eight inputs, for float weights
///  code_bits          bits per weight; 0: floating point
///  least_block        minimum inputs per scale
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
