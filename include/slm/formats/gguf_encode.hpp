// Encodes values as GGUF blocks; searches for the scales with the least error.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// Types that encode() supports.
constexpr bool is_encodable(DType type) {
  return type == DType::q4_0 || type == DType::q4_1 || type == DType::q5_0 || type == DType::q8_0 ||
         type == DType::q4_k || type == DType::q6_k;
}

namespace detail {

/// Represents a group's values as scale * code + minimum.
struct GgufGrid {
  float scale = 0, minimum = 0;
};

inline float as_half(float value) { return to_float(from_float<half_t>(value)); }
inline float as_float(float value) { return value; }

/// Values that share a scale. The error of a value is weighted by its magnitude plus the group's root mean square.
class GgufGroup {
 public:
  /// low, high: range of codes.
  GgufGroup(std::span<const float> values, int low, int high) : values_(values), low_(low), high_(high) {
    double squares = 0;
    for (const float value : values) squares += double{value} * double{value};
    const auto rms = static_cast<float>(std::sqrt(squares / static_cast<double>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i) weights_[i] = rms + std::abs(values[i]);
  }

  int code(std::size_t i, GgufGrid grid) const {
    if (grid.scale == 0) return std::clamp(0, low_, high_);
    const float place =
        std::clamp((values_[i] - grid.minimum) / grid.scale, static_cast<float>(low_), static_cast<float>(high_));
    return static_cast<int>(std::floor(place + 0.5f));
  }

  double error(GgufGrid grid) const {
    double sum = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const float wrong = grid.scale * static_cast<float>(code(i, grid)) + grid.minimum - values_[i];
      sum += double{weights_[i]} * double{wrong} * double{wrong};
    }
    return sum;
  }

  /// The best scale without a minimum. stored: rounds a number to one that the block can store.
  GgufGrid symmetric(float (*stored)(float)) {
    float largest = 0;
    for (const float value : values_) largest = std::abs(value) > std::abs(largest) ? value : largest;
    best_ = {};
    least_ = error(best_);
    if (largest == 0) return best_;
    consider({stored(largest / static_cast<float>(low_)), 0});
    for (int step = -9; step <= 9; ++step) {
      const GgufGrid tried{largest / (static_cast<float>(low_) + 0.1f * static_cast<float>(step)), 0};
      const Sums sums = sums_of(tried);
      if (sums.codes_squared > 0) consider({stored(static_cast<float>(sums.both / sums.codes_squared)), 0});
    }
    return best_;
  }

  /// The best scale and minimum, with codes from 0. below_zero: the minimum must not be positive.
  GgufGrid with_minimum(float (*stored)(float), bool below_zero) {
    float bottom = *std::min_element(values_.begin(), values_.end());
    const float top = *std::max_element(values_.begin(), values_.end());
    if (below_zero) bottom = std::min(bottom, 0.0f);
    best_ = {0, stored(bottom)};
    least_ = error(best_);
    if (!(top > bottom)) return best_;
    const auto high = static_cast<float>(high_);
    consider({stored((top - bottom) / high), stored(bottom)});
    for (int step = -9; step <= 9; ++step) {
      const Sums s = sums_of({(top - bottom) / (high + 0.1f * static_cast<float>(step)), bottom});
      const double determinant = s.weights * s.codes_squared - s.codes * s.codes;
      if (!(determinant > 0)) continue;
      double scale = (s.weights * s.both - s.values * s.codes) / determinant;
      double minimum = (s.codes_squared * s.values - s.codes * s.both) / determinant;
      if (below_zero && minimum > 0) {
        minimum = 0;
        scale = s.both / s.codes_squared;
      }
      if (scale > 0) consider({stored(static_cast<float>(scale)), stored(static_cast<float>(minimum))});
    }
    return best_;
  }

 private:
  /// Weighted sums of the values and their codes on a grid.
  struct Sums {
    double weights = 0, values = 0, codes = 0, codes_squared = 0, both = 0;
  };

