// GPT-2's alphabet: one printable character per byte.
#pragma once

#include <array>
#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace byte_level {

struct Alphabet {
  std::array<char32_t, 256> character{};  // of each byte
  std::array<std::int16_t, 324> byte{};   // of each character, -1: none
};

/// Printable bytes are their own characters; the 68 others follow from U+0100 on, in order.
inline constexpr Alphabet alphabet = [] {
  Alphabet made;
  made.byte.fill(-1);
  char32_t next = 0x100;
  for (char32_t value = 0; value < 256; ++value) {
    const bool printable = (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value != 0xAD);
    const char32_t character = printable ? value : next++;
    made.character[value] = character;
    made.byte[character] = static_cast<std::int16_t>(value);
  }
  return made;
}();

}}}
