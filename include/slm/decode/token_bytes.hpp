// The bytes that token texts stand for, in vocabularies of byte-level BPE and of SentencePiece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/byte_alphabet.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct TokenBytes {
  std::string bytes;         // inside a text; empty: none
  bool is_fallback = false;  // <0x41>: a byte that other tokens may stand for too
};

/// The bytes of a token of byte-level BPE: one for each character. The token itself if it has other characters, as the
/// names of added tokens do.
inline std::string byte_level_bytes(const std::string& token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size();) {
    const auto lead = static_cast<unsigned char>(token[i++]);
    std::size_t character = lead;
    if (lead >= 0x80) {  // every character of the alphabet takes one or two bytes
      const auto next = i < token.size() ? static_cast<unsigned char>(token[i++]) : 0u;
      if (lead < 0xC2 || lead > 0xDF || (next & 0xC0) != 0x80) return token;
      character = (lead & 0x1Fu) << 6 | (next & 0x3Fu);
    }
    if (character >= byte_level::alphabet.byte.size() || byte_level::alphabet.byte[character] < 0) return token;
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(byte_level::alphabet.byte[character])));
  }
  return bytes;
}

/// The bytes of a token of SentencePiece.
inline TokenBytes sentencepiece_bytes(std::string_view token) {
  constexpr std::string_view space = "\xE2\x96\x81", digits = "0123456789ABCDEF";
  if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>') {
    const std::size_t high = digits.find(token[3]), low = digits.find(token[4]);
    if (high != digits.npos && low != digits.npos) {
      return {std::string(1, static_cast<char>(static_cast<unsigned char>(high * 16 + low))), true};
    }
  }
  TokenBytes found;
  while (!token.empty()) {
    const bool is_space = token.starts_with(space);
    found.bytes.push_back(is_space ? ' ' : token.front());
    token.remove_prefix(is_space ? space.size() : 1);
  }
  return found;
}

/// The bytes of the tokens of a vocabulary. A vocabulary with a token for U+2581 alone is SentencePiece's; one with the
/// byte-level character of a space is byte-level BPE's; texts of others are their bytes.
inline std::vector<TokenBytes> bytes_of_tokens(const std::vector<std::string>& tokens) {
  const auto has = [&](std::string_view token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  const bool is_sentencepiece = has("\xE2\x96\x81"), is_byte_level = !is_sentencepiece && has("\xC4\xA0");
  std::vector<TokenBytes> all;
  all.reserve(tokens.size());
  for (const std::string& token : tokens) {
    all.push_back(is_sentencepiece ? sentencepiece_bytes(token)
                                   : TokenBytes{is_byte_level ? byte_level_bytes(token) : token});
  }
  return all;
}

}}}
