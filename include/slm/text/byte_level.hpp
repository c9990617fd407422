// Texts in GPT-2's alphabet: to bytes and back.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/core/byte_alphabet.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace byte_level {

/// Appends the bytes as characters of the alphabet, which take one or two bytes.
inline void append_characters(std::string& out, std::string_view bytes) {
  const std::size_t begin = out.size();
  out.resize(begin + 2 * bytes.size());
  char* to = out.data() + begin;
  for (const char byte : bytes) {
    const char32_t character = alphabet.character[static_cast<unsigned char>(byte)];
    if (character < 0x80) {
      *to++ = static_cast<char>(character);
    } else {
      *to++ = static_cast<char>(static_cast<unsigned char>(0xC0 | character >> 6));
      *to++ = static_cast<char>(static_cast<unsigned char>(0x80 | (character & 0x3F)));
    }
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
}

/// Appends the bytes that a token's characters stand for, or the token itself if any is not of the alphabet.
inline void append_bytes(std::string& out, std::string_view token) {
  const std::size_t before = out.size();
  for (std::size_t position = 0; position < token.size();) {
    const char32_t character = utf8::next(token, position);
    if (character >= alphabet.byte.size() || alphabet.byte[character] < 0) {
      out.resize(before);
      out += token;
      return;
    }
    out.push_back(static_cast<char>(static_cast<unsigned char>(alphabet.byte[character])));
  }
}

}}}
