// Every Llama-family fixture on both backends against logits that upstream's modeling code computed in float64.
#include <catch2/catch.hpp>
#include <cmath>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/model/load.hpp"
#include "support/golden.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The residue is float32 rounding here and float32 RoPE tables and softmax upstream (observed: at most 4e-5 between
/// two upstream precisions, with |logits| up to 10).
constexpr double tolerance = 1e-4;

int argmax(const float* row, std::int64_t width) { return static_cast<int>(std::max_element(row, row + width) - row); }

template <class B>
void compare(const char* name, B device) {
  const auto folder = fixture(text("models/", name));
  AnyModel model = load(folder, device);
  int cases = 0;
  for (const GoldenCase& golden : read_golden(folder)) {
    model.truncate(0);
    const auto logits = model.extend(golden.ids, static_cast<int>(golden.ids.size()));
    double worst = 0;
    for (std::size_t i = 0; i < golden.rows.size(); ++i) {
      for (std::int64_t v = 0; v < logits.extent(1); ++v) {
        const double difference = std::abs(golden.logits[i][static_cast<std::size_t>(v)] - logits(golden.rows[i], v));
        if (!(difference <= worst)) worst = difference;
      }
    }
    CHECK(worst < tolerance);
    for (std::size_t r = 0; r < golden.ids.size(); ++r) {
      REQUIRE(argmax(logits.row(static_cast<std::int64_t>(r)), logits.extent(1)) == golden.argmax[r]);
    }
    ++cases;
  }
  CHECK(cases > 0);
}

}  // namespace

TEST_CASE("fixture models give the expected logits") {
  const char* name = GENERATE("llama-mha3h", "llama3-gqa-scaled-tied", "llama-sharded-bf16");
  CAPTURE(name);
  SECTION("reference") { compare(name, backend::Reference{}); }
  SECTION("cpu") { compare(name, backend::Cpu{}); }
}
