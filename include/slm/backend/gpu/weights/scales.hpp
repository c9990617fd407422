// What codes are multiplied by: scales and offsets of blocks, on their way from device memory to the sums of products.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"

namespace slm::inline v0_1::gpu {

/// What four neighbouring outputs of a tile have for a block beside their codes, as it lies in memory.
struct BlockScales {
  Word4 scales{};             // floats; or halves, with the minima behind them
  std::uint32_t factors{};    // of the scales, or zero points
  std::uint32_t of_minima{};  // factors

  /// output: of the tile, a multiple of four
  SLM_DEVICE void load(const Tiles& tiles, int tile, int block, int output) {
    const std::int64_t first = tile * tiles.stride;
    const unsigned at = static_cast<unsigned>(block * tile_height + output);
    const unsigned of_span = static_cast<unsigned>((block >> tiles.span_shift) * tile_height + output);
    if (tiles.half_scales) {
      const Word2 two = *tiles.words.vector<const Word2>(first + of_span / 2);
      scales.word[0] = two.word[0];
      scales.word[1] = two.word[1];
    } else {
      scales = *tiles.words.vector<const Word4>(first + of_span);
    }
    if (tiles.minima != 0) {
      const Word2 two = *tiles.words.vector<const Word2>(first + tiles.minima + of_span / 2);
      scales.word[2] = two.word[0];
      scales.word[3] = two.word[1];
    }
    const int bytes = tiles.factors + tiles.zeros;  // one of them is not there
    if (bytes != 0) factors = tiles.words[first + bytes + at / 4];
    if (tiles.minimum_factors != 0) of_minima = tiles.words[first + tiles.minimum_factors + at / 4];
  }

  // Of the four outputs. Products of a half and a factor are exact.
  template <class Lane>
  SLM_DEVICE void scale(const Tiles& tiles, float (&own)[4]) const {
    if (tiles.half_scales) {
      halves<Lane>(0, own);
    } else {
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) own[i] = float_of(scales.word[i]);
    }
    if (tiles.factors != 0) multiply(factors, own);
  }
  template <class Lane>
  SLM_DEVICE void minimum(const Tiles& tiles, float (&own)[4]) const {
    if (tiles.minima == 0) {
      SLM_UNROLL
      for (int i = 0; i < 4; ++i) own[i] = 0;
      return;
    }
    halves<Lane>(2, own);
    if (tiles.minimum_factors != 0) multiply(of_minima, own);
  }
  SLM_DEVICE float zero(const Tiles& tiles, int i) const {
    return static_cast<float>(tiles.zeros != 0 ? factors >> (8 * i) & 0xffu : static_cast<std::uint32_t>(tiles.zero));
  }

 private:
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

/// Of some blocks and the places of a panel, in shared memory: weights are scale * element + offset, so that a block's
/// sum is scale * (sum of elements * inputs) + offset * (sum of inputs).
struct WaveScales {
  static constexpr int blocks = 4;      // at most
  alignas(16) float of[blocks][32][2];  // scale, offset

  /// Of a place, an even one, and the next.
  SLM_DEVICE Word4 two(int block, int place) const { return *reinterpret_cast<const Word4*>(of[block][place]); }
};

/// The same on its way there: of four places of one block in each of 32 lanes.
struct ScalesAhead {
  BlockScales four;
  int tile;

  /// Steps of as many blocks as there is room for: whole chunks.
  static SLM_DEVICE int steps(const Tiles& tiles) { return (WaveScales::blocks << tiles.block_shift) / step_depth; }

  template <class Lane>
  SLM_DEVICE void begin(Lane lane, const Panel& panel) {
    four = {};
    const int a = panel.a, b = panel.b;
    tile = lane.lane_index() % 8 * 4 < tile_height ? a : b;
  }

  /// Of the blocks of steps step .. end - 1, or as many as there is room for.
  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, int step, int end) {
    const int block = lane.lane_index() / 8;
    if (block >= WaveScales::blocks || block << tiles.block_shift >= (end - step) * step_depth) return;
    four.load(tiles, tile, (step * step_depth >> tiles.block_shift) + block, lane.lane_index() % 8 * 4 % tile_height);
  }

  template <class Format, class Lane>
  SLM_DEVICE void store(Lane lane, const Tiles& tiles, WaveScales& to) const {
    const int block = lane.lane_index() / 8, place = lane.lane_index() % 8 * 4;
    if (block >= WaveScales::blocks) return;
    float scale[4], offset[4];
    four.scale<Lane>(tiles, scale);
    four.minimum<Lane>(tiles, offset);
    SLM_UNROLL
    for (int i = 0; i < 4; i += 2) {
      Word4 two;
      SLM_UNROLL
      for (int k = 0; k < 2; ++k) {
        // Elements of Int8 have lost their zero.
        if constexpr (std::is_same_v<Format, Int4>) {
          offset[i + k] = fmaf(-(128.0f + four.zero(tiles, i + k)), scale[i + k], offset[i + k]);
        }
        two.word[2 * k] = bits_of(scale[i + k]);
        two.word[2 * k + 1] = bits_of(offset[i + k]);
      }
      *reinterpret_cast<Word4*>(to.of[block][place + i]) = two;
    }
  }
};

/// Input k of an output as a float, rounded once where it is a sum.
template <class Format, class Lane>
SLM_DEVICE float dequantized(const Tiles& tiles, int output, int k) {
  constexpr int bits = Compute<Format>::code_bits, depth = 32 / bits;  // inputs of a line
  const int tile = output / tile_height, lane = output % tile_height;
  const std::int64_t word = tile * tiles.stride + tiles.lines + k / depth * tile_height + lane;
  const std::uint32_t byte = tiles.words[word] >> (k % 4 * 8);
  const int code = static_cast<int>(bits == 8 ? byte & 0xffu : byte >> (k % 8 / 4 * 4) & 15u);
  BlockScales four;
  four.load(tiles, tile, k >> tiles.block_shift, lane / 4 * 4);
  float value = 0, scale[4], minimum[4];
  four.scale<Lane>(tiles, scale);
  four.minimum<Lane>(tiles, minimum);
  SLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (lane % 4 == i) value = fmaf(static_cast<float>(code) - four.zero(tiles, i), scale[i], minimum[i]);
  }
  return value;
}

}  // namespace slm::gpu
