// Matrices rounded to blocks while a model is loaded.
#include "slm/formats/block_rounding.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "slm/core/rng.hpp"

using namespace slm;

namespace {

Tensor matrix_of(const std::vector<float>& values, std::int64_t columns) {
  return {.name = "m",
          .dtype = DType::f32,
          .shape = {static_cast<std::int64_t>(values.size()) / columns, columns},
          .bytes = reinterpret_cast<const std::byte*>(values.data()),
          .size_bytes = values.size() * sizeof(float)};
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

std::vector<float> random_values(std::size_t count) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < count; ++i) {
    values.push_back((static_cast<float>(philox({i, 0, 0, 0}, 5)[0] % 20001) - 10000) * 1e-4f);
  }
  return values;
}

}  // namespace

TEST_CASE("each value is at most half a step of its block from the original") {
  const std::vector<float> values = random_values(6 * 96);
  for (const int bits : {4, 8}) {
    const Tensor rounded = rounded_to_blocks(matrix_of(values, 96), bits);
    CHECK(rounded.dtype == (bits == 4 ? DType::q4_0 : DType::q8_0));
    CHECK(rounded.shape == std::vector<std::int64_t>{6, 96});
    REQUIRE(rounded.size_bytes == 18 * (bits == 4 ? 18u : 34u));
    const std::vector<float> back = values_of(rounded);
    for (std::size_t first = 0; first < values.size(); first += 32) {
      float largest = 0;
      for (std::size_t i = first; i < first + 32; ++i) largest = std::max(largest, std::abs(values[i]));
      // With 4 bits, codes reach from -8 to 7: a value of the other sign than the largest may be a whole step away.
      const float step = largest / (bits == 4 ? 8 : 127);
      for (std::size_t i = first; i < first + 32; ++i) {
        CAPTURE(bits, i, values[i], back[i]);
        CHECK(std::abs(back[i] - values[i]) <= step * (bits == 4 ? 1.01f : 0.55f));
      }
    }
  }
}

TEST_CASE("values that the blocks hold stay the same, and zeros are zeros") {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < 32; ++i) values[i] = (static_cast<float>(i % 16) - 8) * 0.25f;
  CHECK(values_of(rounded_to_blocks(matrix_of(values, 64), 4)) == values);
  std::fill(values.begin(), values.end(), 1e-12f);  // the scale is 0 in F16
  CHECK(values_of(rounded_to_blocks(matrix_of(values, 64), 4)) == std::vector<float>(64, 0.0f));
  CHECK(values_of(rounded_to_blocks(matrix_of(values, 64), 8)) == std::vector<float>(64, 0.0f));
}

TEST_CASE("matrices that would not shrink or do not fit stay as they are") {
  std::vector<float> values = random_values(128);
  CHECK(rounded_to_blocks(matrix_of(values, 16), 4).dtype == DType::f32);
  const Tensor small = rounded_to_blocks(matrix_of(values, 64), 4);
  CHECK(rounded_to_blocks(small, 4).bytes == small.bytes);
  CHECK(rounded_to_blocks(small, 8).bytes == small.bytes);
  CHECK(rounded_to_blocks(rounded_to_blocks(matrix_of(values, 64), 8), 4).dtype == DType::q4_0);
  for (const float bad : {65505.0f, -70000.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    values[70] = bad;
    CHECK(rounded_to_blocks(matrix_of(values, 64), 4).dtype == DType::f32);
    CHECK(rounded_to_blocks(matrix_of(values, 64), 8).dtype == DType::f32);
  }
}
