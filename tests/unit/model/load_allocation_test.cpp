// Loading with each allocation failing in turn: it ends in bad_alloc or Error, and the next load succeeds.
#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <vector>

#include "slm/model/load.hpp"
#include "slm/quantize.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/allocations.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

/// Loads with every allocation failing in turn; a successful load gives the correct model.
void check_loads(const fs::path& path, WeightType weights = WeightType::as_stored) {
  const backend::Cpu device(2);
  const auto load_it = [&] { return load(path, device, {.weights = weights}); };
  const std::vector<float> expected = some_logits(load_it());
  int wrong = 0, failed = 0;
  for (const Failing whose : {Failing::here, Failing::elsewhere}) {
    fail_each_allocation(
        [&](Failure& failure) {
          std::optional<AnyModel> model;
          failed += !failure.spares([&] { model = load_it(); });
          if (model) wrong += some_logits(*model) != expected;
        },
        whose);
  }
  CHECK(wrong == 0);
  CHECK(failed > 100);
  CHECK(some_logits(load_it()) == expected);
}

}  // namespace

TEST_CASE("a folder loads completely or fails, for any failing allocation") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1);
  check_loads(model);
  check_loads(model, WeightType::bf16);
  quantize::Options options;
  options.search = false;
  quantize::quantize(model, folder.path() / "awq", {}, options);
  check_loads(folder.path() / "awq");
}

TEST_CASE("a GGUF file loads completely or fails, for any failing allocation") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1);
  for (const DType type : {DType::f32, DType::q8_0}) {
    const fs::path file = folder.path() / (std::string(name_of(type)) + ".gguf");
    quantize::write_gguf(model, file, {.type = type});
    check_loads(file);
  }
}

TEST_CASE("a tokenizer loads and encodes completely or fails, for any failing allocation") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1), file = folder.path() / "model.gguf";
  quantize::write_gguf(model, file, {.type = DType::f32});
  for (const fs::path& path : {model, file}) {
    const auto encode = [&] { return Tokenizer::from(path).encode("thequickbrownfox"); };
    const std::vector<Token> expected = encode();
    int wrong = 0;
    const long count = fail_each_allocation([&](Failure& failure) {
      std::vector<Token> found;
      if (failure.spares([&] { found = encode(); })) wrong += found != expected;
    });
    CHECK(wrong == 0);
    CHECK(count > 50);
  }
}
