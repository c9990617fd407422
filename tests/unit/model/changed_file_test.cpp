// Models whose files are truncated during loading or use: every call ends in an Error, and no process ends.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/config/registry.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

namespace fs = std::filesystem;

/// Of some pages, so that most of it is beyond the remaining part.
constexpr ModelConfig shape{
    .layers = 2, .hidden = 128, .ffn = 256, .heads = 4, .kv_heads = 2, .head_dim = 32, .vocab = 301};

struct Files {
  TemporaryFolder folder;
  fs::path weights = folder.path() / "model.safetensors";

  Files() { write_random_checkpoint<bfloat16_t>(folder.path(), shape, 1); }
  void shorten(std::uintmax_t by) const { fs::resize_file(weights, fs::file_size(weights) - by); }
};

template <class Model>
std::vector<float> step(const Model& model) {
  Sequence sequence = model.sequence();
  Batch batch;
  batch.add(sequence, std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8}, {.result = RowResult::logits});
  model.forward(batch);
  const auto row = batch.logits(0).row(0);
  return {row, row + model.info().vocab};
}

template <class Model>
std::string id_of_step(const Model& model) {
  return error_id([&] { step(model); });
}

}  // namespace

TEST_CASE("a model with truncated mapped weights rejects all further steps") {
  for (const std::uintmax_t by : {std::uintmax_t{40}, std::uintmax_t{100000}}) {  // within its last page; of many
    const Files files;
    const AnyModel model = load(files.folder.path(), backend::Cpu(3));
    const std::vector<float> before = step(model);
    CHECK(step(model) == before);
    const auto size = fs::file_size(files.weights);
    files.shorten(by);
    for (int i = 0; i < 3; ++i) CHECK(id_of_step(model) == "io.file-changed");
    CHECK_THROWS_WITH(step(model), Catch::Contains("model.safetensors"));
    CHECK(error_id([&] { model.pool().model_digest(); }) == "io.file-changed");
    if (by > 4096) {
      fs::resize_file(files.weights, size);  // with other content
      CHECK(id_of_step(model) == "io.file-changed");
    }
  }
}

TEST_CASE("copied weights need no file") {
  const Files files;
  const AnyModel model = load(files.folder.path(), backend::Cpu({.threads = 2, .copy_weights = true}));
  const std::vector<float> before = step(model);
  files.shorten(100000);
  CHECK(step(model) == before);
}

TEST_CASE("truncation during loading is an error, with copied weights or not") {
  for (const bool copied : {false, true}) {
    const Files files;
    LoadOptions options;
    options.progress = [&](double done) {
      if (done < 1) files.shorten(100000);
    };
    CHECK(error_id([&] { load(files.folder.path(), backend::Cpu({.threads = 2, .copy_weights = copied}), options); }) ==
          "io.file-changed");
  }
}

TEST_CASE("an engine ends its answers with the error of a truncated file") {
  const Files files;
  const AnyModel model = load(files.folder.path(), backend::Cpu(2));
  Engine engine{Drafter{}, model};
  Answer first = engine.submit({.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 4}});
  engine.step();
  Answer second = engine.submit({.prompt = {1, 2, 4}, .sampling = {.max_new_tokens = 4}});
  files.shorten(100000);
  CHECK(error_id([&] { engine.run(); }) == "io.file-changed");
  for (Answer* answer : {&first, &second}) {
    CHECK(error_id([&] {
            while (answer->next()) {
            }
          }) == "io.file-changed");
  }
}
