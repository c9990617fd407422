// Fragments of 16-bit elements from tiles in shared memory, whose rows lie `row_words` words apart. A lane finds once
// where it reads in the first tile, and others by their distance in words. The three kinds name the elements along the
// depth alike, so that products of what they load are right. This is how lanes do it that know nothing better; NVIDIA's
// has instructions for it, and for copies to shared memory.
#pragma once

#include <cstdint>

#include "slm/backend/gpu/lane/lane.hpp"
#include "slm/backend/gpu/lane/mma_layout.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// 16 bytes on their way from device to shared memory, in registers until there is time to write them.
struct CopyByRegisters {
  Word4 four;

  SLM_DEVICE void begin(std::uint32_t*, const std::uint32_t* from) {
    const Word4 there = *reinterpret_cast<const Word4*>(from);
    SLM_UNROLL
    for (int i = 0; i < 4; ++i) four.word[i] = there.word[i];
  }
  SLM_DEVICE void end(std::uint32_t* to) { *reinterpret_cast<Word4*>(to) = four; }
};

/// A run of elements along the depth, which begins at a multiple of its length or of 16 bytes.
template <class L>
SLM_DEVICE const std::uint32_t* run_at(const std::uint32_t* words) {
  return static_cast<const std::uint32_t*>(__builtin_assume_aligned(words, L::run * 2 < 16 ? L::run * 2 : 16));
}

/// What a lane reads of tiles as operand A: a[row][k] = tile[row][k].
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

/// a[row][k] = tile[k][row].
template <class L>
struct TilesTransposedA {
  const std::uint32_t* first;
  int row_words, upper;  // the row is the upper half of a word

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

/// b[k][column] = tile[column][k].
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
