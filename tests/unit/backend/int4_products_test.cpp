// Products of four-bit weights against the same in double, for every kind of dot product of this machine.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "support/int4_products.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Shape {
  int out, in, group;
};
const std::vector<Shape> shapes{{24, 32, 32},   {16, 64, 64},     {8, 96, 32},      {100, 128, 128},
                                {128, 576, 64}, {128, 1024, 32},  {100, 4096, 128}, {24, 4096, 4096},
                                {17, 100, 100}, {128, 1000, 1000}};

}  // namespace

TEST_CASE("the kinds of dot products are those of the emulated processor") {
  const char* const expected = std::getenv("SLM_EXPECTED_DOT_SETS");
  if (expected == nullptr) return;
  std::string found;
  for (const DotSet set : available_dot_sets()) found += slm::text(found.empty() ? "" : " ", name_of(set));
  CHECK(found == expected);
}

TEST_CASE("products equal those of the dequantized weights") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  const Shape shape = GENERATE(from_range(shapes));
  const Int4TestMatrix test(random_rows(shape.out, shape.in, shape.group, 1));
  const std::vector<float> x = gaussian(static_cast<std::size_t>(33 * shape.in), 2);
  const std::vector<double> exact = exact_product(test.weights, x, 33, shape.in);
  for (const int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33}) {
    const std::vector<double> expected(exact.begin(), exact.begin() + rows * shape.out);
    CAPTURE(static_cast<int>(set), shape.out, shape.in, shape.group, rows);
    CHECK(relative_error(int4_product(set, 2, test.tiles(), x.data(), rows), expected) < 1e-4);
    // Single rows of small matrices vary around 6e-3, the error of 8 bits.
    const double bar = rows * shape.out < 500 ? 1.5e-2 : 8e-3;
    CHECK(relative_error(int4_product(set, 1, test.tiles(), x.data(), rows), expected) < bar);
  }
}

TEST_CASE("four drafted tokens and the one before them unpack each weight once") {
  for (const DotSet set : available_dot_sets()) {
    if (set == DotSet::portable || set == DotSet::neon_dot || set == DotSet::neon_i8mm) continue;
    for (const int terms : {1, 2}) {
      for (const int bits : {4, 6}) {
        CAPTURE(name_of(set), terms, bits);
        CHECK(backend::cpu::code_kernels(set, terms).blocks(5, bits).blocks == 1);
      }
    }
  }
}

TEST_CASE("more rows than sums in scratch memory") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  const Int4TestMatrix test(random_rows(40, 64, 32, 1));
  const std::vector<float> x = gaussian(600 * 64, 2);
  const std::vector<double> exact = exact_product(test.weights, x, 600, 64);
  CHECK(relative_error(int4_product(set, 2, test.tiles(), x.data(), 600), exact) < 1e-4);
}

TEST_CASE("scales of 32 bits") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  Int4Rows rows = random_rows(40, 256, 64, 3);
  for (float& scale : rows.scales) scale *= 1.0001f;
  const Int4TestMatrix test(rows, DType::f32);
  REQUIRE_FALSE(test.tiles().half_scales);
  const std::vector<float> x = gaussian(5 * 256, 4);
  const std::vector<double> exact = exact_product(test.weights, x, 5, 256);
  CHECK(relative_error(int4_product(set, 2, test.tiles(), x.data(), 5), exact) < 1e-4);
}

TEST_CASE("large activations affect only their own blocks") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  const Int4TestMatrix test(random_rows(128, 4096, 128, 5));
  std::vector<float> x = gaussian(4096, 6);
  for (const std::size_t k : {17u, 900u, 2048u, 4000u}) x[k] *= 50;
  const std::vector<double> exact = exact_product(test.weights, x, 1, 4096);
  CHECK(relative_error(int4_product(set, 2, test.tiles(), x.data(), 1), exact) < 5e-4);
  CHECK(relative_error(int4_product(set, 1, test.tiles(), x.data(), 1), exact) < 1.5e-2);
}

