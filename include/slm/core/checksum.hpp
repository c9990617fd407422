// Checksum: detects accidental changes of bytes. It is not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// 64-bit checksum, about four bytes per cycle. The result depends on how the bytes are divided among add() calls: use
/// the same division to compare.
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    std::uint64_t lanes[4] = {state_, ~state_, state_ * odd, bytes.size()};
    std::size_t at = 0;
    for (; at + 32 <= bytes.size(); at += 32) {
      std::uint64_t words[4];
      std::memcpy(words, bytes.data() + at, 32);
      for (int i = 0; i < 4; ++i) lanes[i] = (lanes[i] ^ words[i]) * odd, lanes[i] ^= lanes[i] >> 29;
    }
    for (; at < bytes.size(); ++at) lanes[0] = (lanes[0] ^ std::to_integer<std::uint64_t>(bytes[at])) * odd;
    for (const std::uint64_t lane : lanes) state_ = mixed(state_ ^ lane);
  }

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(Number number) { add(std::as_bytes(std::span(&number, 1))); }

  std::uint64_t value() const { return state_; }

 private:
  static constexpr std::uint64_t odd = 0x9E3779B97F4A7C15u;

  static std::uint64_t mixed(std::uint64_t v) {
    v = (v ^ (v >> 32)) * 0xD6E8FEB86659FD93u;
    v = (v ^ (v >> 32)) * 0xD6E8FEB86659FD93u;
    return v ^ (v >> 32);
  }

  std::uint64_t state_ = 0x243F6A8885A308D3u;
};

}}
