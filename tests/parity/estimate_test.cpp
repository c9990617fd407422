// estimate() against loaded models: the bytes of a step for every fixture, and the memory of a larger model that is
// then resident.
#include <malloc.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/model/estimate.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<std::filesystem::path> fixture_models() {
  std::vector<std::filesystem::path> models{demo_pair("target"), demo_pair("target-int4")};
  for (const char* folder : {"models", "quantized", "gguf"}) {
    for (const auto& entry : std::filesystem::directory_iterator(fixture(folder))) {
      const bool is_model = entry.is_directory() ? std::filesystem::exists(entry.path() / "config.json")
                                                 : entry.path().extension() == ".gguf";
      if (is_model) models.push_back(entry.path());
    }
  }
  return models;
}

/// Bytes of memory of this process that are resident: allocated, and of files.
struct Resident {
  std::int64_t allocated = 0, files = 0;

  static Resident now() {
    malloc_trim(0);  // memory that was freed
    Resident resident;
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("RssAnon:")) resident.allocated = std::stoll(line.substr(8)) * 1024;
      if (line.starts_with("RssFile:")) resident.files = std::stoll(line.substr(8)) * 1024;
    }
    return resident;
  }
};

/// Fills the context of `sequences` sequences of the model.
std::vector<Sequence> fill(const AnyModel& model, int sequences, int context) {
  std::vector<Sequence> all;
  const std::vector<Token> tokens(static_cast<std::size_t>(context), 1);
  Batch batch;
  const KvPool pool = model.pool({.memory = std::size_t{1} << 30});
  for (int i = 0; i < sequences; ++i) {
    all.emplace_back(pool);
    batch.clear();
    batch.add(all.back(), tokens, {.result = RowResult::logits});
    model.forward(batch);
  }
  return all;
}

void check_resident(const std::filesystem::path& folder, const LoadOptions& loading) {
  constexpr int sequences = 3, context = 640;
  const MemoryEstimate base = estimate(folder, {.context = context, .sequences = sequences});
  MemoryEstimate expected = base;
  if (loading.bits != 0) {  // as a draft model
    expected = estimate(folder, {.context = context,
                                 .sequences = sequences,
                                 .draft = folder,
                                 .draft_head_tokens = loading.head_tokens,
                                 .draft_bits = loading.bits});
    expected.weights -= base.weights, expected.mapped -= base.mapped;
    expected.cache -= base.cache, expected.scratch -= base.scratch;
  }
  const Resident before = Resident::now();
  const AnyModel model = load(folder, backend::Cpu({.threads = 2}), loading);
  const std::vector<Sequence> texts = fill(model, sequences, context);
  const Resident after = Resident::now();
  const auto found = static_cast<double>(after.allocated - before.allocated) +
                     (expected.mapped == 0 ? 0.0 : static_cast<double>(after.files - before.files));
  CAPTURE(expected.weights, expected.mapped, expected.cache, expected.scratch, found);
  CHECK(static_cast<double>(expected.total()) == Approx(found).epsilon(0.03));
}

}  // namespace

TEST_CASE("The bytes of a step of every fixture are estimated exactly") {
  int compared = 0;
  for (const auto& path : fixture_models()) {
    CAPTURE(path.string());
    std::optional<AnyModel> model;
    if (error_id([&] { model = load(path); }) != "no error") continue;  // a part of a model, or a damaged one
    const MemoryEstimate expected = estimate(path, {.context = 8});
    CHECK(static_cast<std::int64_t>(expected.step_bytes) == model->info().step_bytes);
    CHECK(expected.weights >= expected.step_bytes);
    CHECK(expected.mapped <= expected.weights);
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("Estimates are within 3 % of the memory that is resident after loading and filling the context") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  WARN("SKIPPED: sanitizers use memory themselves");
  return;
#endif
  const TemporaryFolder folder;
  const ModelConfig shape{
      .layers = 8, .hidden = 768, .ffn = 2048, .heads = 12, .kv_heads = 4, .head_dim = 64, .vocab = 16000};
  write_random_checkpoint<bfloat16_t>(folder.path(), shape, 5, true, 1024);
  SECTION("mapped") { check_resident(folder.path(), {}); }
  SECTION("packed") { check_resident(folder.path(), {.bits = 8}); }
}

TEST_CASE("Estimates grow with sequences, context and a draft model, and shrink with the format") {
  const auto target = demo_pair("target"), draft = demo_pair("draft");
  const MemoryEstimate one = estimate(target, {.context = 256});
  const MemoryEstimate two = estimate(target, {.context = 256, .sequences = 2});
  CHECK(two.cache == 2 * one.cache);
  CHECK(two.weights == one.weights);
  CHECK(estimate(target, {.context = 128}).cache == one.cache / 2);
  CHECK(estimate(target, {.context = 256, .kv_format = KvFormat::f16}).cache == one.cache / 2);
  const MemoryEstimate drafted = estimate(target, {.context = 256, .draft = draft});
  const MemoryEstimate alone = estimate(draft, {.context = 256});
  CHECK(drafted.weights == one.weights + alone.weights);
  CHECK(drafted.cache == one.cache + alone.cache);
  CHECK(drafted.step_bytes == one.step_bytes);
  const EstimateOptions fewer_bits{.context = 256, .draft = draft, .draft_bits = 4};
  CHECK(estimate(target, fewer_bits).weights < drafted.weights);
  CHECK(error_id([&] { estimate(target, {.sequences = -1}); }) == "estimate.sequences");
  CHECK(error_id([&] { estimate(target, {.context = 1 << 30}); }) == "model.context");
  CHECK(error_id([&] { estimate(target / "nowhere"); }) == "checkpoint.no-folder");
}
