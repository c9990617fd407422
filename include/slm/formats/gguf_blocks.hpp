// The blocks of GGUF's quantized types: a few bytes that stand for 32 or 256 neighbouring values of a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"

namespace slm {

/// One block in the terms that all types share: value n is scales[n / group] * codes[n] + minima[n / group]. In fp32
/// the product is exact, so that its sum with the minimum is rounded once, whether or not it is fused.
struct GgufBlock {
  int group = 32;  // values that share a scale
  std::array<std::int8_t, 256> codes{};
  std::array<float, 16> scales{};
  std::array<float, 16> minima{};  // zero in types that have none
};

namespace detail {

/// Reads the block of one type. The members are the types' names.
class GgufBlockReader {
 public:
  GgufBlockReader(const std::byte* block, GgufBlock& out)
      : block_(reinterpret_cast<const std::uint8_t*>(block)), out_(out) {}

  void q4_0() {
    nibbles(2);
    each_code(32, [](int, int code) { return code - 8; });
    out_.scales[0] = half(0);
  }

  void q4_1() {
    nibbles(4);
    out_.scales[0] = half(0);
    out_.minima[0] = half(2);
  }

  void q5_0() {
    nibbles(6);
    const auto high = load_unaligned<std::uint32_t>(bytes(2));
    each_code(32, [high](int n, int code) { return (code | bit(high, n) << 4) - 16; });
    out_.scales[0] = half(0);
  }

  void q5_1() {
    nibbles(8);
    const auto high = load_unaligned<std::uint32_t>(bytes(4));
    each_code(32, [high](int n, int code) { return code | bit(high, n) << 4; });
    out_.scales[0] = half(0);
    out_.minima[0] = half(2);
  }

  void q8_0() {
    each_code(32, [this](int n, int) { return signed_byte(2 + n); });
    out_.scales[0] = half(0);
  }

  void iq4_nl() {
    static constexpr int values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    nibbles(2);
    each_code(32, [](int, int code) { return values[code]; });
    out_.scales[0] = half(0);
  }

  void q4_k() {
    scales_and_minima();
    each_code(256, [this](int n, int) { return superblock_nibble(16, n); });
  }

  void q5_k() {
    scales_and_minima();
    each_code(256, [this](int n, int) { return superblock_nibble(48, n) | bit(block_[16 + n % 32], n / 32) << 4; });
  }

  void q6_k() {
    out_.group = 16;
    for (int g = 0; g < 16; ++g) at(out_.scales, g) = half(208) * static_cast<float>(signed_byte(192 + g));
    each_code(256, [this](int n, int) {
      const int half = n / 128, quarter = n % 128 / 32, i = n % 32;
      const int low = block_[64 * half + quarter % 2 * 32 + i] >> (quarter < 2 ? 0 : 4) & 15;
      return (low | (block_[128 + 32 * half + i] >> 2 * quarter & 3) << 4) - 32;
    });
  }

  void q2_k() {
    out_.group = 16;
    for (int g = 0; g < 16; ++g) {
      at(out_.scales, g) = half(80) * static_cast<float>(block_[g] & 15);
      at(out_.minima, g) = -half(82) * static_cast<float>(block_[g] >> 4);
    }
    each_code(256, [this](int n, int) { return two_bits(16, n); });
  }

  void q3_k() {
    out_.group = 16;
    const std::uint8_t* s = block_ + 96;  // twelve bytes: low halves of sixteen scales, then their upper two bits
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
      const int scale = (low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32;
      at(out_.scales, g) = half(108) * static_cast<float>(scale);
    }
    each_code(256, [this](int n, int) { return two_bits(32, n) - (bit(block_[n % 32], n / 32) ? 0 : 4); });
  }

 private:
  template <class T, std::size_t N>
  static T& at(std::array<T, N>& array, int place) {
    return array[static_cast<std::size_t>(place)];
  }
  static int bit(std::uint32_t bits, int place) { return static_cast<int>(bits >> place & 1); }

  const std::byte* bytes(int place) const { return reinterpret_cast<const std::byte*>(block_ + place); }
  float half(int place) const { return to_float(load_unaligned<half_t>(bytes(place))); }
  int signed_byte(int place) const { return static_cast<std::int8_t>(block_[place]); }

  /// Makes the code of each value of its place and the code so far.
  template <class Code>
  void each_code(int values, Code&& code) {
    for (int n = 0; n < values; ++n) at(out_.codes, n) = static_cast<std::int8_t>(code(n, at(out_.codes, n)));
  }

  /// Sixteen bytes: their low halves are the first sixteen values, their high halves the others.
  void nibbles(int place) {
    each_code(32, [this, place](int n, int) { return block_[place + n % 16] >> (n < 16 ? 0 : 4) & 15; });
  }

  /// Every 32 bytes hold two groups of 32: the even one in their low halves.
  int superblock_nibble(int place, int n) const {
    const int group = n / 32;
    return block_[place + group / 2 * 32 + n % 32] >> (group % 2 == 0 ? 0 : 4) & 15;
  }

  /// Every 32 bytes hold four groups of 32, two bits each.
  int two_bits(int place, int n) const { return block_[place + n / 128 * 32 + n % 32] >> 2 * (n % 128 / 32) & 3; }

  /// Q4_K and Q5_K: eight scales and eight minima of six bits in twelve bytes.
  void scales_and_minima() {
    const std::uint8_t* s = block_ + 4;
    for (int g = 0; g < 8; ++g) {
      const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
      const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
      at(out_.scales, g) = half(0) * static_cast<float>(scale);
      at(out_.minima, g) = -half(2) * static_cast<float>(minimum);
    }
  }

  const std::uint8_t* block_;
  GgufBlock& out_;
};

}  // namespace detail

/// The codes, scales and minima of one block of a type that lies in blocks.
inline void decode(DType type, const std::byte* block, GgufBlock& out) {
  out.group = 32;
  out.minima = {};
  detail::GgufBlockReader reader(block, out);
  switch (type) {
    case DType::q4_0: return reader.q4_0();
    case DType::q4_1: return reader.q4_1();
    case DType::q5_0: return reader.q5_0();
    case DType::q5_1: return reader.q5_1();
    case DType::q8_0: return reader.q8_0();
    case DType::iq4_nl: return reader.iq4_nl();
    case DType::q2_k: return reader.q2_k();
    case DType::q3_k: return reader.q3_k();
    case DType::q4_k: return reader.q4_k();
    case DType::q5_k: return reader.q5_k();
    case DType::q6_k: return reader.q6_k();
    default: return;
  }
}

/// Value n of a block.
inline float value_of(const GgufBlock& block, std::size_t n) {
  const std::size_t group = n / static_cast<std::size_t>(block.group);
  return block.scales[group] * static_cast<float>(block.codes[n]) + block.minima[group];
}

}  // namespace slm
