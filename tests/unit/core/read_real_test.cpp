// Numbers in decimal texts, in any locale.
#include "slm/core/read_real.hpp"

#include <catch2/catch.hpp>
#include <clocale>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

using slm::detail::read_real;

TEST_CASE("a decimal text becomes the nearest double") {
  CHECK(read_real("0") == 0.0);
  CHECK(read_real("12") == 12.0);
  CHECK(read_real("-1.5e3") == -1500.0);
  CHECK(read_real(".5") == 0.5);
  CHECK(read_real("5.") == 5.0);
  CHECK(read_real("2E-2") == 0.02);
  CHECK(read_real("0.1") == 0.1);
  CHECK(read_real("9007199254740993") == 9007199254740992.0);
  CHECK(read_real("9007199254740993.0000000000000000000000000001") == 9007199254740994.0);
  CHECK(read_real("1.7976931348623157e308") == std::numeric_limits<double>::max());
  CHECK(read_real("5e-324") == std::numeric_limits<double>::denorm_min());
  CHECK(read_real("0.0e-999") == 0.0);
  CHECK(std::signbit(read_real("-0.0").value()));
  CHECK(read_real("inf") == HUGE_VAL);
  CHECK(read_real("-Infinity") == -HUGE_VAL);
  CHECK(std::isnan(read_real("NaN").value()));
}

TEST_CASE("other texts and numbers outside of the range are no doubles") {
  for (const char* wrong : {"",   "-", "+1",    "--1", "-+1",     " 1",     "1 ",    "1,5",    "0x10",   "1e", "1e+",
                            "e5", ".", "1.2.3", "1-2", "infinit", "nan(1)", "1e999", "-1e999", "1e-999", "1_0"}) {
    CAPTURE(wrong);
    CHECK(read_real(wrong) == std::nullopt);
  }
  CHECK(read_real(std::string("1\0", 2)) == std::nullopt);
  CHECK(read_real(std::string(100'000, '9')) == std::nullopt);
  CHECK(read_real("0." + std::string(100'000, '3')) == 1.0 / 3);
}

TEST_CASE("the locale does not change a number") {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_NUMERIC, name) == nullptr) continue;
    CHECK(read_real("1.5") == 1.5);
    CHECK(read_real("1,5") == std::nullopt);
  }
  std::setlocale(LC_NUMERIC, before.c_str());
}
