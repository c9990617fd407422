// Sequences with adapters on a model over ranks have the bits of one rank.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/load.hpp"
#include "support/adapted_texts.hpp"
#include "support/in_turn.hpp"
#include "support/over_ranks.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::Reference;

namespace {

/// The logits of a text with each of some adapters, and without. wrong: with the last two of them exchanged.
Bits answers(const AnyModel& model, const Checkpoint& checkpoint, bool wrong = false) {
  std::vector<AdapterRef> adapters = some_adapters(model, checkpoint);
  adapters.push_back(nullptr);
  if (wrong) std::swap(adapters.back(), adapters.front());
  Bits bits;
  const auto text = some_text(3, std::min(10, model.info().context), model.info().vocab);
  for (const AdapterRef& adapter : adapters) {
    for (const std::vector<float>& row : logits_alone(model, text, adapter))
      bits.add(row.data(), static_cast<std::int64_t>(row.size()));
  }
  return bits;
}

template <class B>
void check_ranks(const std::filesystem::path& folder, std::initializer_list<Ranks> sizes, const auto& device) {
  const Checkpoint checkpoint(folder);
  const AnyModel alone = load(folder, B{device()});
  const Bits expected = answers(alone, checkpoint);
  CHECK(answers(alone, checkpoint, true) != expected);
  for (const Ranks how : in_turn(sizes)) {
    CAPTURE(folder, how.size, how.stages);
    CHECK(over_ranks<B>(how, device, [&](const auto& load_here) {
            return answers(load_here(folder, LoadOptions{}), checkpoint);
          }) == expected);
  }
}

}  // namespace

TEST_CASE("adapters of every family on the CPU: any number of ranks and stages gives the bits of one") {
  for (const char* name : adapted_fixtures)
    check_ranks<Cpu>(fixture(text("models/", name)), {{1}, {2}, {3}, {8}, {2, 2}, {4, 2}, {2, 1, true}, {5, 2, true}},
                     one_thread);
  check_ranks<Cpu>(demo_pair("target-int4"), {{3}, {6, 3}}, one_thread);
}

TEST_CASE("adapters of recurrent layers and of gated attention: any number of ranks and stages gives the bits of one") {
  for (const char* name : {"lfm2", "granitehybrid", "falcon-h1-norm", "qwen35-mha"})
    check_ranks<Cpu>(fixture(text("models/", name)), {{3}, {2, 2}, {3, 2, true}}, one_thread);
}

TEST_CASE("adapters of layers of different shapes, streams and latents: any number of ranks gives the bits of one") {
  for (const char* name : {"gemma4-e2b", "gemma3n", "deepseek-v3"})
    check_ranks<Cpu>(fixture(text("models/", name)), {{3}, {3, 1, true}}, one_thread);
  check_ranks<Cpu>(fixture("models/deepseek-v3"), {{4, 2}}, one_thread);
}

TEST_CASE("adapters on the reference backend: any number of ranks gives the bits of one") {
  for (const char* name : adapted_fixtures)
    check_ranks<Reference>(fixture(text("models/", name)), {{3}, {4, 2}}, [] { return Reference{}; });
}

TEST_CASE("sequences with and without adapters in one batch over ranks have the same bits as alone") {
  for (const Ranks how : {Ranks{2}, Ranks{3, 3}, Ranks{4, 2}}) {
    over_ranks<Cpu>(how, one_thread, [&](const auto& load_here) {
      const AnyModel model = load_here(demo_pair("target"), LoadOptions{});
      const auto outcome = run_mixed(model, some_adapters(model, Checkpoint(demo_pair("target"))), 7, 120, 1);
      CHECK(outcome.compared > 50);
      CHECK(outcome.wrong == 0);
      return Bits{};
    });
  }
}
