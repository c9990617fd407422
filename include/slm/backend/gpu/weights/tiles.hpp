// Weight layout for kernels, and its conversion to fragments of the matrix unit.
//
// A tile is 16 outputs, contiguous in memory. It consists of lines of 16 outputs x 8 inputs: 16 runs of 8 inputs, one
// per output (fp32: 32 bytes, fp16 and bf16: 16, int4: 4, see formats/code_tiles.hpp). A step is four lines, 32 inputs.
// Per step, a lane of a matrix unit with four groups along the depth takes one line; with one group, all four. Thus
// every lane reads 16 bytes at a time and a wave whole cache lines, on each vendor's unit. 8-bit codes have lines of
// four inputs, of which a lane takes twice as many.
//
// A block multiplies panels of two tiles, `a` and `b`, which are adjacent or belong together (the halves of a rotated
// head, gate and up).
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/weights/keys.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

inline constexpr int tile_height = 16, line_depth = 8, slice_depth = 32, step_lines = 4;

/// A weight [out, in] in device memory. Inputs after `in` are padded with zeros to a whole step.
struct Tiles {
  ConstantMemory<std::uint32_t> words;
  std::int64_t stride = 0;  // words per tile
  int out = 0;
  int in = 0;
  int steps = 0;
  // Codes only, see CodeTiles: a tile begins with its scales. Offsets in words; 0: absent.
  int block_shift = 5;  // 1 << block_shift inputs per block
  int span_shift = 0;   // block >> span_shift is the span that has a scale and minimum; the block has a factor of them
  bool half_scales = false;   // otherwise fp32
  bool plain_scales = false;  // halves, one per block, without minima
  int minima = 0, factors = 0, minimum_factors = 0, zeros = 0, lines = 0;
  int zero = 0;  // zero of all codes if there are no zero points

  SLM_DEVICE int tiles() const { return (out + tile_height - 1) / tile_height; }

  /// Whether the words have the same meaning.
  bool has_layout_of(const Tiles& other) const {
    const auto numbers = [](const Tiles& t) {
      return std::tuple(t.words.size, t.stride, t.out, t.in, t.steps, t.block_shift, t.span_shift, t.half_scales,
                        t.plain_scales, t.minima, t.factors, t.minimum_factors, t.zeros, t.lines, t.zero);
    };
    return numbers(*this) == numbers(other);
  }
};

/// A matrix of an expert, whose layout is that of others.
struct ExpertWeight {
  ConstantMemory<std::uint32_t> words;
  Memory<const float> bias;  // may be empty
  int layout;
};

struct Panel {
  int a = 0, b = 0;    // tiles
  bool has_b = false;  // false: b equals a, and its results are dropped
};

/// The panels of a weight: for each of `groups` groups its pairs, then its remaining tiles; finally the tail.
struct Panels {
  int groups = 0;
  int group_tiles = 0;
  int pairs = 0;  // pairs per group: tiles t and t + pairs, t < pairs
  int tail = 0;   // first tile after the groups
  int tiles = 0;

  SLM_DEVICE int of_group() const { return pairs + halved(group_tiles - 2 * pairs); }
  SLM_DEVICE int count() const { return groups * of_group() + halved(tiles - tail); }

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

 private:
  static SLM_DEVICE int halved(int tiles) { return static_cast<int>((static_cast<unsigned>(tiles) + 1) / 2); }
};

/// Place of an output in its panel, 0..31, from fragment `m` and row. For codes, a lane reads adjacent outputs at once,
/// which go to different fragments.
template <class Format, class L>
SLM_DEVICE constexpr int place_of(int m, int row) {
  if constexpr (in_codes<Format>) {
    constexpr int lanes_of_rows = 16 / L::row_slots;
    return row % lanes_of_rows * (2 * L::row_slots) + m * L::row_slots + row / lanes_of_rows;
  } else {
    return m * tile_height + row;
  }
}

/// Slot of input i of a line among the eight staged activations: int4 codes unpack as pairs (0, 2), (4, 6), (1, 3), (5,
/// 7).
template <class Format>
SLM_DEVICE constexpr int slot_of(int i) {
  return std::is_same_v<Format, Int4> ? i / 2 + i % 2 * 4 : i;
}

/// One lane's part of a panel in one step. Place: location of the lane's words of the first step, computed once.
template <class Format, class L>
struct StepWeights {
  static constexpr int lines = step_lines / L::k_groups, words = Compute<Format>::line_words;
  static constexpr int vectors = words / 4;
  Word4 line[2][L::row_slots][lines][vectors];

  struct Place {
    std::int64_t word[2];

