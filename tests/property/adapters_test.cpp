// Adapters: rows with an adapter have the results of the merged weights, rows without one those of the base model, each
// with the same bits as alone, beside any other adapters.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "slm/adapters.hpp"
#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/model/load.hpp"
#include "slm/model/model.hpp"
#include "support/adapted_texts.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct TinyConfig {
  static constexpr const char* name = "tiny";
  static constexpr ModelConfig value = tiny_shape;
};

}  // namespace

TEMPLATE_TEST_CASE("in every family an adapter has the results of merged weights", "", backend::Reference,
                   backend::Cpu) {
  const DType types[] = {DType::f32, DType::bf16, DType::f16};
  std::uint64_t seed = 0;
  std::vector<const char*> names(std::begin(adapted_fixtures), std::end(adapted_fixtures));
  for (const char* name : {"lfm2", "lfm2-conv4-bias", "granitehybrid", "falcon-h1-norm", "qwen35-text", "qwen3next",
                           "gemma3n", "gemma4-e2b", "gemma4-moe", "deepseek-v3"})
    names.push_back(name);  // which only these backends run
  for (const char* name : names) {
    const Checkpoint checkpoint(fixture(text("models/", name)));
    const TemporaryFolder folder;
    const auto trained =
        write_random_adapter(folder.path() / "adapter", checkpoint,
                             {.seed = ++seed, .size = 0.5f, .type = types[seed % 3], .by_root = seed % 2 == 0});
    write_merged(folder.path() / "merged", checkpoint, trained);
    const AnyModel model = load(checkpoint.folder(), TestType{});
    const AnyModel merged = load(folder.path() / "merged", TestType{});
    const AdapterRef adapter = load_adapter(folder.path() / "adapter", model);
    // The queries of gated attention and their gates are two products.
    CHECK((adapter->changes.size() > trained.size()) == checkpoint.config().attention_gate);
    const auto text = some_text(seed, std::min(20, model.info().context), model.info().vocab);
    const LogitRows found = logits_alone(model, text, adapter), expected = logits_alone(merged, text, nullptr);
    CAPTURE(name);
    CHECK(distance(found, expected) < 1e-4);
    CHECK(distance(found, logits_alone(model, text, nullptr)) > 1e-2);
  }
}

TEST_CASE("an adapter works with the GGUF file of its model as with the folder") {
  for (const char* name : {"llama-mha3h", "qwen2-bias-tied", "phi3-swa7", "gpt2", "mpt-alibi-4h", "lfm2", "qwen35",
                           "granitehybrid", "gemma4-e2b"}) {
    const Checkpoint checkpoint(fixture(text("models/", name)));
    const TemporaryFolder folder;
    write_random_adapter(folder.path(), checkpoint, {.size = 0.5f});
    const AnyModel model = load(checkpoint.folder(), backend::Cpu{2});
    const AnyModel converted = load(fixture(text("gguf/", name, ".gguf")), backend::Cpu{2});
    const auto text = some_text(2, 20, model.info().vocab);
    const LogitRows expected = logits_alone(model, text, load_adapter(folder.path(), model));
    CAPTURE(name);
    CHECK(distance(logits_alone(converted, text, load_adapter(folder.path(), converted)), expected) < 1e-4);
  }
}

TEMPLATE_TEST_CASE("2 to 40 sequences with and without adapters of any rank in one batch have the same bits as alone",
                   "", backend::Reference, backend::Cpu) {
  const bool slow = std::string(TestType::name) == "reference";
  for (const char* name : {"llama3-gqa-scaled-tied", "qwen3-qknorm-headdim", "phi3-swa7", "gpt2", "opt-postln-proj",
                           "mpt-foundry-gqa-qkgn-swa", "lfm2", "qwen35-text", "falcon-h1"}) {
    const Checkpoint checkpoint(fixture(text("models/", name)));
    const AnyModel model = load(checkpoint.folder(), TestType{});
    const auto adapters = some_adapters(model, checkpoint);
    const int length = std::min(slow ? 30 : 120, model.info().context);
    for (const int count : {2, slow ? 5 : 11, slow ? 8 : 40}) {
      const MixedOutcome outcome = run_mixed(model, adapters, count, length, static_cast<std::uint64_t>(count));
      CAPTURE(name, count);
      CHECK(outcome.compared > count);
      CHECK(outcome.wrong == 0);
    }
  }
}

TEST_CASE("with one to three threads, float and four-bit bases, sequences with adapters keep their bits") {
  for (const char* folder : {"target", "target-int4"}) {
    const Checkpoint checkpoint(demo_pair(folder));
    LogitRows first;
    for (const int threads : {1, 2, 3}) {
      const AnyModel model = load(checkpoint.folder(), backend::Cpu(threads));
      const auto adapters = some_adapters(model, checkpoint);
      const MixedOutcome outcome = run_mixed(model, adapters, 7, 90, 5);
      CAPTURE(folder, threads);
      CHECK(outcome.compared > 20);
      CHECK(outcome.wrong == 0);
      const LogitRows rows = logits_alone(model, some_text(3, 20, model.info().vocab), adapters[0]);
      if (first.empty()) first = rows;
      CHECK(rows == first);
    }
  }
}