  Sums sums_of(GgufGrid grid) const {
    Sums sums;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double weight = weights_[i], value = values_[i], number = code(i, grid);
      sums.weights += weight;
      sums.values += weight * value;
      sums.codes += weight * number;
      sums.codes_squared += weight * number * number;
      sums.both += weight * value * number;
    }
    return sums;
  }

  void consider(GgufGrid grid) {
    if (!std::isfinite(grid.scale) || !std::isfinite(grid.minimum)) return;
    const double found = error(grid);
    if (found >= least_) return;
    least_ = found;
    best_ = grid;
  }

  std::span<const float> values_;
  int low_, high_;
  std::array<float, 32> weights_{};
  GgufGrid best_;
  double least_ = 0;
};

/// Encodes a block. Member functions have the names of the types.
class GgufBlockWriter {
 public:
  GgufBlockWriter(const float* values, std::byte* block)
      : values_(values), block_(reinterpret_cast<std::uint8_t*>(block)) {}

  void q4_0() {
    GgufGroup group(part(0, 32), -8, 7);
    const GgufGrid grid = group.symmetric(as_half);
    half(0, grid.scale);
    nibbles(2, group, grid, 8);
  }

  void q4_1() {
    GgufGroup group(part(0, 32), 0, 15);
    const GgufGrid grid = group.with_minimum(as_half, false);
    half(0, grid.scale);
    half(2, grid.minimum);
    nibbles(4, group, grid, 0);
  }

  void q5_0() {
    GgufGroup group(part(0, 32), -16, 15);
    const GgufGrid grid = group.symmetric(as_half);
    half(0, grid.scale);
    std::uint32_t high = 0;
    for (std::size_t i = 0; i < 32; ++i) high |= static_cast<std::uint32_t>(group.code(i, grid) + 16) >> 4 << i;
    std::memcpy(block_ + 2, &high, sizeof high);
    nibbles(6, group, grid, 16);
  }

  void q8_0() {
    GgufGroup group(part(0, 32), -127, 127);
    const GgufGrid grid = group.symmetric(as_half);
    half(0, grid.scale);
    for (std::size_t i = 0; i < 32; ++i) block_[2 + i] = static_cast<std::uint8_t>(group.code(i, grid));
  }

