// Blocks of GGUF's quantized types: a few bytes encode 32 or 256 adjacent values of a row.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/gguf_grids.hpp"

namespace slm { inline namespace v0_1 {

/// A decoded block of any type: value n, in group g, is scale_of(g) * codes[n] + minimum_of(g). In fp32 all products
/// are exact, and only the sum is rounded, once, fused or not.
struct GgufBlock {
  int group = 32;   // values per pair of factors
  float scale = 0;  // exact in F16 for types that have tiles (formats/code_tiles.hpp)
  half_t minimum;   // zero in types without minima
  std::array<std::int8_t, 256> codes{};
  std::array<std::int8_t, 16> scale_factors{};  // one in types without superblocks; likewise minimum_factors
  std::array<std::int8_t, 16> minimum_factors{};

  float scale_of(std::size_t g) const { return scale * static_cast<float>(scale_factors[g]); }
  float minimum_of(std::size_t g) const { return to_float(minimum) * static_cast<float>(minimum_factors[g]); }
  float value_of(std::size_t n) const {
    const std::size_t g = n / static_cast<std::size_t>(group);
    return scale_of(g) * static_cast<float>(codes[n]) + minimum_of(g);
  }
};

namespace detail {

/// Decodes a block. Public members: one function for each type, with its name.
class GgufBlockReader {
 public:
  GgufBlockReader(const std::byte* block, GgufBlock& out)
      : block_(reinterpret_cast<const std::uint8_t*>(block)), out_(out) {}

  void q4_0() {
    runs<16>(2, [](const std::uint8_t* b, int run, int i) { return nibble(b[2 + i], run) - 8; });
    out_.scale = float_at(0);
  }

  void q4_1() {
    runs<16>(2, [](const std::uint8_t* b, int run, int i) { return nibble(b[4 + i], run); });
    out_.scale = float_at(0);
    out_.minimum = half(2);
  }

  void q5_0() {
    const std::array<std::uint8_t, 32> high = upper_bits(2);
    runs<16>(2, [&high](const std::uint8_t* b, int run, int i) {
      return (nibble(b[6 + i], run) | high[static_cast<std::size_t>(16 * run + i)]) - 16;
    });
    out_.scale = float_at(0);
  }

  void q5_1() {
    const std::array<std::uint8_t, 32> high = upper_bits(4);
    runs<16>(2, [&high](const std::uint8_t* b, int run, int i) {
      return nibble(b[8 + i], run) | high[static_cast<std::size_t>(16 * run + i)];
    });
    out_.scale = float_at(0);
    out_.minimum = half(2);
  }

  void q8_0() {
    runs<32>(1, [](const std::uint8_t* b, int, int i) { return static_cast<std::int8_t>(b[2 + i]); });
    out_.scale = float_at(0);
  }

  void iq4_nl() {
    nibbles(2);
    each_code(32, [](int, int code) { return iq4_values[code]; });
    out_.scale = float_at(0);
  }

  void q4_k() {
    scales_and_minima();
    runs<32>(8, [](const std::uint8_t* b, int run, int i) { return superblock_nibble(b + 16, run, i); });
  }

  void q5_k() {
    scales_and_minima();
    runs<32>(8, [](const std::uint8_t* b, int run, int i) {
      return superblock_nibble(b + 48, run, i) | (b[16 + i] >> run & 1) << 4;
    });
  }

  void q6_k() {
    out_.group = 16;
    out_.scale = float_at(208);
    for (int g = 0; g < 16; ++g) at(out_.scale_factors, g) = static_cast<std::int8_t>(block_[192 + g]);
    runs<32>(8, [](const std::uint8_t* b, int run, int i) {
      const int half = run / 4, quarter = run % 4;
      const int low = nibble(b[64 * half + quarter % 2 * 32 + i], quarter / 2);
      return (low | (b[128 + 32 * half + i] >> 2 * quarter & 3) << 4) - 32;
    });
  }

