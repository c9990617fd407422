// Weights as kernels read them, and how what a lane has read becomes fragments of the matrix unit.
//
// 16 outputs are a tile, one run of memory. It consists of lines, 16 outputs x 8 inputs: 16 runs of 8 inputs, one per
// output (fp32: 32 bytes, fp16 and bf16: 16, int4: 4, see formats/code_tiles.hpp). A step is four lines, 32 inputs. In
// a step a lane of a matrix unit with four groups along the depth takes one line, of one with one group all four, so
// that every lane reads 16 bytes at a time and a wave whole cache lines, on each vendor's unit. Codes of eight bits lie
// in lines of four inputs, of which a lane takes twice as many.
//
// A block multiplies panels: two tiles, `a` and `b`, which are neighbours or belong together (the two halves of a
// rotated head, gate and up).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/weights/keys.hpp"

namespace slm::inline v0_1::gpu {

inline constexpr int tile_height = 16, line_depth = 8, step_depth = 32, step_lines = 4;

/// A weight [out, in] in device memory. Inputs behind `in` are there up to a whole step, as zeros.
struct Tiles {
  ConstantMemory<std::uint32_t> words;
  std::int64_t stride = 0;  // words of a tile
  int out = 0;
  int in = 0;
  int steps = 0;
  // Codes only, see CodeTiles: a tile begins with its scales. Where it has what, in words; 0: it has none.
  int block_shift = 5;       // 1 << block_shift inputs are a block
  int span_shift = 0;        // block >> span_shift is the span whose scale, and minimum, it has a factor of
  bool half_scales = false;  // else fp32
  int minima = 0, factors = 0, minimum_factors = 0, zeros = 0, lines = 0;
  int zero = 0;  // of all codes, where there are no zero points

  SLM_DEVICE int tiles() const { return (out + tile_height - 1) / tile_height; }
};

struct Panel {
  int a = 0, b = 0;    // tiles
  bool has_b = false;  // else b is a, and its results are left
};

/// The panels of a weight: `groups` times some pairs and then the tiles that are left of the group, then the rest.
struct Panels {
  int groups = 0;
  int group_tiles = 0;
  int pairs = 0;  // of a group: tiles t and t + pairs, t < pairs
  int tail = 0;   // first tile behind the groups
  int tiles = 0;

  SLM_DEVICE int of_group() const { return pairs + (group_tiles - 2 * pairs + 1) / 2; }
  SLM_DEVICE int count() const { return groups * of_group() + (tiles - tail + 1) / 2; }

  SLM_DEVICE Panel operator()(int index) const {
    int first = tail, end = tiles, at = index - groups * of_group();
    if (at < 0) {
      const int group = index / of_group();
      at = index % of_group();
      first = group * group_tiles;
      if (at < pairs) return {first + at, first + at + pairs, true};
      at -= pairs;
      first += 2 * pairs;
      end = (group + 1) * group_tiles;
    }
    const int a = first + 2 * at;
    return {a, a + 1 < end ? a + 1 : a, a + 1 < end};
  }
};

/// Place of an output in its panel, 0..31, by fragment `m` and its row. Of codes a lane reads neighbouring outputs at
/// once, which become different fragments.
template <class Format, class L>
SLM_DEVICE constexpr int place_of(int m, int row) {
  if constexpr (in_codes<Format>) {
    constexpr int lanes_of_rows = 16 / L::row_slots;
    return row % lanes_of_rows * (2 * L::row_slots) + m * L::row_slots + row / lanes_of_rows;
  } else {
    return m * tile_height + row;
  }
}

/// Slot of input i of a line among the eight of the staged activations: int4 codes come out as pairs (0, 2), (4, 6),
/// (1, 3), (5, 7).
template <class Format>
SLM_DEVICE constexpr int slot_of(int i) {
  return std::is_same_v<Format, Int4> ? i / 2 + i % 2 * 4 : i;
}

/// What one lane reads of a panel in one step.
template <class Format, class L>
struct StepWeights {
  static constexpr int lines = step_lines / L::k_groups;
  static constexpr int vectors = Compute<Format>::line_words / 4;
  Word4 line[2][L::row_slots][lines][vectors];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step) {
    constexpr int words = Compute<Format>::line_words;
    const int i = lane.lane_index();
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      const std::int64_t tile = (m == 0 ? panel.a : panel.b) * tiles.stride;
      SLM_UNROLL
      for (int s = 0; s < L::row_slots; ++s) {
        SLM_UNROLL
        for (int l = 0; l < lines; ++l) {
          const int at = step * step_lines + (L::k_groups == 1 ? l : L::k_group(i));
          const std::int64_t word = tile + (at * tile_height + L::a_row(i, s)) * words;
          SLM_UNROLL
          for (int v = 0; v < vectors; ++v) {
            line[m][s][l][v] = Lane::load_stream(tiles.words.vector<const Word4>(word + 4 * v));
          }
        }
      }
    }
  }

  /// Fragment m of inputs 16 * half .. of the step, one for each term of a weight.
  template <class Lane>
  SLM_DEVICE void fragments(const Tiles&, int m, int half, FragmentA<L> (&terms)[Compute<Format>::w_terms]) const {
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const int l = L::k_groups == 1 ? 2 * half + pair / 4 : 0;
        const int p = L::k_groups == 1 ? pair % 4 : 2 * half + pair;  // pair of the line
        if constexpr (vectors == 1) {
          terms[0].word[L::a_word(s, pair)] = line[m][s][l][0].word[p];
        } else {
          float low = float_of(line[m][s][l][p / 2].word[p % 2 * 2]);
          float high = float_of(line[m][s][l][p / 2].word[p % 2 * 2 + 1]);
          SLM_UNROLL
          for (int t = 0; t < Compute<Format>::w_terms; ++t) {
            const std::uint32_t word = Lane::template pack2<bfloat16_t>(low, high);
            terms[t].word[L::a_word(s, pair)] = word;
            low -= Lane::template unpack_low<bfloat16_t>(word);
            high -= Lane::template unpack_high<bfloat16_t>(word);
          }
        }
      }
    }
  }
};

