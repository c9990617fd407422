// Every fuzzer's condition for an Error: a message of a few hundred bytes without control characters.
#pragma once

#include <cstdlib>
#include <string_view>

#include "slm/core/error.hpp"

inline void check_message(const slm::Error& error) {
  const std::string_view message = error.what();
  if (message.size() > 2000) std::abort();
  for (const char byte : message) {
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f) std::abort();
  }
}