  void q2_k() {
    out_.group = 16;
    out_.scale = float_at(80);
    out_.minimum = negative_half(82);
    for (int g = 0; g < 16; ++g) {
      at(out_.scale_factors, g) = static_cast<std::int8_t>(block_[g] & 15);
      at(out_.minimum_factors, g) = static_cast<std::int8_t>(block_[g] >> 4);
    }
    runs<32>(8, [](const std::uint8_t* b, int run, int i) { return two_bits(b + 16, run, i); });
  }

  void q3_k() {
    out_.group = 16;
    out_.scale = float_at(108);
    const std::uint8_t* s = block_ + 96;  // twelve bytes: low halves of sixteen scales, then their upper two bits
    for (int g = 0; g < 16; ++g) {
      const int low = g < 8 ? s[g] & 15 : s[g - 8] >> 4;
      at(out_.scale_factors, g) = static_cast<std::int8_t>((low | (s[8 + g % 4] >> 2 * (g / 4) & 3) << 4) - 32);
    }
    runs<32>(
        8, [](const std::uint8_t* b, int run, int i) { return two_bits(b + 32, run, i) + 4 * (b[i] >> run & 1) - 4; });
  }

  void iq4_xs() {
    out_.scale = float_at(0);
    const std::uint32_t high = short_at(2);
    for (int g = 0; g < 8; ++g) {
      set_factor(g, ((block_[4 + g / 2] >> 4 * (g % 2) & 15) | static_cast<int>(high >> 2 * g & 3) << 4) - 32);
    }
    each_code(
        256, [this](int n, int) { return iq4_values[block_[8 + n / 32 * 16 + n % 16] >> (n % 32 < 16 ? 0 : 4) & 15]; });
  }

  // In the types with a table, the scale is a power of two less than the stored one, and factors and codes are
  // integers.

  void iq3_xxs() {
    out_.scale = float_at(0) / 2;
    for (int g = 0; g < 8; ++g) {
      const std::uint32_t word = word_at(66 + 4 * g);
      set_factor(g, 2 * static_cast<int>(word >> 28) + 1);
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t signs = eight_signs(word >> 7 * (i / 2)) >> 4 * (i % 2);
        four(
            8 * g + i, iq3_xxs_grid[block_[2 + 8 * g + i]], [](int v) { return v == 7 ? 31 : 4 * v + 2; }, signs);
      }
    }
  }

  void iq3_s() {
    out_.scale = float_at(0);
    odd_factors(106, 8);
    for (int i = 0; i < 64; ++i) {
      const int index = block_[2 + i] | bit(block_[66 + i / 8], i % 8) << 8;
      const std::uint32_t signs = block_[74 + i / 2];
      four(
          i, iq3_s_grid[index], [](int v) { return 2 * v + 1; }, signs >> 4 * (i % 2));
    }
  }

  void iq2_xxs() {
    out_.scale = float_at(0) / 8;
    for (int g = 0; g < 8; ++g) {
      const std::uint32_t word = word_at(6 + 8 * g);
      set_factor(g, 2 * static_cast<int>(word >> 28) + 1);
      for (int i = 0; i < 4; ++i) {
        eight(4 * g + i, iq2_xxs_grid[block_[2 + 8 * g + i]], iq2_values, eight_signs(word >> 7 * i));
      }
    }
  }

  void iq2_xs() {
    out_.group = 16;
    out_.scale = float_at(0) / 8;
    odd_factors(66, 16);
    for (int i = 0; i < 32; ++i) {
      const std::uint32_t both = short_at(2 + 2 * i);
      eight(i, iq2_xs_grid[both & 511], iq2_values, eight_signs(both >> 9));
    }
  }

  void iq2_s() {
    out_.group = 16;
    out_.scale = float_at(0) / 8;
    odd_factors(74, 16);
    for (int i = 0; i < 32; ++i) {
      const int index = block_[2 + i] | (block_[66 + i / 4] >> 2 * (i % 4) & 3) << 8;
      eight(i, iq2_s_grid[index], iq2_values, block_[34 + i]);
    }
  }

