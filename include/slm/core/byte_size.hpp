// Human-readable byte counts.
#pragma once

#include <cstddef>
#include <string>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

/// 3.1 GiB, 512.0 MiB, 96 bytes
inline std::string text_of_bytes(std::size_t bytes) {
  const auto tenths = [bytes](int shift) {
    const std::size_t value = ((bytes >> (shift - 10)) * 10 + 512) >> 10;
    return text(value / 10, ".", value % 10);
  };
  if (bytes >= std::size_t{1} << 30) return tenths(30) + " GiB";
  if (bytes >= std::size_t{1} << 20) return tenths(20) + " MiB";
  return text(bytes, " bytes");
}

}}
