// Blocks written by slm, and read again.
#include "slm/formats/gguf_encode.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "slm/formats/gguf_blocks.hpp"

using namespace slm;

namespace {

constexpr DType types[] = {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_k, DType::q6_k};

std::vector<float> decoded(DType type, const std::vector<float>& values) {
  std::vector<std::byte> block(bytes_of(type), std::byte{0xab});
  encode(type, values.data(), block.data());
  GgufBlock read;
  decode(type, block.data(), read);
  std::vector<float> out;
  for (std::size_t n = 0; n < values.size(); ++n) out.push_back(read.value_of(n));
  return out;
}

/// Noise whose groups differ in size and centre, with occasional outliers.
std::vector<float> noise(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  std::vector<float> values;
  float size = 1, centre = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 16 == 0) {
      size = std::exp(static_cast<float>(uniform()) * 4 - 6);
      centre = seed % 3 == 0 ? size * static_cast<float>(uniform()) : 0;
    }
    const double sum = uniform() + uniform() + uniform() - 1.5;
    values.push_back(centre + size * static_cast<float>(sum) * (uniform() < 0.02 ? 6.0f : 1.0f));
  }
  return values;
}

double weighted_error(const float* values, const float* read, std::size_t count) {
  double squares = 0, sum = 0;
  for (std::size_t i = 0; i < count; ++i) squares += double{values[i]} * values[i];
  const double rms = std::sqrt(squares / static_cast<double>(count));
  for (std::size_t i = 0; i < count; ++i) {
    sum += (rms + std::abs(values[i])) * std::pow(double{values[i]} - double{read[i]}, 2);
  }
  return sum;
}

/// The largest change of a group's value by plain rounding. The last two belong to the superblock: its scales and
/// minima are fractions of the largest.
double worst(DType type, const float* values, std::size_t count, double largest_scale, double largest_minimum) {
  double top = 0, bottom = 0, size = 0;
  bool first = true;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = values[i];
    top = first ? value : std::max(top, value);
    bottom = first ? value : std::min(bottom, value);
    size = std::max(size, std::abs(value));
    first = false;
  }
  const double halves = 0x1p-10 * size;  // what F16 changes in scale and minimum
  switch (type) {
    case DType::q4_0: return size / 8 + halves;  // the other end of the codes stops one step earlier
    case DType::q4_1: return (top - bottom) / 15 / 2 + 2 * halves;
    case DType::q5_0: return size / 16 + halves;
    case DType::q8_0: return size / 127 / 2 + halves;
    case DType::q4_k:
      return (std::max(top, 0.0) - std::min(bottom, 0.0)) / 15 / 2 + largest_scale / 63 * 8 + largest_minimum / 63;
    default: return size / 32 + largest_scale / 127 * 32;
  }
}

}  // namespace

TEST_CASE("a written block changes its values by at most plain rounding") {
  for (const DType type : types) {
    const auto count = static_cast<std::size_t>(values_of_block(type));
    const std::size_t group = type == DType::q6_k ? 16 : 32;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const std::vector<float> values = noise(seed, count), read = decoded(type, values);
      double largest_scale = 0, largest_minimum = 0;
      for (std::size_t g = 0; g < count; g += group) {
        const auto [low, high] = std::minmax_element(values.begin() + static_cast<std::ptrdiff_t>(g),
                                                     values.begin() + static_cast<std::ptrdiff_t>(g + group));
        const double range = std::max<double>(*high, 0) - std::min<double>(*low, 0);
        largest_scale = std::max(largest_scale, type == DType::q6_k ? range / 32 : range / 12);
        largest_minimum = std::max(largest_minimum, range);
      }
      for (std::size_t g = 0; g < count; g += group) {
        const double bound = worst(type, &values[g], group, largest_scale, largest_minimum);
        std::vector<float> off(values.begin() + static_cast<std::ptrdiff_t>(g),
                               values.begin() + static_cast<std::ptrdiff_t>(g + group));
        const std::vector<float> exact = off;
        for (float& value : off) value += static_cast<float>(bound);
        CAPTURE(name_of(type), seed, g, bound);
        REQUIRE(weighted_error(exact.data(), &read[g], group) <= weighted_error(exact.data(), off.data(), group));
      }
    }
  }
}

TEST_CASE("searching for the scale beats rounding to the largest value") {
  double searched = 0, plain = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> values = noise(seed, 32), read = decoded(DType::q4_0, values);
    float largest = 0;
    for (const float value : values) largest = std::abs(value) > std::abs(largest) ? value : largest;
    const float scale = to_float(from_float<half_t>(largest / -8));
    std::vector<float> rounded;
    for (const float value : values) {
      rounded.push_back(scale * std::clamp(std::round(value / scale), -8.0f, 7.0f));
    }
    const double found = weighted_error(values.data(), read.data(), 32);
    const double simple = weighted_error(values.data(), rounded.data(), 32);
    CHECK(found <= simple * (1 + 1e-6));
    searched += found / simple;
    plain += 1;
  }
  CHECK(searched < 0.95 * plain);
}

TEST_CASE("values that the codes represent exactly are read exactly") {
  for (const DType type : types) {
    const auto count = static_cast<std::size_t>(values_of_block(type));
    CAPTURE(name_of(type));
    CHECK(decoded(type, std::vector<float>(count)) == std::vector<float>(count));
    std::vector<float> steps;
    const bool with_minimum = type == DType::q4_1;
    for (std::size_t n = 0; n < count; ++n) {
      const int code = static_cast<int>(n % 16) - 8;
      steps.push_back(0.25f * static_cast<float>(with_minimum ? code + 40 : code));
    }
    // A superblock's scales are 63rds or 127ths of the largest, not binary fractions.
    if (values_of_block(type) == 32 && type != DType::q8_0) CHECK(decoded(type, steps) == steps);
  }
  CHECK(decoded(DType::q4_1, std::vector<float>(32, 0.75f)) == std::vector<float>(32, 0.75f));
}

TEST_CASE("tiny, huge and single values are written correctly") {
  for (const DType type : types) {
    const auto count = static_cast<std::size_t>(values_of_block(type));
    for (const float size : {1e-42f, 1e-8f, 65504.0f, -65504.0f}) {
      std::vector<float> values(count);
      values[3] = size;
      values[count - 1] = -size / 3;
      for (const float value : decoded(type, values)) {
        REQUIRE(std::isfinite(value));
        REQUIRE(std::abs(value) <= 1.1f * std::abs(size) + 1e-6f);
      }
      CHECK(decoded(type, values)[3] == Approx(size).epsilon(0.15).margin(1e-6));
    }
  }
}