  void iq1_s() {
    out_.scale = float_at(0) / 8;
    for (int g = 0; g < 8; ++g) {
      const std::uint32_t high = short_at(34 + 2 * g);
      set_factor(g, 2 * static_cast<int>(high >> 12 & 7) + 1);
      for (int i = 0; i < 4; ++i) ternary(2, 4 * g + i, static_cast<int>(high >> 3 * i & 7), bit(high, 15));
    }
  }

  /// Its scale is in the upper halves of four numbers, whose lower bits are factors.
  void iq1_m() {
    out_.group = 16;
    half_t scale;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t factors = short_at(48 + 2 * i);
      scale.bits = static_cast<std::uint16_t>(scale.bits | factors >> 12 << 4 * i);
      for (int k = 0; k < 4; ++k) set_factor(4 * i + k, 2 * static_cast<int>(factors >> 3 * k & 7) + 1);
    }
    out_.scale = to_float(scale) / 8;
    for (int i = 0; i < 32; ++i) {
      const int high = block_[32 + i / 2] >> 4 * (i % 2);
      ternary(0, i, high & 7, high & 8);
    }
  }

  /// Five values per byte, in base 3: multiplied by a power of 3 modulo 256, a byte is a fraction of 256 whose first
  /// digit is the value.
  void tq1_0() {
    static constexpr int powers[] = {1, 3, 9, 27, 81};
    out_.scale = float_at(52);
    each_code(256, [this](int n, int) {
      const int first = n < 160 ? 0 : n < 240 ? 160 : 240, width = n < 160 ? 32 : n < 240 ? 16 : 4;
      const int byte = block_[first / 5 + (n - first) % width];
      return (byte * powers[(n - first) / width] & 255) * 3 / 256 - 1;
    });
  }

  void tq2_0() {
    out_.scale = float_at(64);
    runs<32>(8, [](const std::uint8_t* b, int run, int i) { return two_bits(b, run, i) - 1; });
  }

