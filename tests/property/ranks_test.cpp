// A model over p ranks, run by the first, gives the bits of one rank, split by matrices, by layers, or both: logits,
// hidden states, tokens and log-probabilities.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/hybrid_fixtures.hpp"
#include "support/in_turn.hpp"
#include "support/logits_in_pieces.hpp"
#include "support/newer_fixtures.hpp"
#include "support/over_ranks.hpp"
#include "support/paths.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_weights.hpp"
#include "support/rank_texts.hpp"
#include "support/shaped_configs.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Reference;
using ranks::Threads;

namespace {

/// The results of one rank of the backend, and p.
template <class B>
void check_ranks(const std::filesystem::path& folder, std::initializer_list<Ranks> sizes, const auto& device,
                 LoadOptions draft_options = {.weights = WeightType::bf16}, LoadOptions options = {}) {
  const Bits expected = answers(load(folder, B{device()}, draft_options), load(folder, B{device()}, options));
  for (const Ranks how : in_turn(sizes)) {
    CAPTURE(folder, how.size, how.stages);
    CHECK(over_ranks<B>(how, device, [&](const auto& load_here) {
            return answers(load_here(folder, draft_options), load_here(folder, options));
          }) == expected);
  }
}

/// The answers of an engine whose cache is too small for its requests.
Bits serve(const AnyModel& draft, const AnyModel& target, int new_tokens) {
  EngineOptions options;
  options.cache_memory = 3 * target.pool().bytes_of(100 + new_tokens);
  Engine engine(draft, target, options);
  std::vector<Answer> answers;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Request request{.prompt = some_tokens(i % 3, 50 + static_cast<int>(i) * 5, target.info().vocab),
                    .sampling = {.max_new_tokens = new_tokens, .temperature = i % 2 == 0 ? 0.0f : 0.8f, .seed = i},
                    .logprobs = {.raw = true, .sampled = true}};
    request.sampling.ignore_end_tokens = true;
    answers.push_back(engine.submit(std::move(request)));
  }
  Bits bits;
  while (engine.step()) {
  }
  for (Answer& answer : answers) {
    while (const auto next = answer.try_next()) {
      const double numbers[] = {static_cast<double>(next->token), next->logprob, next->sampled_logprob};
      bits.add(numbers, 3);
    }
  }
  CHECK(engine.stats().preemptions > 0);
  return bits;
}

void check_engine(const std::filesystem::path& draft, const std::filesystem::path& target, int new_tokens,
                  std::initializer_list<Ranks> sizes) {
  const LoadOptions options{.cache_format = KvFormat::int8};
  const Bits expected = serve(load(draft, Cpu(1), options), load(target, Cpu(1), options), new_tokens);
  for (const Ranks how : sizes) {
    CAPTURE(target, how.size, how.stages);
    CHECK(over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
            return serve(load_here(draft, options), load_here(target, options), new_tokens);
          }) == expected);
  }
}

}  // namespace

TEST_CASE("every family on the CPU: any number of ranks gives the bits of one") {
  for (const std::string& name : folders)
    check_ranks<Cpu>(fixture("models/" + name), {{1}, {2}, {3}, {4}, {8}}, one_thread);
}

TEST_CASE("newer families on the CPU: any number of ranks and stages gives the bits of one") {
  for (const std::string& name : newer_traits) {
    const auto folder = fixture("models/" + name);
    if (Checkpoint(folder).config().layers < 3) {
      check_ranks<Cpu>(folder, {{2}, {4}, {2, 2}}, one_thread);
    } else {
      check_ranks<Cpu>(folder, {{3}, {8}, {4, 2}, {3, 3}}, one_thread);
    }
  }
}

TEST_CASE("mixtures of experts on the CPU: any number of ranks and stages gives the bits of one") {
  for (const std::string& name : expert_traits)
    check_ranks<Cpu>(fixture("models/" + name), {{3}, {8}, {4, 2}, {2, 1, true}}, one_thread);
  check_ranks<Cpu>(fixture("models/gpt-oss-mxfp4"), {{2}, {3}, {2, 2}}, one_thread, LoadOptions{});
  check_ranks<Cpu>(fixture("gguf/qwen3moe.gguf"), {{2}, {5}}, one_thread, LoadOptions{});
}

TEST_CASE("recurrent layers on the CPU: any number of ranks and stages gives the bits of one") {
  for (const std::string& name : hybrid_fixtures)
    check_ranks<Cpu>(fixture("models/" + name), {{2}, {3}, {2, 2}, {4, 2}, {2, 1, true}}, one_thread, LoadOptions{});
  check_ranks<Cpu>(fixture("models/lfm2"), {{8}, {6, 6}, {4, 3, true}}, one_thread);
}

