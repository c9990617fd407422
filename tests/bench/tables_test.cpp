// Figures as tables show them.
#include "bench/command/tables.hpp"

#include <catch2/catch.hpp>

using namespace slm::bench;

TEST_CASE("figures have three digits") {
  CHECK(shown(0) == "0");
  CHECK(shown(0.01234) == "0.0123");
  CHECK(shown(0.5) == "0.5");
  CHECK(shown(1) == "1");
  CHECK(shown(2.499) == "2.5");
  CHECK(shown(9.999) == "10");
  CHECK(shown(78.94) == "78.9");
  CHECK(shown(99.97) == "100");
  CHECK(shown(1234.4) == "1234");
  CHECK(shown(1.5e9) == "1.5e+09");
}