TEST_CASE("every code with every zero point, at scales from subnormal to large") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const float scale : {6e-8f, 6.1e-5f, 1e-3f, 0.02f, 0.1f, 1.0f, 60000.0f / 15}) {
    Int4Rows rows = random_rows(256, 32, 32, 7);
    for (int n = 0; n < 256; ++n) {
      for (int k = 0; k < 32; ++k) rows.codes[static_cast<std::size_t>(n * 32 + k)] = static_cast<std::uint8_t>(n / 16);
      rows.zeros[static_cast<std::size_t>(n)] = static_cast<std::uint8_t>(n % 16);
      rows.scales[static_cast<std::size_t>(n)] = to_float(from_float<half_t>(scale));
    }
    const Int4TestMatrix test(rows);
    REQUIRE(rows.scales[0] > 0);
    std::vector<float> x(32);
    x[13] = 1;
    for (const int terms : {1, 2}) {
      const std::vector<float> y = int4_product(set, terms, test.tiles(), x.data(), 1);
      for (int n = 0; n < 256; ++n) {
        const float expected = static_cast<float>(n / 16 - n % 16) * rows.scales[0];
        CAPTURE(static_cast<int>(set), terms, scale, n);
        REQUIRE(std::abs(y[static_cast<std::size_t>(n)] - expected) <= 3e-7f * std::abs(expected));
      }
    }
  }
}

TEST_CASE("zero activations, zero scales, and activations too small for a scale give zero") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  Int4Rows rows = random_rows(24, 128, 32, 8);
  for (std::size_t g = 0; g < 4; ++g) rows.scales[3 * 4 + g] = 0;
  const Int4TestMatrix test(rows);
  std::vector<float> x = gaussian(3 * 128, 9);
  std::fill(x.begin(), x.begin() + 128, 0.0f);
  std::fill(x.begin() + 128, x.begin() + 256, 1e-38f);
  for (const int terms : {1, 2}) {
    const std::vector<float> y = int4_product(set, terms, test.tiles(), x.data(), 3);
    for (std::size_t n = 0; n < 48; ++n) REQUIRE(y[n] == 0);
    REQUIRE(y[48 + 3] == 0);
    REQUIRE(y[48 + 4] != 0);
  }
}

TEST_CASE("NaN and infinity pass through, in their own row only") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  const Int4TestMatrix test(random_rows(40, 256, 64, 10));
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity());
  for (const int rows : {1, 2, 5, 12}) {
    const std::vector<float> clean = gaussian(static_cast<std::size_t>(rows) * 256, 11);
    std::vector<float> x = clean;
    const int row = rows / 2;
    x[static_cast<std::size_t>(row) * 256 + 77] = bad;
    for (const int terms : {1, 2}) {
      const std::vector<float> y = int4_product(set, terms, test.tiles(), x.data(), rows);
      const std::vector<float> other = int4_product(set, terms, test.tiles(), clean.data(), rows);
      for (int r = 0; r < rows; ++r) {
        for (int n = 0; n < 40; ++n) {
          const auto at = static_cast<std::size_t>(r * 40 + n);
          if (r == row) {
            REQUIRE(std::isnan(y[at]));
          } else {
            REQUIRE(y[at] == other[at]);
          }
        }
      }
    }
  }
}

TEST_CASE("the test detects another layer's zero points") {
  Int4Rows rows = random_rows(128, 1024, 128, 12);
  const Int4TestMatrix right(rows);
  for (std::uint8_t& zero : rows.zeros) zero ^= 1;
  const Int4TestMatrix wrong(rows);
  const std::vector<float> x = gaussian(1024, 13);
  const std::vector<double> exact = exact_product(right.weights, x, 1, 1024);
  CHECK(relative_error(int4_product(DotSet::portable, 2, right.tiles(), x.data(), 1), exact) < 1e-4);
  CHECK(relative_error(int4_product(DotSet::portable, 2, wrong.tiles(), x.data(), 1), exact) > 1e-2);
}
