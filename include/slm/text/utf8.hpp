// UTF-8: reading characters, checking outside bytes, and the replacement of what is not UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace utf8 {

/// U+FFFD, written where bytes are not UTF-8.
inline constexpr std::string_view replacement = "\xEF\xBF\xBD";

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) == 0x80u; }

/// The code point at `position`, which moves behind it. The text must be valid UTF-8.
inline char32_t next(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t offset) { return char32_t{static_cast<unsigned char>(text[position + offset])}; };
  const char32_t lead = byte(0);
  char32_t code = lead;
  std::size_t length = 1;
  if (lead >= 0xF0) {
    code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  } else if (lead >= 0xE0) {
    code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else if (lead >= 0xC0) {
    code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  }
  position += length;
  return code;
}

/// The code point that starts at `position`.
inline char32_t at(std::string_view text, std::size_t position) { return next(text, position); }

/// Where the character before `position` starts; position > 0.
inline std::size_t before(std::string_view text, std::size_t position) {
  do --position;
  while (position > 0 && is_continuation(text[position]));
  return position;
}

inline void append(std::string& text, char32_t code) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

/// The beginning of untrusted bytes.
struct Sequence {
  enum Kind { whole, partial, invalid } kind;
  std::size_t length;  // bytes of the character, of its beginning (partial), or to be replaced by one U+FFFD (invalid)
};

/// Looks at the first character of `bytes`, which are not empty. `partial`: the bytes end inside a character that could
/// still become valid. `invalid` spans the maximal subpart, so replacing agrees with WHATWG, Rust and Python.
inline Sequence examine(std::string_view bytes) {
  const unsigned lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {Sequence::whole, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Sequence::invalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80, high = 0xBF;  // the second byte is bounded tighter: no overlong forms, surrogates or > U+10FFFF
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Sequence::partial, i};
    const unsigned byte = static_cast<unsigned char>(bytes[i]);
    if (byte < low || byte > high) return {Sequence::invalid, i};
    low = 0x80, high = 0xBF;
  }
  return {Sequence::whole, length};
}

/// Whether the eight bytes from `position` on are there and are ASCII.
inline bool are_ascii(std::string_view bytes, std::size_t position) {
  std::uint64_t word;
  if (position + sizeof word > bytes.size()) return false;
  std::memcpy(&word, bytes.data() + position, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

/// Length of the longest prefix that is valid UTF-8 (whole characters only).
inline std::size_t valid_prefix(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    if (are_ascii(bytes, position)) {
      position += 8;
      continue;
    }
    const Sequence sequence = examine(bytes.substr(position));
    if (sequence.kind != Sequence::whole) return position;
    position += sequence.length;
  }
  return position;
}

inline bool is_valid(std::string_view bytes) { return valid_prefix(bytes) == bytes.size(); }

/// Appends `bytes` with everything that is not UTF-8 replaced. Returns how many bytes were used: all of them, or with
/// keep_partial all but an unfinished character at the end.
inline std::size_t append_lossy(std::string& out, std::string_view bytes, bool keep_partial = false) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    const std::size_t good = valid_prefix(bytes.substr(position));
    out.append(bytes, position, good);
    position += good;
    if (position == bytes.size()) break;
    const Sequence bad = examine(bytes.substr(position));
    if (bad.kind == Sequence::partial && keep_partial) break;
    out += replacement;
    position += bad.length;
  }
  return position;
}

/// Number of characters of a valid text.
inline std::size_t count(std::string_view text) {
  std::size_t characters = 0;
  for (std::size_t position = 0; position < text.size();) {
    if (are_ascii(text, position)) {
      characters += 8;
      position += 8;
    } else {
      characters += !is_continuation(text[position++]);
    }
  }
  return characters;
}

}}}
