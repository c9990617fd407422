// Percent-encoding of URIs (RFC 3986).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace serve {

/// The value of a hexadecimal digit; -1 for other bytes.
inline int hex_value(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

/// Decodes each %XX once. Returns nothing if a % is not followed by two hexadecimal digits.
inline std::optional<std::string> unescaped(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace serve
