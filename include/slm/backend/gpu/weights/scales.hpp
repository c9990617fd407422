// Scales and offsets of blocks of codes, loaded from device memory for the sums of products.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Placeholder for scales of floating-point weights.
struct Nothing {};

/// Scales, factors and zero points of four adjacent outputs of a tile for a block, as stored.
struct BlockScales {
  Word4 scales;             // floats; or halves followed by minima
  std::uint32_t factors;    // of the scales; or zero points
  std::uint32_t of_minima;  // factors of minima

  /// output: in the tile, a multiple of four
  SLM_DEVICE void load(const Tiles& tiles, const ConstantMemory<std::uint32_t>& tile, int block, int output) {
    const unsigned at = static_cast<unsigned>(block * tile_height + output);
    if (tiles.plain_scales) {
      halves_at(0, tile, at / 2);
      if (tiles.zeros != 0) factors = tile[tiles.zeros + at / 4];
      return;
    }
    const unsigned of_span = static_cast<unsigned>((block >> tiles.span_shift) * tile_height + output);
    if (tiles.half_scales) {
      halves_at(0, tile, of_span / 2);
    } else {
      scales = *tile.vector<const Word4>(of_span);
    }
    if (tiles.minima != 0) halves_at(2, tile, tiles.minima + of_span / 2);
    const int bytes = tiles.factors + tiles.zeros;  // at most one of them is present
    if (bytes != 0) factors = tile[bytes + at / 4];
    if (tiles.minimum_factors != 0) of_minima = tile[tiles.minimum_factors + at / 4];
  }

  /// The scale and minimum of the four outputs. Products of a half and a factor are exact.
  template <class Lane>
  SLM_DEVICE void floats(const Tiles& tiles, float (&scale)[4], float (&minimum)[4]) const {
    SLM_UNROLL
    for (int i = 0; i < 4; ++i) minimum[i] = 0;
    if (tiles.plain_scales) {
      halves<Lane>(0, scale);
      return;
    }
    if (tiles.half_scales) {
      halves<Lane>(0, scale);
    } else {
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) scale[i] = float_of(scales.word[i]);
    }
    if (tiles.factors != 0) multiply(factors, scale);
    if (tiles.minima != 0) halves<Lane>(2, minimum);
    if (tiles.minimum_factors != 0) multiply(of_minima, minimum);
  }
  /// One byte per output.
  SLM_DEVICE std::uint32_t zero_points(const Tiles& tiles) const {
    return tiles.zeros != 0 ? factors : static_cast<std::uint32_t>(tiles.zero) * 0x01010101u;
  }

 private:
  SLM_DEVICE void halves_at(int word, const ConstantMemory<std::uint32_t>& tile, std::int64_t at) {
    const Word2 two = *tile.vector<const Word2>(at);
    scales.word[word] = two.word[0];
    scales.word[word + 1] = two.word[1];
  }
  template <class Lane>
  SLM_DEVICE void halves(int word, float (&own)[4]) const {
    SLM_UNROLL
    for (int i = 0; i < 4; i += 2) {
      own[i] = Lane::template unpack_low<half_t>(scales.word[word + i / 2]);
      own[i + 1] = Lane::template unpack_high<half_t>(scales.word[word + i / 2]);
    }
  }
  static SLM_DEVICE void multiply(std::uint32_t four, float (&own)[4]) {
    SLM_UNROLL
    for (int i = 0; i < 4; ++i) own[i] *= static_cast<float>(static_cast<std::int8_t>(four >> (8 * i) & 0xffu));
  }
};

/// Scales of several blocks and the places of a panel, in shared memory. Weights are scale * element + offset, so a
/// block's sum is scale * (sum of elements * inputs) + offset * (sum of inputs).
struct WaveScales {
  static constexpr int blocks = 4;      // maximum number
  alignas(16) float of[blocks][32][2];  // scale, offset

  /// Scale and offset of an even place and the next one.
  SLM_DEVICE Word4 two(int block, int place) const { return *reinterpret_cast<const Word4*>(of[block][place]); }
};

/// Prefetched scales: each of 32 lanes has four places of one block.
struct ScalesAhead {
  BlockScales four;
  std::int64_t first;  // offset of the tile