TEST_CASE("a prompt in several parts through pipeline stages, and its truncation, have the bits of one rank") {
  const auto read = [](const AnyModel& model) {
    Bits bits;
    Sequence texts[] = {model.sequence(), model.sequence()};
    Batch batch;
    for (const int kept : {0, 197, 130, 20}) {  // a state of a row, one between snapshots, and none before it
      batch.clear();
      for (std::uint64_t i = 0; i < 2; ++i) {
        if (kept != 0) texts[i].truncate(kept);
        batch.add(texts[i], some_tokens(6 + i, 200 - kept, model.info().vocab),
                  {.result = RowResult::logits, .rows = 3});
      }
      model.forward(batch);
      for (int i = 0; i < 2; ++i) bits.add(batch.logits(i).data, batch.logits(i).size());
    }
    return bits;
  };
  for (const char* name :
       {"granitemoeshared", "lfm2", "qwen35", "nemotron-h-moe", "falcon-h1", "gemma4-moe", "deepseek-v3"}) {
    const auto folder = fixture(text("models/", name));
    const Bits expected = read(load(folder, Cpu{one_thread()}));
    for (const Ranks how : in_turn({Ranks{2}, Ranks{2, 2}, Ranks{4, 2}})) {
      CAPTURE(name, how.size, how.stages);
      CHECK(over_ranks<Cpu>(how, one_thread,
                            [&](const auto& load_here) { return read(load_here(folder, LoadOptions{})); }) == expected);
    }
  }
}

TEST_CASE("a mixture of experts over ranks of the reference backend is refused") {
  CHECK(error_id([&] {
          return over_ranks<Reference>(
              Ranks{2}, [] { return Reference{}; },
              [&](const auto& load_here) {
                load_here(fixture("models/qwen3moe"), LoadOptions{});
                return Bits{};
              });
        }) == "model.no-mixtures");
}

TEST_CASE("layers of different shapes and residual streams: any number of ranks gives the bits of one") {
  for (const char* name : {"gemma4-e2b", "gemma3n"}) {
    check_ranks<Cpu>(fixture(text("models/", name)), {{2}, {3}, {8}, {3, 1, true}}, one_thread, LoadOptions{});
    check_ranks<Reference>(
        fixture(text("models/", name)), {{2}}, [] { return Reference{}; }, LoadOptions{});
  }
  check_ranks<Cpu>(fixture("models/gemma4-moe"), {{2}, {3}, {8}, {2, 2}, {4, 2}, {3, 3}, {3, 2, true}}, one_thread);
}

TEST_CASE("tokens beyond a table of layers' inputs have its first row on every rank") {
  const TemporaryFolder folder;
  Json config = gemma3n_config();
  config["vocab_size_per_layer_input"] = 90;
  write_random_weights(folder.path(), config, 4);
  const auto read = [](const AnyModel& model) {
    const auto logits = logits_in_pieces(model, {3, 89, 90, 95, 100, 0, 90, 12}, 3);
    Bits bits;
    bits.add(logits.data(), static_cast<std::int64_t>(logits.size()));
    return bits;
  };
  const Bits expected = read(load(folder.path(), Cpu{1}));
  CHECK(over_ranks<Cpu>(Ranks{3}, one_thread, [&](const auto& load_here) {
          return read(load_here(folder.path(), LoadOptions{}));
        }) == expected);
}

TEST_CASE("stages do not pass on streams, inputs of layers or keys and values, and reject models that share them") {
  const auto load_in = [](const std::filesystem::path& folder, Ranks how) {
    return error_id([&] {
      over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
        load_here(folder, LoadOptions{});
        return Bits{};
      });
    });
  };
  for (const char* name : {"models/gemma4-e2b", "models/gemma3n"}) {
    CHECK(load_in(fixture(name), {2, 2}) == "ranks.pipeline");
    CHECK(load_in(fixture(name), {2}) == "no error");
  }
  Json config = gemma4_config(false);
  config["hidden_size_per_layer_input"] = 0;
  const TemporaryFolder folder;
  write_random_weights(folder.path() / "two stages", config, 5);
  CHECK(load_in(folder.path() / "two stages", {2, 2}) == "ranks.pipeline");
  config.merge_patch({{"num_kv_shared_layers", 1}, {"layer_types", nullptr}});
  config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention",
                           "full_attention"};
  write_random_weights(folder.path() / "one stage", config, 5);
  check_ranks<Cpu>(folder.path() / "one stage", {{2, 2}, {4, 2}}, one_thread);
}

