// Weights as kernels read them, and how what a lane has read becomes fragments of the matrix unit.
//
// 16 outputs are a tile, one run of memory. It consists of lines, 16 outputs x 8 inputs: 16 runs of 8 inputs, one per
// output (fp32: 32 bytes, fp16 and bf16: 16, int4: 4, see formats/code_tiles.hpp). A step is four lines, 32 inputs. In
// a step a lane of a matrix unit with four groups along the depth takes one line, of one with one group all four, so
// that every lane reads 16 bytes at a time and a wave whole cache lines, on each vendor's unit.
//
// A block multiplies panels: two tiles, `a` and `b`, which are neighbours or belong together (the two halves of a
// rotated head, gate and up).
#pragma once

#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"
#include "slm/backend/gpu/weights/keys.hpp"

namespace slm::inline v0_1::gpu {

inline constexpr int tile_height = 16, line_depth = 8, step_depth = 32, step_lines = 4;

/// A weight [out, in] in device memory. Inputs behind `in` are there up to a whole step, as zeros.
struct Tiles {
  Memory<const std::uint32_t> words;
  std::int64_t stride = 0;  // words of a tile
  int out = 0;
  int in = 0;
  int steps = 0;
  // Int4 only: a tile begins with its scales [blocks, 16], then zero points, bytes [blocks, 16], then lines.
  int block_steps = 1;       // steps that share a scale: 1, 2 or 4
  bool half_scales = false;  // else fp32
  int zeros = 0;             // where the zero points begin, in words
  int lines = 0;             // where the lines begin, in words

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

/// Place of an output in its panel, 0..31, by fragment `m` and its row. Int4 lanes read neighbouring outputs at once,
/// which become different fragments.
template <class Format, class L>
SLM_DEVICE constexpr int place_of(int m, int row) {
  if constexpr (std::is_same_v<Format, Int4>) {
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
  SLM_DEVICE void fragments(int m, int half, FragmentA<L> (&terms)[Compute<Format>::w_terms]) const {
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

/// Neighbouring outputs of a line: four with two rows of a fragment in a lane, else two.
template <class L>
struct StepWeights<Int4, L> {
  static constexpr int lines = step_lines / L::k_groups;
  static constexpr int outputs = 2 * L::row_slots;
  std::uint32_t word[lines][outputs];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step) {
    const int i = lane.lane_index();
    const int first = L::a_row(i, 0) * outputs;  // place in the panel, 0..31
    const std::int64_t tile = (first < tile_height ? panel.a : panel.b) * tiles.stride + tiles.lines;
    SLM_UNROLL
    for (int l = 0; l < lines; ++l) {
      const int at = step * step_lines + (L::k_groups == 1 ? l : L::k_group(i));
      const std::int64_t from = tile + at * tile_height + first % tile_height;
      if constexpr (outputs == 4) {
        const Word4 four = Lane::load_stream(tiles.words.vector<const Word4>(from));
        SLM_UNROLL
        for (int w = 0; w < 4; ++w) word[l][w] = four.word[w];
      } else {
        const Word2 two = Lane::load_stream(tiles.words.vector<const Word2>(from));
        word[l][0] = two.word[0];
        word[l][1] = two.word[1];
      }
    }
  }

  /// Elements are 128 + code, exact in bfloat16; the zero point and the 128 leave with the sum of the activations.
  template <class Lane>
  SLM_DEVICE void fragments(int m, int half, FragmentA<L> (&terms)[1]) const {
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const int l = L::k_groups == 1 ? 2 * half + pair / 4 : 0;
        const int p = L::k_groups == 1 ? pair % 4 : 2 * half + pair;
        terms[0].word[L::a_word(s, pair)] = ((word[l][m * L::row_slots + s] >> (4 * p)) & 0x000f000fu) | 0x43004300u;
      }
    }
  }
};

/// The scales and zero points of a panel for the steps of a chunk, spread over the lanes of a wave.
template <class L>
struct ChunkScales {
  static constexpr int blocks = Compute<Int4>::chunk_steps;  // at most, of 32 inputs
  static constexpr int each = blocks * 32 / L::lanes;
  float scale[each], zero[each];

  template <class Lane>
  SLM_DEVICE void load(Lane lane, const Tiles& tiles, const Panel& panel, int step, int steps) {
    const int place = lane.lane_index() % 32;
    const int wanted = steps < Compute<Int4>::chunk_steps ? steps : Compute<Int4>::chunk_steps;
    const std::int64_t tile = (place < tile_height ? panel.a : panel.b) * tiles.stride;
    SLM_UNROLL
    for (int i = 0; i < each; ++i) {
      const int block = lane.lane_index() / 32 + i * (L::lanes / 32);
      scale[i] = zero[i] = 0;
      if (block * tiles.block_steps >= wanted) continue;
      const int at = (step / tiles.block_steps + block) * tile_height + place % tile_height;
      if (tiles.half_scales) {
        const std::uint32_t two = tiles.words[tile + at / 2];
        scale[i] = at % 2 == 0 ? Lane::template unpack_low<half_t>(two) : Lane::template unpack_high<half_t>(two);
      } else {
        scale[i] = float_of(tiles.words[tile + at]);
      }
      zero[i] = 128.0f + static_cast<float>((tiles.words[tile + tiles.zeros + at / 4] >> (at % 4 * 8)) & 0xffu);
    }
  }

  /// to: [blocks][32] of the wave
  template <class Lane>
  SLM_DEVICE void store(Lane lane, float (&scales)[blocks][32], float (&zeros)[blocks][32]) const {
    SLM_UNROLL
    for (int i = 0; i < each; ++i) {
      const int block = lane.lane_index() / 32 + i * (L::lanes / 32);
      scales[block][lane.lane_index() % 32] = scale[i];
      zeros[block][lane.lane_index() % 32] = zero[i];
    }
  }
};

}  // namespace slm::gpu