/// Neighbouring outputs of a line: four with two rows of a fragment in a lane, else two. `line` is one of 64 bytes.
template <class L>
struct LineOfCodes {
  static constexpr int outputs = 2 * L::row_slots;
  std::uint32_t word[outputs];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int line) {
    const int first = L::a_row(lane.lane_index(), 0) * outputs;  // place in the panel, 0..31
    const std::int64_t tile = (first < tile_height ? panel.a : panel.b) * tiles.stride + tiles.lines;
    const std::int64_t from = tile + line * tile_height + first % tile_height;
    if constexpr (outputs == 4) {
      const Word4 four = Lane::load_stream(tiles.words.vector<const Word4>(from));
      SLM_UNROLL
      for (int w = 0; w < 4; ++w) word[w] = four.word[w];
    } else {
      const Word2 two = Lane::load_stream(tiles.words.vector<const Word2>(from));
      word[0] = two.word[0];
      word[1] = two.word[1];
    }
  }
};

template <class L>
struct StepWeights<Int4, L> {
  static constexpr int lines = step_lines / L::k_groups;
  LineOfCodes<L> line[lines];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step) {
    SLM_UNROLL
    for (int l = 0; l < lines; ++l) {
      const int at = L::k_groups == 1 ? l : L::k_group(lane.lane_index());
      line[l].load(lane, tiles, panel, step * step_lines + at);
    }
  }

  /// Elements are 128 + code, exact in bfloat16; the 128 leaves with the sum of the activations.
  template <class Lane>
  SLM_DEVICE void fragments(const Tiles&, int m, int half, FragmentA<L> (&terms)[1]) const {
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const int l = L::k_groups == 1 ? 2 * half + pair / 4 : 0;
        const int p = L::k_groups == 1 ? pair % 4 : 2 * half + pair;
        const std::uint32_t codes = line[l].word[m * L::row_slots + s];
        terms[0].word[L::a_word(s, pair)] = ((codes >> (4 * p)) & 0x000f000fu) | 0x43004300u;
      }
    }
  }
};

/// Half a step is four lines of four inputs: a block may be as short as that.
template <class L>
struct StepWeights<Int8, L> {
  static constexpr int lines = 4 / L::k_groups;  // of half a step
  LineOfCodes<L> line[2][lines];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step) {
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      SLM_UNROLL
      for (int l = 0; l < lines; ++l) {
        const int at = L::k_groups == 1 ? l : L::k_group(lane.lane_index());
        line[half][l].load(lane, tiles, panel, step * 8 + half * 4 + at);
      }
    }
  }

  /// Elements are code - zero, exact in bfloat16: the difference of two floats of 2^23 and more.
  template <class Lane>
  SLM_DEVICE void fragments(const Tiles& tiles, int m, int half, FragmentA<L> (&terms)[1]) const {
    const float base = float_of(0x4b000000u + static_cast<std::uint32_t>(tiles.zero));
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const std::uint32_t two = line[half][pair / 2].word[m * L::row_slots + s] >> (16 * (pair % 2));
        const float low = float_of((two & 0xffu) | 0x4b000000u) - base;
        const float high = float_of(((two >> 8) & 0xffu) | 0x4b000000u) - base;
        terms[0].word[L::a_word(s, pair)] = bits_of(low) >> 16 | (bits_of(high) & 0xffff0000u);
      }
    }
  }
};