TEST_CASE("a compile-time config, Dynamic, and every instruction set apply an adapter equally") {
  const TemporaryFolder folder;
  write_random_checkpoint<bfloat16_t>(folder.path() / "model", tiny_shape, 3);
  const Checkpoint checkpoint(folder.path() / "model");
  const auto trained = write_random_adapter(folder.path() / "adapter", checkpoint, {.type = DType::bf16});
  write_merged(folder.path() / "merged", checkpoint, trained);
  const auto text = some_text(4, 40, tiny_shape.vocab);
  const LogitRows expected = logits_alone(load(folder.path() / "merged", backend::Reference{}), text, nullptr);
  for (const backend::Isa isa : backend::available_isas()) {
    const backend::Cpu device{{.threads = 2, .isa = isa}};
    const AnyModel fixed = Model<TinyConfig, Bf16, backend::Cpu>::load(folder.path() / "model", device);
    const AnyModel dynamic = load(folder.path() / "model", device);
    const AdapterRef adapter = load_adapter(folder.path() / "adapter", fixed);
    const LogitRows rows = logits_alone(fixed, text, adapter);
    CHECK(rows == logits_alone(dynamic, text, load_adapter(folder.path() / "adapter", dynamic)));
    CHECK(distance(rows, expected) < 1e-4);
    CHECK(run_mixed(fixed, some_adapters(fixed, checkpoint), 9, 60, 8).wrong == 0);
  }
}

TEST_CASE("the test detects exchanged adapters") {
  const Checkpoint checkpoint(fixture("models/llama-mha3h"));
  const AnyModel model = load(checkpoint.folder(), backend::Cpu{2});
  const auto adapters = some_adapters(model, checkpoint);
  CHECK(run_mixed(model, adapters, 6, 40, 2).wrong == 0);
  CHECK(run_mixed(model, adapters, 6, 40, 2, true).wrong > 10);
}

TEMPLATE_TEST_CASE("an untrained adapter changes nothing", "", backend::Reference, backend::Cpu) {
  for (const char* name : {"llama-mha3h", "phi-partial", "mpt-alibi-4h"}) {
    const Checkpoint checkpoint(fixture(text("models/", name)));
    const TemporaryFolder folder;
    write_random_adapter(folder.path(), checkpoint, {.size = 0});
    const AnyModel model = load(checkpoint.folder(), TestType{});
    const auto text = some_text(9, 20, model.info().vocab);
    CHECK(logits_alone(model, text, load_adapter(folder.path(), model)) == logits_alone(model, text, nullptr));
  }
}

TEST_CASE("a sequence that changes its adapter is recomputed") {
  const Checkpoint checkpoint(fixture("models/mistral-swa8"));
  const AnyModel model = load(checkpoint.folder(), backend::Cpu{2});
  const auto adapters = some_adapters(model, checkpoint);
  const auto text = some_text(5, 50, model.info().vocab);
  Sequence sequence(model.pool({.share_prefixes = true}), 0, adapters[0]);
  Batch batch;
  batch.add(sequence, std::span(text).first(49));
  model.forward(batch);
  std::stringstream saved;
  sequence.save(saved);
  for (const AdapterRef& adapter : {adapters[1], AdapterRef{}, adapters[0]}) {
    Sequence other = sequence.fork();
    other.adapt(adapter);
    batch.clear();
    batch.add(other, std::span(text).subspan(49), {.result = RowResult::logits});
    model.forward(batch);
    CHECK(same_bits(batch.logits(0).row(0), logits_alone(model, text, adapter).back()));
  }
  const auto load_with = [&](const AdapterRef& adapter) {
    saved.seekg(0);
    return Sequence::load(saved, model.pool(), 0, adapter);
  };
  CHECK(error_id([&] { load_with(nullptr); }) == "sequence.other-adapter");
  CHECK(error_id([&] { load_with(adapters[1]); }) == "sequence.other-adapter");
  Sequence loaded = load_with(adapters[0]);
  batch.clear();
  batch.add(loaded, std::span(text).subspan(49), {.result = RowResult::logits});
  model.forward(batch);
  CHECK(same_bits(batch.logits(0).row(0), logits_alone(model, text, adapters[0]).back()));
}

TEST_CASE("another model rejects an adapter, also before it is placed, and so do models without adapter support") {
  const auto folder = fixture("models/llama-mha3h");
  const Checkpoint checkpoint(folder);
  const TemporaryFolder adapter;
  write_random_adapter(adapter.path(), checkpoint, {});
  const AnyModel model = load(folder, backend::Cpu{1});
  const AnyModel other = load(folder, backend::Cpu{1});
  Sequence sequence = other.sequence();
  sequence.adapt(load_adapter(adapter.path(), model));
  Batch batch;
  batch.add(sequence, some_text(1, 3, model.info().vocab));
  CHECK(error_id([&] { other.forward(batch); }) == "adapter.other-model");
  const AdapterRef on_host = other.info().read_adapter(adapter.path());
  sequence.adapt(on_host);
  CHECK(error_id([&] { other.forward(batch); }) == "adapter.other-model");
  CHECK(error_id([&] { model.info().place_adapter(on_host); }) == "adapter.other-model");
  sequence.adapt(other.info().place_adapter(on_host));
  other.forward(batch);
  CHECK(other.info().place_adapter(sequence.adapter()) == sequence.adapter());
  CHECK(error_id([&] { load_adapter(adapter.path(), ToyModel({})); }) == "adapter.backend");
  const AnyModel scaled = load(fixture("gguf/falcon-h1.gguf"), backend::Cpu{1});  // its weights contain factors
  CHECK(error_id([&] { load_adapter(adapter.path(), scaled); }) == "adapter.unsupported");
}