TEST_CASE("latent attention on the CPU: any number of ranks and stages gives the bits of one") {
  for (const char* name : {"deepseek-v2-lite", "deepseek-v3", "glm4-moe-lite"})
    check_ranks<Cpu>(fixture(text("models/", name)), {{2}, {3}, {8}, {2, 2}, {4, 2}, {3, 2, true}}, one_thread);
}

TEST_CASE("every family on the CPU: pipeline stages, of one rank or several each, give the bits of one") {
  for (const std::string& name : folders)
    check_ranks<Cpu>(fixture("models/" + name), {{2, 2}, {4, 2}, {2, 1, true}, {3, 2, true}}, one_thread);
  for (const char* target : {"target", "target-int4"}) {
    check_ranks<Cpu>(demo_pair(target), {{2, 2}, {3, 3}, {4, 4}, {6, 3}, {6, 6}, {4, 1, true}, {5, 2, true}},
                     one_thread, LoadOptions{});
  }
}

TEST_CASE("keys and values in every format: ranks with some heads each give the bits of one") {
  for (const KvFormat format : kv_formats) {
    const LoadOptions options{.cache_format = format};
    for (const char* name : {"llama-mha3h", "llama-bias", "llama3-gqa-scaled-tied", "mpt-foundry-gqa-qkgn-swa"})
      check_ranks<Cpu>(fixture(text("models/", name)), {{2}, {3}, {4, 2}}, one_thread, options, options);
    check_ranks<Cpu>(demo_pair("target"), {{4}, {6}}, one_thread, options, options);
  }
}

TEST_CASE("every family on the reference backend: any number of ranks gives the bits of one", "[long]") {
  for (const std::string& name : folders)
    check_ranks<Reference>(fixture("models/" + name), {{3}, {2, 2}}, [] { return Reference{}; });
}

TEST_CASE(
    "four-bit layers in every layout, and GGUF's blocks of every type: any number of ranks gives the bits of one") {
  const LoadOptions as_stored{};
  for (const QuantizedForm& form :
       {QuantizedForm{.layout = Int4Layout::awq_gemm}, QuantizedForm{.layout = Int4Layout::awq_gemm, .group = 8},
        QuantizedForm{.layout = Int4Layout::awq_gemv},
        QuantizedForm{.layout = Int4Layout::packed_rows, .symmetric = true},
        QuantizedForm{.layout = Int4Layout::quark_reorder, .group = -1}}) {
    const TemporaryFolder folder;
    write_quantized_checkpoint(fixture("models/llama-bias"), folder.path(), form);
    CAPTURE(std::string(name_of(form.layout)), form.group);
    check_ranks<Cpu>(folder.path(), {{2}, {3}, {4, 2}}, one_thread, as_stored);
  }
  check_ranks<Cpu>(demo_pair("target-int4"), {{2}, {3}}, one_thread, as_stored);
  check_ranks<Cpu>(fixture("gguf/all-types.gguf"), {{2}, {3}, {8}, {2, 2}}, one_thread);
  check_ranks<Cpu>(fixture("gguf/phi3-swa7.gguf"), {{3}, {4, 2}}, one_thread);
}

TEST_CASE("on every instruction set, with prompts in large steps and chunks, ranks give the bits of one") {
  // A chunk of rows ends within the first text and within the second, which continues in another step.
  const auto read = [](const AnyModel& model) {
    Bits bits;
    Sequence texts[] = {model.sequence(), model.sequence(), model.sequence()};
    Batch batch;
    for (const int more : {150, 9}) {
      batch.clear();
      for (std::uint64_t i = 0; i < 3; ++i)
        batch.add(texts[i], some_tokens(6 + i, more, model.info().vocab), {.result = RowResult::logits, .rows = 5});
      model.forward(batch);
      for (int i = 0; i < 3; ++i) bits.add(batch.logits(i).data, batch.logits(i).size());
    }
    return bits;
  };
  for (const backend::Isa isa : backend::available_isas()) {
    const backend::CpuOptions options{.threads = 1, .isa = isa};
    for (const auto& path : {demo_pair("target"), demo_pair("target-int4"), fixture("gguf/all-types.gguf"),
                             fixture("models/qwen2-swa-from-layer1")}) {
      const Bits expected = read(load(path, Cpu(options)));
      for (const Ranks how : in_turn({Ranks{3}, Ranks{2, 2}, Ranks{4, 2}})) {
        CAPTURE(path, std::string(name_of(isa)), how.size, how.stages);
        CHECK(over_ranks<Cpu>(
                  how, [&] { return options; },
                  [&](const auto& load_here) { return read(load_here(path, LoadOptions{})); }) == expected);
      }
    }
  }
}