  /// Steps of as many blocks as fit: whole chunks.
  static SLM_DEVICE int steps(const Tiles& tiles) {
    return tiles.block_shift >= 5 ? WaveScales::blocks << (tiles.block_shift - 5) : WaveScales::blocks / 2;
  }

  template <class Lane>
  SLM_DEVICE void begin(Lane lane, const Tiles& tiles, const Panel& panel) {
    const int a = panel.a, b = panel.b;
    const int place = lane.lane_index() / 4 * 4 % 32;
    first = (place < tile_height ? a : b) * tiles.stride;
  }

  /// Loads scales of the blocks of steps step .. end - 1, as many as fit; surplus lanes repeat the last one.
  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, int step, int end) {
    if (step >= end) return;
    const int last = ((end - step) * slice_depth - 1) >> tiles.block_shift, wanted = block(lane);
    four.load(tiles, tiles.words.part(first, tiles.stride),
              (step * slice_depth >> tiles.block_shift) + (wanted < last ? wanted : last), output(lane));
  }

  template <class Format, class Lane>
  SLM_DEVICE void store(Lane lane, const Tiles& tiles, WaveScales& to) const {
    if (lane.lane_index() >= 32) return;
    float scale[4], offset[4];
    four.floats<Lane>(tiles, scale, offset);
    // Int8 elements are relative to their zero; Int4 elements include 128.
    if constexpr (std::is_same_v<Format, Int4>) {
      const std::uint32_t zeros = four.zero_points(tiles);  // below 128: the second byte of -(128 + zero)
      const std::uint32_t minus[] = {
          Lane::template bytes<5, 5, 0, 4>(zeros, 0xc3u), Lane::template bytes<5, 5, 1, 4>(zeros, 0xc3u),
          Lane::template bytes<5, 5, 2, 4>(zeros, 0xc3u), Lane::template bytes<5, 5, 3, 4>(zeros, 0xc3u)};
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) offset[i] = fmaf(float_of(minus[i]), scale[i], offset[i]);
    }
    SLM_UNROLL
    for (int i = 0; i < 4; i += 2) {
      Word4 two;
      SLM_UNROLL
      for (int k = 0; k < 2; ++k) {
        two.word[2 * k] = bits_of(scale[i + k]);
        two.word[2 * k + 1] = bits_of(offset[i + k]);
      }
      *reinterpret_cast<Word4*>(to.of[block(lane)][lane.lane_index() / 16 * 16 + output(lane) + i]) = two;
    }
  }

 private:
  // A lane's block, and the first of its outputs in the tile.
  template <class Lane>
  static SLM_DEVICE int block(Lane lane) {
    return lane.lane_index() / 4 % WaveScales::blocks;
  }
  template <class Lane>
  static SLM_DEVICE int output(Lane lane) {
    return lane.lane_index() % 4 * 4;
  }
};

/// Input k of an output as a float, rounded once if it is a sum.
template <class Format, class Lane>
SLM_DEVICE float dequantized(const Tiles& tiles, int output, int k) {
  constexpr int bits = Compute<Format>::code_bits, depth = 32 / bits;  // inputs per line
  const int tile = output / tile_height, lane = output % tile_height;
  const std::int64_t word = tile * tiles.stride + tiles.lines + k / depth * tile_height + lane;
  const std::uint32_t byte = tiles.words[word] >> (k % 4 * 8);
  const int code = static_cast<int>(bits == 8 ? byte & 0xffu : byte >> (k % 8 / 4 * 4) & 15u);
  BlockScales four;
  four.load(tiles, tiles.words.part(tile * tiles.stride, tiles.stride), k >> tiles.block_shift, lane / 4 * 4);
  float value = 0, scale[4], minimum[4];
  four.floats<Lane>(tiles, scale, minimum);
  SLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int zero = static_cast<int>(four.zero_points(tiles) >> (8 * i) & 0xffu);
    if (lane % 4 == i) value = fmaf(static_cast<float>(code) - static_cast<float>(zero), scale[i], minimum[i]);
  }
  return value;
}

}}}
