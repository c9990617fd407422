// Figures in tables.
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

TEST_CASE("steps of many sequences have a separate table") {
  Report report{.version = "1.0", .date = "2026-11-22T00:00:00Z"};
  report.results = {{.benchmark = "batch",
                     .model = "AMD-Llama-135M",
                     .format = "bf16",
                     .rows = 8,
                     .seconds = 0.02,
                     .bytes = 3e8,
                     .bandwidth = 3e10,
                     .numbers = {{"tokens_per_second", 400},
                                 {"share_of_bandwidth", 0.5},
                                 {"times_one_sequence", 1.6},
                                 {"times_one_row", 1.52},
                                 {"share_of_rows", 0.95}}}};
  const std::string tables = device_tables(report);
  CHECK(tables.find("| sequences n |") != std::string::npos);
  CHECK(tables.find("| AMD-Llama-135M | bf16 | 8 | 20 | 400 | 15 | 50 % | 1.6 | 1.52 | 95 % |") != std::string::npos);
  CHECK(tables.find("Verification") == std::string::npos);
}
