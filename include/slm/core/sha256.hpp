// SHA-256 (FIPS 180-4), to identify texts and weights exactly.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Incremental digest.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes) {
    length_ += bytes.size();
    while (!bytes.empty()) {
      if (used_ == 0 && bytes.size() >= block_size) {
        take(bytes.data());
        bytes = bytes.subspan(block_size);
        continue;
      }
      const std::size_t count = std::min(bytes.size(), block_size - used_);
      std::memcpy(block_.data() + used_, bytes.data(), count);
      bytes = bytes.subspan(count);
      used_ += count;
      if (used_ == block_size) take(block_.data());
      used_ %= block_size;
    }
  }
  void update(std::string_view text) { update(std::as_bytes(std::span{text})); }

  /// Returns the digest in hexadecimal. update() must not be called afterwards.
  std::string finish() {
    const std::uint64_t bits = length_ * 8;
    update(std::string_view{"\x80"});
    while (used_ != block_size - 8) update(std::string_view{"\0", 1});
    std::array<std::byte, 8> tail;
    for (std::size_t i = 0; i < 8; ++i) tail[i] = static_cast<std::byte>(bits >> (56 - 8 * i));
    update(tail);
    std::string hex;
    for (const std::uint32_t word : state_) {
      for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
    }
    return hex;
  }

 private:
  static constexpr std::size_t block_size = 64;

  void take(const std::byte* block) {
    // The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
    static constexpr std::array<std::uint32_t, 64> constants = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    std::array<std::uint32_t, 64> words;
    for (std::size_t i = 0; i < 16; ++i) {
      words[i] = 0;
      for (std::size_t j = 0; j < 4; ++j) words[i] = words[i] << 8 | std::to_integer<std::uint32_t>(block[4 * i + j]);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = words[i - 15], b = words[i - 2];
      words[i] = words[i - 16] + words[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
                 (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t one =
          h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + words[i];
      const std::uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one;
      d = c, c = b, b = a, a = one + two;
    }
    const std::array<std::uint32_t, 8> found = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += found[i];
  }

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_size> block_{};
  std::size_t used_ = 0;
  std::uint64_t length_ = 0;
};

}  // namespace detail

/// The SHA-256 digest of a text as 64 lower-case hexadecimal digits.
inline std::string sha256(std::string_view text) {
  detail::Sha256 sum;
  sum.update(text);
  return sum.finish();
}

}}
