// Loads fragments of 16-bit elements from tiles in shared memory, with rows `row_words` words apart. A lane computes
// its location in the first tile once, and addresses other tiles by a distance in words. The three kinds label elements
// along the depth alike, so that products are correct. This is the generic version; NVIDIA's lanes use instructions for
// it and for copies to shared memory.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Copies 16 bytes from device to shared memory through registers.
struct CopyByRegisters {
  Word4 four;

  SLM_DEVICE void begin(std::uint32_t*, const std::uint32_t* from) {
    const Word4 there = *reinterpret_cast<const Word4*>(from);
    SLM_UNROLL
    for (int i = 0; i < 4; ++i) four.word[i] = there.word[i];
  }
  SLM_DEVICE void end(std::uint32_t* to) { *reinterpret_cast<Word4*>(to) = four; }
};

/// A run of elements along the depth, aligned to its length or to 16 bytes.
template <class L>
SLM_DEVICE const std::uint32_t* run_at(const std::uint32_t* words) {
  return static_cast<const std::uint32_t*>(__builtin_assume_aligned(words, L::run * 2 < 16 ? L::run * 2 : 16));
}

/// Reads a tile as operand A: a[row][k] = tile[row][k].
template <class L>
struct TilesA {
  const std::uint32_t* first;
  int row_words;

  SLM_DEVICE TilesA(const std::uint32_t* tile, int words, int lane)
      : first(tile + L::a_row(lane, 0) * words + L::k_group(lane) * L::run / 2), row_words(words) {}

  SLM_DEVICE FragmentA<L> load(int distance) const {
    FragmentA<L> a;
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      const std::uint32_t* const run = run_at<L>(first + distance + (L::a_row(0, s) - L::a_row(0, 0)) * row_words);
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) a.word[L::a_word(s, pair)] = run[pair];
    }
    return a;
  }
};

/// Reads a transposed tile as operand A: a[row][k] = tile[k][row].
template <class L>
struct TilesTransposedA {
  const std::uint32_t* first;
  int row_words, upper;  // 1: the row is in the upper half of a word

  SLM_DEVICE TilesTransposedA(const std::uint32_t* tile, int words, int lane)
      : first(tile + L::k_group(lane) * L::run * words + L::a_row(lane, 0) / 2),
        row_words(words),
        upper(L::a_row(lane, 0) % 2) {}

  SLM_DEVICE FragmentA<L> load(int distance) const {
    FragmentA<L> a;
    SLM_UNROLL
    for (int s = 0; s < L::row_slots; ++s) {
      const int slot = (L::a_row(0, s) - L::a_row(0, 0)) / 2;
      SLM_UNROLL
      for (int pair = 0; pair < L::run / 2; ++pair) {
        const char* const low = reinterpret_cast<const char*>(first + distance + slot + 2 * pair * row_words);
        std::uint16_t two[2];
        __builtin_memcpy(&two[0], low + 2 * upper, 2);
        __builtin_memcpy(&two[1], low + 2 * upper + 4 * row_words, 2);
        a.word[L::a_word(s, pair)] = std::uint32_t{two[0]} | std::uint32_t{two[1]} << 16;
      }
    }
    return a;
  }
};

/// Reads a tile as operand B: b[k][column] = tile[column][k].
template <class L>
struct TilesB {
  const std::uint32_t* first;

  SLM_DEVICE TilesB(const std::uint32_t* tile, int words, int lane)
      : first(tile + L::b_column(lane) * words + L::k_group(lane) * L::run / 2) {}

  SLM_DEVICE FragmentB<L> load(int distance) const {
    FragmentB<L> b;
    const std::uint32_t* const run = run_at<L>(first + distance);
    SLM_UNROLL
    for (int pair = 0; pair < L::run / 2; ++pair) b.word[pair] = run[pair];
    return b;
  }
};

}}}