  /// A power of two as scale. Scales that make values overflow, and the format's NaN, become infinite.
  void mxfp4() {
    static constexpr int values[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    constexpr std::uint32_t largest = 252;
    const std::uint32_t exponent = block_[0];
    nibbles(1);
    each_code(32, [](int, int code) { return values[code]; });
    out_.scale = exponent > largest
                     ? std::numeric_limits<float>::infinity()
                     : std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  }

 private:
  static constexpr int iq4_values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static constexpr int iq2_values[] = {8, 25, 43};

  /// Eight values -1, 0 or 1, all moved by 1/8 up or down: codes are eight times them.
  void ternary(int place, int index, int high, bool down) {
    const std::uint32_t entry = iq1_grid[block_[place + index] | high << 8];
    const int move = down ? -1 : 1;
    for (int i = 0; i < 8; ++i) set_code(8 * index + i, (static_cast<int>(entry >> 2 * i & 3) - 1) * 8 + move, false);
  }

  template <class T, std::size_t N>
  static T& at(std::array<T, N>& array, int place) {
    return array[static_cast<std::size_t>(place)];
  }
  static int bit(std::uint32_t bits, int place) { return static_cast<int>(bits >> place & 1); }

  const std::byte* bytes(int place) const { return reinterpret_cast<const std::byte*>(block_ + place); }
  std::uint16_t short_at(int place) const { return load_unaligned<std::uint16_t>(bytes(place)); }
  std::uint32_t word_at(int place) const { return load_unaligned<std::uint32_t>(bytes(place)); }
  float float_at(int place) const { return to_float(half(place)); }
  half_t half(int place) const { return load_unaligned<half_t>(bytes(place)); }
  half_t negative_half(int place) const { return {static_cast<std::uint16_t>(half(place).bits ^ 0x8000u)}; }

  /// Sets the codes of runs of Length values: code(block, run, index in the run). Compilers vectorise the inner loop,
  /// as the codes are made outside of memory that other pointers reach.
  template <int Length, class Code>
  void runs(int count, Code&& code) {
    std::array<std::int8_t, 256> codes;
    for (int run = 0; run < count; ++run) {
      for (int i = 0; i < Length; ++i) at(codes, run * Length + i) = static_cast<std::int8_t>(code(block_, run, i));
    }
    std::memcpy(out_.codes.data(), codes.data(), static_cast<std::size_t>(count * Length));
  }

  /// Sets each code from its index and its current value.
  template <class Code>
  void each_code(int values, Code&& code) {
    for (int n = 0; n < values; ++n) at(out_.codes, n) = static_cast<std::int8_t>(code(n, at(out_.codes, n)));
  }

  /// Writes eight codes from 8 * index on: values[i] for entry i of a table entry with two bits per value. Set bits of
  /// signs negate.
  void eight(int index, std::uint32_t entry, const int (&values)[3], std::uint32_t signs) {
    for (int i = 0; i < 8; ++i) set_code(8 * index + i, values[entry >> 2 * i & 3], bit(signs, i));
  }

  /// Likewise four codes; value: maps three bits to a value.
  template <class Value>
  void four(int index, std::uint32_t entry, Value&& value, std::uint32_t signs) {
    for (int i = 0; i < 4; ++i) set_code(4 * index + i, value(static_cast<int>(entry >> 3 * i & 7)), bit(signs, i));
  }

  void set_code(int n, int value, bool negative) {
    at(out_.codes, n) = static_cast<std::int8_t>(negative ? -value : value);
  }

  /// The eighth sign is the parity of the seven stored ones.
  static std::uint32_t eight_signs(std::uint32_t seven) {
    seven &= 127;
    return seven | static_cast<std::uint32_t>(std::popcount(seven) % 2) << 7;
  }

  void set_factor(int g, int factor) { at(out_.scale_factors, g) = static_cast<std::int8_t>(factor); }

  /// Scales of the types with a table: odd factors, two per byte, the lower half first.
  void odd_factors(int place, int groups) {
    for (int g = 0; g < groups; ++g) set_factor(g, 2 * (block_[place + g / 2] >> 4 * (g % 2) & 15) + 1);
  }

  /// Sixteen bytes: the low halves are the first sixteen values, the high halves the others.
  void nibbles(int place) {
    each_code(32, [this, place](int n, int) { return block_[place + n % 16] >> (n < 16 ? 0 : 4) & 15; });
  }

  static int nibble(std::uint8_t byte, int upper) { return byte >> 4 * upper & 15; }

  /// Each 32 bytes hold two runs of 32, the even one in the low halves.
  static int superblock_nibble(const std::uint8_t* from, int run, int i) {
    return nibble(from[run / 2 * 32 + i], run % 2);
  }

  /// Each 32 bytes hold four runs of 32, two bits each.
  static int two_bits(const std::uint8_t* from, int run, int i) { return from[run / 4 * 32 + i] >> 2 * (run % 4) & 3; }

  /// The fifth bits of 32 codes, in four bytes, as 16 or 0 each.
  std::array<std::uint8_t, 32> upper_bits(int place) const {
    std::array<std::uint8_t, 32> upper;
    for (int i = 0; i < 4; ++i) {  // bit b of a byte is moved to byte b of a word
      const std::uint64_t found = block_[place + i] * 0x0101010101010101u & 0x8040201008040201u;
      const std::uint64_t bits = (found + 0x7f7f7f7f7f7f7f7fu) >> 3 & 0x1010101010101010u;
      std::memcpy(upper.data() + 8 * i, &bits, sizeof bits);
    }
    return upper;
  }

  /// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minima in twelve bytes.
  void scales_and_minima() {
    out_.scale = float_at(0);
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
    case DType::iq4_xs: return reader.iq4_xs();
    case DType::iq3_xxs: return reader.iq3_xxs();
    case DType::iq3_s: return reader.iq3_s();
    case DType::iq2_xxs: return reader.iq2_xxs();
    case DType::iq2_xs: return reader.iq2_xs();
    case DType::iq2_s: return reader.iq2_s();
    case DType::iq1_s: return reader.iq1_s();
    case DType::iq1_m: return reader.iq1_m();
    case DType::tq1_0: return reader.tq1_0();
    case DType::tq2_0: return reader.tq2_0();
    case DType::mxfp4: return reader.mxfp4();
    default: return;
  }
}

}}
