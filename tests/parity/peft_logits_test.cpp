// Adapters written by PEFT, on fixture models of every family, against the logits of transformers and PEFT in float64
// (tests/fixtures/adapters/make_peft.py).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/model/load.hpp"
#include "support/golden.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// float32 rounding here, float32 RoPE tables and softmax there.
constexpr double tolerance = 1e-4;

struct Found {
  double worst = 0;       // difference of a given logit
  int wrong_choices = 0;  // rows with another largest logit
};

/// If the text is processed in chunks.
Found compare(const AnyModel& model, const AdapterRef& adapter, const GoldenCase& golden, std::size_t piece) {
  Sequence sequence = model.sequence();
  sequence.adapt(adapter);
  Batch batch;
  Found found;
  std::size_t given = 0;
  for (std::size_t first = 0; first < golden.ids.size(); first += piece) {
    const auto tokens = std::span(golden.ids).subspan(first, std::min(piece, golden.ids.size() - first));
    batch.clear();
    batch.add(sequence, tokens, {.result = RowResult::logits, .rows = static_cast<int>(tokens.size())});
    model.forward(batch);
    const View<const float, 2> logits = batch.logits(0);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
      const std::span row(logits.row(static_cast<std::int64_t>(r)), static_cast<std::size_t>(logits.extent(1)));
      found.wrong_choices += std::max_element(row.begin(), row.end()) - row.begin() != golden.argmax[first + r];
      if (given == golden.rows.size() || golden.rows[given] != static_cast<int>(first + r)) continue;
      const std::vector<double>& expected = golden.logits[given++];
      REQUIRE(expected.size() == row.size());
      for (std::size_t i = 0; i < row.size(); ++i) {
        const double difference = std::abs(expected[i] - double{row[i]});
        if (!(difference <= found.worst)) found.worst = difference;
      }
    }
  }
  CHECK(given == golden.rows.size());
  return found;
}

}  // namespace

TEMPLATE_TEST_CASE("with an adapter written by PEFT every family gives PEFT's logits", "", backend::Reference,
                   backend::Cpu) {
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("adapters"))) {
    if (!entry.is_directory()) continue;
    const std::string name = entry.path().filename();
    CAPTURE(name);
    const AnyModel model = load(fixture("models/" + name), TestType{});
    const AdapterRef adapter = load_adapter(entry.path(), model);
    const GoldenCase golden = read_golden(entry.path()).front();
    for (const std::size_t piece : {golden.ids.size(), std::size_t{7}, std::size_t{1}}) {
      const Found found = compare(model, adapter, golden, piece);
      CAPTURE(piece);
      CHECK(found.worst < tolerance);
      CHECK(found.wrong_choices == 0);
    }
    CHECK(compare(model, nullptr, golden, golden.ids.size()).worst > 0.1);
    ++folders;
  }
  CHECK(folders == 15);
}
