// Reports are read as written, and damaged ones are rejected.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/command/report.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

using namespace slm::bench;
using slm::testing::error_id;
using slm::testing::TemporaryFolder;
using Json = nlohmann::json;

namespace {

Report sample() {
  Report report =
      make_report({"A processor | of \"someone\"", "avx512", "Linux 6.1", "cpu", std::int64_t{1} << 34, 16, 8});
  report.results.push_back(
      {"decode", "AMD-Llama-135M", "bf16", 1, 0.0061, 2.7e8, 4.4e10, {{"tokens_per_second", 164.0}}});
  report.results.push_back({"prefill", "AMD-Llama-135M", "w4a16", 512, 0.3, 1e8, 4.4e10, {}});
  report.failures.push_back("decode/CodeLlama-7B: no memory");
  return report;
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

Json sample_json() {
  const TemporaryFolder folder;
  write_report(folder.path() / "a.json", sample());
  return Json::parse(read(folder.path() / "a.json"));
}

std::string fault_of(const Json& json) {
  return error_id([&] { parse_report(json.dump(), "a.json"); });
}

}  // namespace

TEST_CASE("a report is read as written, and no other file remains in the folder") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "report.json";
  write_report(path, sample());
  CHECK(read_report(path) == sample());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("an invalid report is not written, and the old file remains") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "report.json";
  write_report(path, sample());
  Report broken = sample();
  broken.results[0].seconds = std::nan("");
  CHECK(error_id([&] { write_report(path, broken); }) == "bench.bad-report");
  broken = sample();
  broken.device.name = "";
  CHECK(error_id([&] { write_report(path, broken); }) == "bench.bad-report");
  CHECK(read_report(path) == sample());
  CHECK(error_id([&] { write_report(folder.path() / "none" / "report.json", sample()); }) == "io.unwritable");
}

TEST_CASE("the error of a missing field names it") {
  const Json whole = sample_json();
  REQUIRE(fault_of(whole) == "no error");
  for (const char* pointer : {"", "/device", "/results/0"}) {
    for (const auto& [name, value] : whole.at(Json::json_pointer(pointer)).items()) {
      Json damaged = whole;
      damaged.at(Json::json_pointer(pointer)).erase(name);
      INFO(pointer << "/" << name);
      CHECK(fault_of(damaged) == (name == "schema" ? "bench.other-schema" : "bench.bad-report"));
      try {
        parse_report(damaged.dump(), "a.json");
      } catch (const slm::Error& error) {
        if (name != "schema") CHECK(std::string(error.what()).find(name + "'") != std::string::npos);
      }
    }
  }
}

TEST_CASE("every field of another type is rejected") {
  const Json whole = sample_json();
  for (const char* pointer : {"", "/device", "/results/0", "/results/0/numbers"}) {
    for (const auto& [name, value] : whole.at(Json::json_pointer(pointer)).items()) {
      for (const Json& other : {Json(nullptr), Json(true), Json("3\n4"), Json(""), Json(-1.5), Json::array({1}),
                                Json(std::string(1000, 'x'))}) {
        if (std::string(pointer).ends_with("numbers") && other.is_number()) continue;  // any number is valid
        Json damaged = whole;
        damaged.at(Json::json_pointer(pointer))[name] = other;
        INFO(pointer << "/" << name << " = " << other);
        CHECK(fault_of(damaged).starts_with("bench."));
      }
    }
  }
}

TEST_CASE("numbers out of range are rejected") {
  const Json whole = sample_json();
  const auto with = [&](const char* pointer, const Json& value) {
    Json damaged = whole;
    damaged.at(Json::json_pointer(pointer)) = value;
    return fault_of(damaged);
  };
  CHECK(with("/results/0/seconds", 0) == "bench.bad-report");
  CHECK(with("/results/0/bandwidth", -1) == "bench.bad-report");
  CHECK(with("/results/0/bandwidth", 0) == "no error");
  CHECK(with("/results/0/bytes", -1) == "bench.bad-report");
  CHECK(with("/results/0/bytes", 0) == "no error");
  CHECK(with("/results/0/rows", 0) == "bench.bad-report");
  CHECK(with("/results/0/rows", 18446744073709551615u) == "bench.bad-report");
  CHECK(with("/device/cores", 0) == "bench.bad-report");
  CHECK(with("/device/threads", 0) == "no error");
  CHECK(with("/device/memory_bytes", 18446744073709551615u) == "bench.bad-report");
  Json many = whole;
  for (int i = 0; i < 101; ++i) many["results"][0]["numbers"][std::to_string(i)] = i;
  CHECK(fault_of(many) == "bench.bad-report");
}

TEST_CASE("files that are not reports have separate errors") {
  const auto fault = [](const std::string& content) { return error_id([&] { parse_report(content, "a.json"); }); };
  CHECK(fault("{\"schema\": \"slm-bench-1\"}") == "bench.other-schema");
  CHECK(fault("{}") == "bench.other-schema");
  CHECK(fault("{\"schema\": 2}") == "bench.other-schema");
  CHECK(fault("[1]") == "json.not-an-object");
  CHECK(fault("{\"schema\": \"slm-bench-2\", \"schema\": \"slm-bench-2\"}") == "json.duplicate-name");
  CHECK(fault("\xff") == "json.malformed");
  CHECK(fault(std::string(100000, '[')) == "json.too-deep");
  const std::string whole = sample_json().dump();
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    CHECK(fault(whole.substr(0, length)) == "json.malformed");
  }
  const TemporaryFolder folder;
  CHECK(error_id([&] { read_report(folder.path() / "none.json"); }) == "io.unreadable");
  CHECK(error_id([&] { read_report(folder.path()); }) == "io.unreadable");
}