  void q4_k() {
    std::array<GgufGrid, 8> wanted;
    float largest = 0, lowest = 0;
    for (int g = 0; g < 8; ++g) {
      wanted[at(g)] = GgufGroup(part(32 * g, 32), 0, 15).with_minimum(as_float, true);
      largest = std::max(largest, wanted[at(g)].scale);
      lowest = std::max(lowest, -wanted[at(g)].minimum);
    }
    const float d = as_half(largest / 63), dmin = as_half(lowest / 63);
    half(0, d);
    half(2, dmin);
    std::uint8_t* s = block_ + 4;
    std::memset(s, 0, 12);
    for (int g = 0; g < 8; ++g) {
      const GgufGroup group(part(32 * g, 32), 0, 15);
      const auto grid_of = [&](int scale, int minimum) {
        return GgufGrid{d * static_cast<float>(scale), -dmin * static_cast<float>(minimum)};
      };
      int scale = 0, minimum = 0;
      double least = group.error(grid_of(0, 0));
      const int near_scale = steps(wanted[at(g)].scale, d, 63), near_minimum = steps(-wanted[at(g)].minimum, dmin, 63);
      for (int tried = std::max(near_scale - 1, 0); tried <= std::min(near_scale + 1, 63); ++tried) {
        for (int low = std::max(near_minimum - 1, 0); low <= std::min(near_minimum + 1, 63); ++low) {
          const double found = group.error(grid_of(tried, low));
          if (found >= least) continue;
          least = found;
          scale = tried;
          minimum = low;
        }
      }
      if (g < 4) {
        s[g] = static_cast<std::uint8_t>(s[g] | scale);
        s[g + 4] = static_cast<std::uint8_t>(s[g + 4] | minimum);
      } else {
        s[g + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
        s[g - 4] = static_cast<std::uint8_t>(s[g - 4] | scale >> 4 << 6);
        s[g] = static_cast<std::uint8_t>(s[g] | minimum >> 4 << 6);
      }
      for (int i = 0; i < 32; ++i) {
        const int code = group.code(at(i), grid_of(scale, minimum));
        std::uint8_t& byte = block_[16 + g / 2 * 32 + i];
        byte = static_cast<std::uint8_t>(g % 2 == 0 ? code : byte | code << 4);
      }
    }
  }

  void q6_k() {
    std::array<float, 16> wanted;
    float largest = 0;
    for (int g = 0; g < 16; ++g) {
      wanted[at(g)] = GgufGroup(part(16 * g, 16), -32, 31).symmetric(as_float).scale;
      largest = std::max(largest, std::abs(wanted[at(g)]));
    }
    const float d = as_half(largest / 127);
    half(208, d);
    std::memset(block_, 0, 192);
    for (int g = 0; g < 16; ++g) {
      const GgufGroup group(part(16 * g, 16), -32, 31);
      const auto grid_of = [&](int scale) { return GgufGrid{d * static_cast<float>(scale), 0}; };
      const int near = steps(wanted[at(g)], d, 127);
      int scale = 0;
      double least = group.error({});
      for (int tried = std::max(near - 1, -127); tried <= std::min(near + 1, 127); ++tried) {
        const double found = group.error(grid_of(tried));
        if (found >= least) continue;
        least = found;
        scale = tried;
      }
      block_[192 + g] = static_cast<std::uint8_t>(scale);
      for (int i = 0; i < 16; ++i) {
        const int n = 16 * g + i, part = n / 128, quarter = n % 128 / 32, place = n % 32;
        const int code = group.code(at(i), grid_of(scale)) + 32;
        std::uint8_t& low = block_[64 * part + quarter % 2 * 32 + place];
        low = static_cast<std::uint8_t>(low | (code & 15) << (quarter < 2 ? 0 : 4));
        std::uint8_t& high = block_[128 + 32 * part + place];
        high = static_cast<std::uint8_t>(high | code >> 4 << 2 * quarter);
      }
    }
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  std::span<const float> part(int first, std::size_t count) const { return {values_ + first, count}; }

  void half(int place, float value) {
    const half_t stored = from_float<half_t>(value);
    std::memcpy(block_ + place, &stored, sizeof stored);
  }

  /// value / unit as an integer in [-most, most].
  static int steps(float value, float unit, int most) {
    if (unit == 0) return 0;
    return static_cast<int>(std::lround(std::clamp(value / unit, -static_cast<float>(most), static_cast<float>(most))));
  }

  /// Sixteen bytes: the low halves are the first sixteen codes, the high halves the others.
  void nibbles(int place, const GgufGroup& group, GgufGrid grid, int offset) {
    for (std::size_t i = 0; i < 16; ++i) {
      const int low = group.code(i, grid) + offset, high = group.code(i + 16, grid) + offset;
      block_[at(place) + i] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
    }
  }

  const float* values_;
  std::uint8_t* block_;
};

}  // namespace detail

/// Encodes one block of values_of_block(type) finite values of magnitude at most 65504.
inline void encode(DType type, const float* values, std::byte* block) {
  detail::GgufBlockWriter writer(values, block);
  switch (type) {
    case DType::q4_0: return writer.q4_0();
    case DType::q4_1: return writer.q4_1();
    case DType::q5_0: return writer.q5_0();
    case DType::q8_0: return writer.q8_0();
    case DType::q4_k: return writer.q4_k();
    case DType::q6_k: return writer.q6_k();
    default: return;
  }
}

}}
