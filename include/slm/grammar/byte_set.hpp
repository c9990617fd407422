// ByteSet: a set of bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  static ByteSet range(unsigned first, unsigned last) {
    ByteSet set;
    for (unsigned byte = first; byte <= last; ++byte) set.add(byte);
    return set;
  }

  void add(unsigned byte) { words[byte >> 6] |= std::uint64_t{1} << (byte & 63); }
  bool has(unsigned byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }

  int size() const {
    int bytes = 0;
    for (const std::uint64_t word : words) bytes += std::popcount(word);
    return bytes;
  }

  ByteSet& operator|=(const ByteSet& other) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
    return *this;
  }
  ByteSet& operator&=(const ByteSet& other) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] &= other.words[i];
    return *this;
  }
  bool operator==(const ByteSet&) const = default;
};

}}}
