// Counter-based random number generator: the same (seed, stream, position, index) gives the same bits, in any order.
#pragma once

#include <array>
#include <cstdint>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Philox 4x32 with 10 rounds (Salmon et al., SC 2011): four random words of a 128-bit counter and a 64-bit key.
SLM_DEVICE std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t seed) {
  std::uint32_t key0 = static_cast<std::uint32_t>(seed);
  std::uint32_t key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// The purpose of a draw. Draws of different streams never share bits.
enum class Stream : std::uint32_t { gumbel, draft, accept, residual, bonus, test };

/// Uniform in the open interval (0, 1), from 52 random bits.
SLM_DEVICE double uniform(std::uint64_t seed, Stream stream, std::uint64_t position, std::uint32_t index) {
  const auto words = philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), index,
                             static_cast<std::uint32_t>(stream)},
                            seed);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}}