/// What four neighbouring outputs of a tile have for a block beside their codes, as it lies in memory.
struct BlockScales {
  Word4 scales{};             // floats; or halves, with the minima behind them
  std::uint32_t factors{};    // of the scales, or zero points
  std::uint32_t of_minima{};  // factors

  /// output: of the tile, a multiple of four
  SLM_DEVICE void load(const Tiles& tiles, int tile, int block, int output) {
    const std::int64_t first = tile * tiles.stride;
    const std::int64_t at = block * tile_height + output, of_span = (block >> tiles.span_shift) * tile_height + output;
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

  // Of output i of the four. Products of a half and a factor are exact.
  template <class Lane>
  SLM_DEVICE float scale(const Tiles& tiles, int i) const {
    const float own = tiles.half_scales ? half<Lane>(scales.word[i / 2], i) : float_of(scales.word[i]);
    return tiles.factors != 0 ? own * factor(factors, i) : own;
  }
  template <class Lane>
  SLM_DEVICE float minimum(const Tiles& tiles, int i) const {
    const float own = tiles.minima != 0 ? half<Lane>(scales.word[2 + i / 2], i) : 0.0f;
    return tiles.minimum_factors != 0 ? own * factor(of_minima, i) : own;
  }
  SLM_DEVICE float zero(const Tiles& tiles, int i) const {
    return static_cast<float>(tiles.zeros != 0 ? static_cast<int>(factors >> (8 * i) & 0xffu) : tiles.zero);
  }

 private:
  template <class Lane>
  static SLM_DEVICE float half(std::uint32_t two, int i) {
    return i % 2 == 0 ? Lane::template unpack_low<half_t>(two) : Lane::template unpack_high<half_t>(two);
  }
  static SLM_DEVICE float factor(std::uint32_t four, int i) {
    return static_cast<float>(static_cast<std::int8_t>(four >> (8 * i) & 0xffu));
  }
};

/// Of the blocks of a chunk and the places of a panel, in shared memory: weights are scale * element + offset, so that
/// a block's sum is scale * (sum of elements * inputs) + offset * (sum of inputs).
struct WaveScales {
  static constexpr int blocks = 4;  // at most
  alignas(16) float scale[blocks][32];
  alignas(16) float offset[blocks][32];
};

/// The same on its way there: of four places of one block in each of 32 lanes.
struct ChunkScales {
  BlockScales four;

  /// Of the blocks that begin in steps step .. step + steps - 1.
  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step, int steps) {
    const int block = lane.lane_index() / 8, place = lane.lane_index() % 8 * 4;
    four = {};
    if (block >= WaveScales::blocks || block << tiles.block_shift >= steps * step_depth) return;
    four.load(tiles, place < tile_height ? panel.a : panel.b, (step * step_depth >> tiles.block_shift) + block,
              place % tile_height);
  }

  template <class Format, class Lane>
  SLM_DEVICE void store(Lane lane, const Tiles& tiles, WaveScales& to) const {
    const int block = lane.lane_index() / 8, place = lane.lane_index() % 8 * 4;
    if (block >= WaveScales::blocks) return;
    Word4 scale, offset;
    SLM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float s = four.scale<Lane>(tiles, i), minimum = four.minimum<Lane>(tiles, i);
      scale.word[i] = bits_of(s);
      // Elements of Int8 have lost their zero.
      offset.word[i] =
          bits_of(std::is_same_v<Format, Int4> ? fmaf(-(128.0f + four.zero(tiles, i)), s, minimum) : minimum);
    }
    *reinterpret_cast<Word4*>(&to.scale[block][place]) = scale;
    *reinterpret_cast<Word4*>(&to.offset[block][place]) = offset;
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
  float value = 0;
  SLM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (lane % 4 != i) continue;
    value =
        fmaf(static_cast<float>(code) - four.zero(tiles, i), four.scale<Lane>(tiles, i), four.minimum<Lane>(tiles, i));
  }
  return value;
}

}  // namespace slm::gpu
