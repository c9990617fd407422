// Blocks of GGUF's quantized types: a few bytes encode 32 or 256 adjacent values of a row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// A decoded block of any type: value n, in group g, is scale_of(g) * codes[n] + minimum_of(g). In fp32 all products
/// are exact, and only the sum is rounded, once, fused or not.
struct GgufBlock {
  int group = 32;  // values per pair of factors
  half_t scale;
  half_t minimum;  // zero in types without minima
  std::array<std::int8_t, 256> codes{};
  std::array<std::int8_t, 16> scale_factors{};  // one in types without superblocks; likewise minimum_factors
  std::array<std::int8_t, 16> minimum_factors{};

  float scale_of(std::size_t g) const { return to_float(scale) * static_cast<float>(scale_factors[g]); }
  float minimum_of(std::size_t g) const { return to_float(minimum) * static_cast<float>(minimum_factors[g]); }
  float value_of(std::size_t n) const {
    const std::size_t g = n / static_cast<std::size_t>(group);
    return scale_of(g) * static_cast<float>(codes[n]) + minimum_of(g);
  }
};

namespace detail {

/// Decodes a block. Member functions have the names of the types.
class GgufBlockReader {
 public:
  GgufBlockReader(const std::byte* block, GgufBlock& out)
      : block_(reinterpret_cast<const std::uint8_t*>(block)), out_(out) {}

  void q4_0() {
    nibbles(2);
    each_code(32, [](int, int code) { return code - 8; });
    out_.scale = half(0);
  }

  void q4_1() {
    nibbles(4);
    out_.scale = half(0);
    out_.minimum = half(2);
  }

  void q5_0() {
    nibbles(6);
    const auto high = load_unaligned<std::uint32_t>(bytes(2));
    each_code(32, [high](int n, int code) { return (code | bit(high, n) << 4) - 16; });
    out_.scale = half(0);
  }

  void q5_1() {
    nibbles(8);
    const auto high = load_unaligned<std::uint32_t>(bytes(4));
    each_code(32, [high](int n, int code) { return code | bit(high, n) << 4; });
    out_.scale = half(0);
    out_.minimum = half(2);
  }

  void q8_0() {
    each_code(32, [this](int n, int) { return signed_byte(2 + n); });
    out_.scale = half(0);
  }

  void iq4_nl() {
    static constexpr int values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    nibbles(2);
    each_code(32, [](int, int code) { return values[code]; });
    out_.scale = half(0);
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
    out_.scale = half(208);
    for (int g = 0; g < 16; ++g) at(out_.scale_factors, g) = static_cast<std::int8_t>(block_[192 + g]);
    each_code(256, [this](int n, int) {
      const int half = n / 128, quarter = n % 128 / 32, i = n % 32;
      const int low = block_[64 * half + quarter % 2 * 32 + i] >> (quarter < 2 ? 0 : 4) & 15;
      return (low | (block_[128 + 32 * half + i] >> 2 * quarter & 3) << 4) - 32;
    });
  }

  void q2_k() {
    out_.group = 16;
    out_.scale = half(80);
    out_.minimum = negative_half(82);
    for (int g = 0; g < 16; ++g) {
      at(out_.scale_factors, g) = static_cast<std::int8_t>(block_[g] & 15);
      at(out_.minimum_factors, g) = static_cast<std::int8_t>(block_[g] >> 4);
    }
    each_code(256, [this](int n, int) { return two_bits(16, n); });
  }

  void q3_k() {
    out_.group = 16;
    out_.scale = half(108);
    const std::uint8_t* s = block_ + 96;  // twelve bytes: low halves of sixteen scales, then their upper two bits
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
      at(out_.scale_factors, g) = static_cast<std::int8_t>((low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32);
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
  half_t half(int place) const { return load_unaligned<half_t>(bytes(place)); }
  half_t negative_half(int place) const { return {static_cast<std::uint16_t>(half(place).bits ^ 0x8000u)}; }
  int signed_byte(int place) const { return static_cast<std::int8_t>(block_[place]); }

  /// Sets each code from its index and its current value.
  template <class Code>
  void each_code(int values, Code&& code) {
    for (int n = 0; n < values; ++n) at(out_.codes, n) = static_cast<std::int8_t>(code(n, at(out_.codes, n)));
  }

  /// Sixteen bytes: the low halves are the first sixteen values, the high halves the others.
  void nibbles(int place) {
    each_code(32, [this, place](int n, int) { return block_[place + n % 16] >> (n < 16 ? 0 : 4) & 15; });
  }

  /// Each 32 bytes hold two groups of 32, the even one in the low halves.
  int superblock_nibble(int place, int n) const {
    const int group = n / 32;
    return block_[place + group / 2 * 32 + n % 32] >> (group % 2 == 0 ? 0 : 4) & 15;
  }

  /// Each 32 bytes hold four groups of 32, two bits each.
  int two_bits(int place, int n) const { return block_[place + n / 128 * 32 + n % 32] >> 2 * (n % 128 / 32) & 3; }

  /// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in twelve bytes.
  void scales_and_minima() {
    out_.scale = half(0);
    out_.minimum = negative_half(2);
    const std::uint8_t* s = block_ + 4;
    for (int g = 0; g < 8; ++g) {
      const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
      const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
      at(out_.scale_factors, g) = static_cast<std::int8_t>(scale);
      at(out_.minimum_factors, g) = static_cast<std::int8_t>(minimum);
    }
  }

  const std::uint8_t* block_;
  GgufBlock& out_;
};

}  // namespace detail

/// Decodes one block of a block type.
inline void decode(DType type, const std::byte* block, GgufBlock& out) {
  out.group = 32;
  out.minimum = {};
  out.scale_factors.fill(1);
  out.minimum_factors.fill(1);
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

}}