    SLM_DEVICE Place(int lane, const Tiles& tiles, const Panel& panel) {
      const int first = (L::k_group(lane) * tile_height + L::a_row(lane, 0)) * words;
      word[0] = panel.a * tiles.stride + first;
      word[1] = panel.b * tiles.stride + first;
    }
    template <class Lane>
    SLM_DEVICE void keep() {
      for (std::int64_t& one : word) one = Lane::keep(one);
    }
  };

  /// Loads step at + s.
  template <class Lane>
  SLM_DEVICE void load(const Tiles& tiles, const Place& place, int at, int s) {
    constexpr int step_words = step_lines * tile_height * words;
    SLM_UNROLL
    for (int m = 0; m < 2; ++m) {
      const std::int64_t from = place.word[m] + std::int64_t{at} * step_words + s * step_words;
      SLM_UNROLL
      for (int slot = 0; slot < L::row_slots; ++slot) {
        SLM_UNROLL
        for (int l = 0; l < lines; ++l) {
          const std::int64_t word = from + (l * tile_height + L::a_row(0, slot) - L::a_row(0, 0)) * words;
          SLM_UNROLL
          for (int v = 0; v < vectors; ++v) {
            line[m][slot][l][v] = Lane::load_stream(tiles.words.vector<const Word4>(word + 4 * v));
          }
        }
      }
    }
  }

  /// Fragment m of inputs 16 * half .. of the step, one per term of a weight.
  template <class Lane>
  SLM_DEVICE void fragments(const Tiles&, int m, int half, FragmentA<L> (&terms)[Compute<Format>::w_terms]) const {
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const int l = L::k_groups == 1 ? 2 * half + pair / 4 : 0;
        const int p = L::k_groups == 1 ? pair % 4 : 2 * half + pair;  // pair in the line
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

/// Adjacent outputs of a 64-byte line: four if a lane has two rows of a fragment, else two.
template <class L>
struct LineOfCodes {
  static constexpr int outputs = 2 * L::row_slots;
  std::uint32_t word[outputs];

  struct Place {
    std::int64_t word;

    SLM_DEVICE Place(int lane, const Tiles& tiles, const Panel& panel) {
      const int first = L::a_row(lane, 0) * outputs, a = panel.a, b = panel.b;  // first: place in the panel, 0..31
      word = (first < tile_height ? a : b) * tiles.stride + tiles.lines + first % tile_height +
             L::k_group(lane) * tile_height;
    }
    template <class Lane>
    SLM_DEVICE void keep() {
      word = Lane::keep(word);
    }
  };

  /// Loads line `line` after `at`, of the lines that the lane reads of a tile.
  template <class Lane>
  SLM_DEVICE void load(const Tiles& tiles, const Place& place, int at, int line) {
    const std::int64_t from = place.word + std::int64_t{at} * tile_height + line * tile_height;
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
  using Place = typename LineOfCodes<L>::Place;
  LineOfCodes<L> line[lines];

  template <class Lane>
  SLM_DEVICE void load(const Tiles& tiles, const Place& place, int at, int s) {
    SLM_UNROLL
    for (int l = 0; l < lines; ++l) line[l].template load<Lane>(tiles, place, at * step_lines, s * step_lines + l);
  }

  /// Elements are 128 + code, exact in bfloat16; the 128 is subtracted with the sum of the activations.
  template <class Lane>
  SLM_DEVICE void fragments(const Tiles&, int m, int half, FragmentA<L> (&terms)[1]) const {
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const int l = L::k_groups == 1 ? 2 * half + pair / 4 : 0;
        const int p = L::k_groups == 1 ? pair % 4 : 2 * half + pair;
        const std::uint32_t codes = line[l].word[m * L::row_slots + s];
        terms[0].word[L::a_word(s, pair)] = Lane::put_bits(codes >> (4 * p), 0x000f000fu, 0x43004300u);
      }
    }
  }
};

/// A half-step is four lines of four inputs, the minimum length of a block.
template <class L>
struct StepWeights<Int8, L> {
  static constexpr int lines = 4 / L::k_groups;  // per half-step
  using Place = typename LineOfCodes<L>::Place;
  LineOfCodes<L> line[2][lines];

  template <class Lane>
  SLM_DEVICE void load(const Tiles& tiles, const Place& place, int at, int s) {
    SLM_UNROLL
    for (int half = 0; half < 2; ++half) {
      SLM_UNROLL
      for (int l = 0; l < lines; ++l) line[half][l].template load<Lane>(tiles, place, at * 8, s * 8 + half * 4 + l);
    }
  }

  /// Elements are code - zero, exact in bfloat16, from the difference of two floats above 2^23.
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

}}}
