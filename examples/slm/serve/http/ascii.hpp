// Case-insensitive ASCII comparison, as in HTTP.
#pragma once

#include <string>
#include <string_view>

namespace serve {

inline char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte; }

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& byte : result) byte = lower(byte);
  return result;
}

/// Whether the text begins with this word, which must be lower case.
inline bool begins_with_word(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && lower(text.substr(0, word.size())) == word;
}

}  // namespace serve
