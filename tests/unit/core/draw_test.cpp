// The arithmetic of draws against long double.
#include "slm/core/draw.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

using namespace slm;

TEST_CASE("weights are powers of two within 2^-27, exact at the peak, zero far below it") {
  const double scale = 1.4426950408889634 * 0x1p31;
  CHECK(weight_of(3.5f, 3.5f, scale) == whole_weight);
  CHECK(weight_of(-0.0f, 0.0f, scale) == whole_weight);
  CHECK(weight_of(-std::numeric_limits<float>::infinity(), 0.0f, scale) == 0);
  CHECK(weight_of(-3e38f, 3e38f, 1e60) == 0);
  for (int i = 0; i < 200000; ++i) {
    const float logit = -static_cast<float>(i) * 0.00017f;
    const long double expected = std::exp(static_cast<long double>(logit)) * whole_weight;
    const auto found = static_cast<long double>(weight_of(logit, 0.0f, scale));
    REQUIRE(std::abs(found - expected) <= expected * 0x1p-27L + 1);
  }
}

TEST_CASE("the race's logarithm is exact to 2^-27 from the smallest number to the largest") {
  std::uint64_t u = 1;
  const auto check = [](std::uint64_t number) {
    // 1 - u, without cancellation, where u is near 1
    const long double x = static_cast<long double>(0 - number) / 0x1p64L;
    const long double expected =
        number >> 63 ? -std::log1p(-x) / std::log(2.0L) : 64 - std::log2(static_cast<long double>(number));
    REQUIRE(std::abs(static_cast<long double>(race_distance(number)) / 0x1p57L - expected) <=
            expected * 0x1p-27L + 0x1p-56L);
  };
  for (int i = 0; i < 200000; ++i) {
    u = u * 6364136223846793005u + 1442695040888963407u;
    check((u >> 12 << 12) | 2048);
    check(((u >> (i % 52 + 12)) << 12) | 2048);        // towards 0
    check(0 - (((u >> (i % 52 + 12)) << 12) | 2048));  // towards 1
  }
  CHECK(race_distance(0 - std::uint64_t{2048}) > 0);
}

TEST_CASE("the numbers of a race are the generator's upper 52 bits, for a pair of tokens per call") {
  const std::array<std::uint32_t, 4> words{0x80000000u, 0x00000fffu, 0x12345678u, 0x9abcdef0u};
  CHECK(race_uniform(words, 4) == 0x8000000000000800u);
  CHECK(race_uniform(words, 5) == 0x123456789abcd800u);
}

TEST_CASE("the order of logits: minus zero is zero, NaN is outside the infinities") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(order_key(-0.0f) == order_key(0.0f));
  CHECK(order_key(-1.0f) < order_key(-0.5f));
  CHECK(order_key(-1e-45f) < order_key(0.0f));
  CHECK(order_key(infinity) == infinity_key);
  CHECK(order_key(-infinity) == minus_infinity_key);
  CHECK(order_key(nan) > infinity_key);
  CHECK(order_key(-nan) < minus_infinity_key);
}
