#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "slm/core/rng.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"

using namespace slm;

namespace {

/// Round to nearest even by search in double precision: slow and simple.
half_t nearest_half(float value) {
  half_t best{};
  double distance = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits <= 0x7c00; ++bits) {
    const half_t candidate{static_cast<std::uint16_t>(bits)};
    const double magnitude =
        bits == 0x7c00 ? 65536.0 : double{to_float(candidate)};  // infinity takes the place of 2^16
    const double gap = std::abs(magnitude - std::abs(double{value}));
    if (gap < distance || (gap == distance && bits % 2 == 0)) {
      distance = gap;
      best = candidate;
    }
  }
  return {static_cast<std::uint16_t>(best.bits | (std::signbit(value) ? 0x8000 : 0))};
}

}  // namespace

TEST_CASE("every half survives the conversion to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const half_t half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(to_float(from_float<half_t>(value))));
    } else if (from_float<half_t>(value).bits != half.bits) {
      FAIL("half " << bits << " became " << from_float<half_t>(value).bits);
    }
  }
  CHECK(to_float(half_t{0x3c00}) == 1.0f);
  CHECK(to_float(half_t{0x0001}) == 0x1p-24f);
  CHECK(to_float(half_t{0xfbff}) == -65504.0f);
}

TEST_CASE("every bfloat16 survives the conversion to float and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bfloat16_t element{static_cast<std::uint16_t>(bits)};
    const float value = to_float(element);
    if (std::isnan(value)) {
      CHECK(std::isnan(to_float(from_float<bfloat16_t>(value))));
    } else if (from_float<bfloat16_t>(value).bits != element.bits) {
      FAIL("bfloat16 " << bits << " became " << from_float<bfloat16_t>(value).bits);
    }
  }
}

TEST_CASE("rounding is to nearest, ties to even") {
  for (const float value : {0.1f, 1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65519.0f, 65520.0f, 1e9f, 0x1p-25f, 0x1.8p-25f,
                            0x1.002p-14f, -0x1.ffep-15f, 3.14159f, -0.0f}) {
    CAPTURE(value);
    CHECK(from_float<half_t>(value).bits == nearest_half(value).bits);
  }
  CHECK(from_float<bfloat16_t>(1.0f + 0x1p-8f).bits == 0x3f80);      // a tie goes to the even neighbour
  CHECK(from_float<bfloat16_t>(1.0f + 3 * 0x1p-8f).bits == 0x3f82);  // this one upwards
  CHECK(from_float<bfloat16_t>(1.0f + 0x1.01p-8f).bits == 0x3f81);
}

TEST_CASE("philox gives the published words") {
  // Known answers of the Random123 distribution for philox4x32-10.
  CHECK(philox({0, 0, 0, 0}, 0) == std::array<std::uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  CHECK(philox({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, 0xffffffffffffffffu) ==
        std::array<std::uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
}

TEST_CASE("uniform draws stay inside (0, 1), fill it evenly, and differ between streams") {
  double sum = 0;
  int below_tenth = 0;
  const int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double draw = uniform(7, Stream::test, static_cast<std::uint64_t>(i), 3);
    REQUIRE(draw > 0);
    REQUIRE(draw < 1);
    sum += draw;
    below_tenth += draw < 0.1;
  }
  CHECK(std::abs(sum / count - 0.5) < 5 * std::sqrt(1.0 / 12 / count));  // five standard errors
  CHECK(std::abs(below_tenth / double(count) - 0.1) < 5 * std::sqrt(0.09 / count));
  CHECK(uniform(7, Stream::test, 1, 0) != uniform(7, Stream::gumbel, 1, 0));
  CHECK(uniform(7, Stream::test, 1, 0) != uniform(8, Stream::test, 1, 0));
  CHECK(uniform(7, Stream::test, 1, 0) != uniform(7, Stream::test, std::uint64_t{1} << 32 | 1, 0));
}

TEST_CASE("a view indexes row-major memory and its slices share it") {
  float data[24];
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  const View<float, 3> view(data, 2, 3, 4);
  CHECK(view(1, 2, 3) == 23);
  CHECK(view.row(1) == data + 12);
  CHECK(view.size() == 24);
  const View<const float, 3> second = view.slice(1, 1);
  CHECK(second.extent(0) == 1);
  CHECK(second(0, 0, 1) == 13);
}