TEST_CASE("an engine whose texts share, fork and lose pages gives the same answers over ranks") {
  check_engine(demo_pair("draft"), demo_pair("target"), 150, {{2}, {3}, {2, 2}, {4, 2}, {3, 2, true}});
}

TEST_CASE("an engine whose texts share and lose recurrent states gives the same answers over ranks") {
  check_engine(fixture("models/qwen35"), fixture("models/lfm2"), 80, {{2}, {3, 2, true}});
}

TEST_CASE("a text saved over ranks continues on one rank, and vice versa") {
  const auto more = [](const AnyModel& model, Sequence& text) {
    Bits bits;
    Batch batch;
    batch.add(text, some_tokens(2, 9, model.info().vocab), {.result = RowResult::logits, .rows = 9});
    model.forward(batch);
    bits.add(batch.logits(0).data, batch.logits(0).size());
    return bits;
  };
  const auto saved_by = [](const AnyModel& model) {
    Sequence text = model.sequence();
    Batch batch;
    batch.add(text, some_tokens(1, 200, model.info().vocab));
    model.forward(batch);
    std::ostringstream file;
    text.save(file);
    return file.str();
  };
  const auto resumed_by = [&](const AnyModel& model, const std::string& bytes) {
    std::istringstream file(bytes);
    Sequence text = Sequence::load(file, model.pool());
    return more(model, text);
  };
  for (const auto& folder : {demo_pair("target"), fixture("models/qwen2-long"), fixture("models/granitehybrid"),
                             fixture("models/deepseek-v3")}) {
    for (const KvFormat format : {KvFormat::f32, KvFormat::int8}) {
      const LoadOptions options{.cache_format = format};
      const AnyModel alone = load(folder, Cpu(1), options);
      const std::string saved = saved_by(alone);
      const Bits expected = resumed_by(alone, saved);
      for (const Ranks how : in_turn({Ranks{2}, Ranks{3}, Ranks{4}, Ranks{5}, Ranks{2, 2}, Ranks{4, 2},
                                      Ranks{2, 1, true}, Ranks{5, 2, true}})) {
        CAPTURE(folder, how.size, how.stages, how.first_only_controls);
        std::string saved_over_ranks;
        CHECK(over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
                const AnyModel model = load_here(folder, options);
                saved_over_ranks = saved_by(model);
                return resumed_by(model, saved);
              }) == expected);
        CHECK(saved_over_ranks == saved);
      }
    }
  }
}

TEST_CASE("stages that do not fit the ranks or the layers are rejected before loading") {
  const auto load_in = [](Ranks how) {
    return error_id([&] {
      over_ranks<Cpu>(how, one_thread, [](const auto& load_here) {
        load_here(demo_pair("draft"), LoadOptions{});
        return Bits{};
      });
    });
  };
  const int layers = Checkpoint(demo_pair("draft")).config().layers;
  CHECK(load_in({layers, layers}) == "no error");
  CHECK(load_in({layers + 1, layers + 1}) == "ranks.pipeline");
  CHECK(load_in({3, 2}) == "ranks.pipeline");
  CHECK(load_in({2, 0}) == "ranks.pipeline");
  CHECK(load_in({2, 2, true}) == "ranks.pipeline");
  CHECK(load_in({1, 1, true}) == "ranks.pipeline");
}

TEST_CASE("a rank with other results is named") {
  const auto isas = backend::available_isas();
  const auto run = [&](backend::Isa other) {
    return error_id([&] {
      ranks::run_threads(2, [&](const Threads& ranks) {
        const auto team = std::make_shared<ranks::Team<Threads>>(ranks);
        RankGroup group(Cpu({.threads = 1, .isa = ranks.rank() == 0 ? backend::Isa::automatic : other}), team);
        if (ranks.rank() > 0) return group.follow();
        const AnyModel model = group.load(demo_pair("draft"));
        model.sequence();
      });
    });
  };
  CHECK(run(backend::Isa::automatic) == "no error");
  if (isas.size() > 1) CHECK(run(isas.front() == Cpu(1).isa() ? isas.back() : isas.front()) == "ranks.different");
}
