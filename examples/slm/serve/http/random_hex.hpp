// Unpredictable identifiers.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace serve {

/// 32 digits from the system's random source.
inline std::string random_hex() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::random_device source;
  std::string hex;
  for (int i = 0; i < 4; ++i) {
    unsigned word = source();
    for (int k = 0; k < 8; ++k, word >>= 4) hex += digits[word & 15];
  }
  return hex;
}

}  // namespace serve
