// A draft on separate ranks, controlled by the target's first rank, with a target on several: the texts of one rank.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "slm/ranks/threads.hpp"
#include "support/errors.hpp"
#include "support/over_ranks.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using ranks::Threads;
using Team = ranks::Team<Threads>;

namespace {

/// Two texts, greedy and sampled, by a rule; adds the number of correct predictions to `held`.
template <class Rule>
void add_texts(Bits& bits, const AnyModel& draft, const AnyModel& target, Speculation speculation, Rule rule,
               std::int64_t& held) {
  SpeculativeDecoder decoder{draft, target, std::move(speculation), rule};
  for (const float temperature : {0.0f, 0.8f}) {
    const Request request{
        .prompt = {5, 90, 17, 300},
        .sampling = {.max_new_tokens = 12, .temperature = temperature, .seed = 3, .ignore_end_tokens = true},
        .logprobs = {.raw = true, .sampled = true}};
    const Stats stats = decoder.generate(request, [&](const GeneratedToken& next) {
      const double numbers[] = {static_cast<double>(next.token), next.logprob, next.sampled_logprob};
      bits.add(numbers, 3);
    });
    const std::int64_t counts[] = {stats.drafted, stats.accepted, stats.rounds, stats.bonuses};
    bits.add(counts, 4);
    held += stats.drafts_ahead_held;
  }
}

Bits texts(const AnyModel& draft, const AnyModel& target, bool overlap, std::int64_t& held) {
  Bits bits;
  for (const int length : {2, 5}) {
    const Speculation speculation{.draft_tokens = length, .overlap = overlap};
    add_texts(bits, draft, target, speculation, rule::Coupled{}, held);
    add_texts(bits, draft, target, speculation, rule::Ratio{}, held);
  }
  return bits;
}

/// run(load_target, load_draft) on the first rank, whose team holds targets; the last ranks hold drafts.
template <class Run>
void over_divided_ranks(Ranks targets, int drafts, const Run& run,
                        std::chrono::milliseconds patience = std::chrono::seconds(60)) {
  const auto divided = [&](const Threads& all) {
    const bool holds_drafts = all.rank() >= targets.size;
    const Threads of_targets = all.split(holds_drafts ? 1 : 0, all.rank());
    const Threads of_drafts = all.split(holds_drafts || all.rank() == 0 ? 1 : 0, all.rank());
    if (all.rank() > 0) {
      RankGroup group(Cpu(1), std::make_shared<Team>(holds_drafts ? of_drafts : of_targets));
      return group.follow();
    }
    RankGroup target_group(Cpu(1), std::make_shared<Team>(of_targets, patience / 4));
    RankGroup draft_group(Cpu(1), std::make_shared<Team>(of_drafts, patience / 4));
    run([&](const std::string& name) { return target_group.load(demo_pair(name), {}, {.stages = targets.stages}); },
        [&](const std::string& name) { return draft_group.load(demo_pair(name), {}, {.first_only_controls = true}); });
  };
  ranks::run_threads(targets.size + drafts, divided, patience);
}

AnyModel alone(const std::string& name) { return load(demo_pair(name), Cpu(1)); }

using Division = std::pair<Ranks, int>;  // ranks of the target, and of the draft

void check_texts(const std::string& target, const std::string& draft, const std::vector<Division>& divisions) {
  std::int64_t none = 0;
  const Bits expected = texts(alone(draft), alone(target), false, none);
  CHECK(none == 0);
  for (const auto& [targets, drafts] : divisions) {
    CAPTURE(target, draft, targets.size, targets.stages, drafts);
    over_divided_ranks(targets, drafts, [&](const auto& load_target, const auto& load_draft) {
      const AnyModel of_target = load_target(target), of_draft = load_draft(draft);
      std::int64_t held = 0;
      CHECK(texts(of_draft, of_target, true, held) == expected);
      if (draft == target) CHECK(held > 0);
      CHECK(texts(of_draft, of_target, false, held) == expected);
    });
  }
}

}  // namespace

TEST_CASE("texts of a target and a draft on different ranks equal those of one rank, with and without overlap") {
  check_texts("target-int4", "draft", {{{2}, 1}});
  check_texts("target", "target", {{{1}, 1}});
}

TEST_CASE("texts over any division of ranks equal those of one rank, with and without overlap", "[long]") {
  check_texts("target-int4", "draft", {{{1}, 1}, {{1}, 2}, {{2}, 2}, {{2, 2}, 1}});
  check_texts("target", "target", {{{2}, 1}});
}

TEST_CASE("an engine whose draft has a separate rank gives the same answers") {
  const auto serve = [](const AnyModel& draft, const AnyModel& target, bool overlap) {
    EngineOptions options{.speculation = {.draft_tokens = 3, .overlap = overlap}};
    options.cache_memory = 2 * target.pool().bytes_of(100);  // two texts, which need a third page each
    Engine engine(draft, target, options);
    std::vector<Answer> answers;
    for (std::uint64_t i = 0; i < 3; ++i) {
      std::vector<Token> prompt;
      for (std::uint64_t k = 0; k < 60 + i * 2; ++k)
        prompt.push_back(static_cast<Token>((i % 3 * 31 + k * 37) % static_cast<std::uint64_t>(target.info().vocab)));
      answers.push_back(engine.submit(
          {.prompt = std::move(prompt),
           .sampling = {
               .max_new_tokens = 75, .temperature = i % 2 == 0 ? 0.0f : 0.8f, .seed = i, .ignore_end_tokens = true}}));
    }
    engine.run();
    CHECK(engine.stats().preemptions > 0);
    Bits bits;
    for (Answer& answer : answers) {
      while (const auto next = answer.try_next()) bits.add(&next->token, 1);
    }
    return bits;
  };
  const Bits expected = serve(alone("draft"), alone("target"), false);
  over_divided_ranks({2}, 1, [&](const auto& load_target, const auto& load_draft) {
    CHECK(serve(load_draft("draft"), load_target("target"), true) == expected);
  });
}

TEST_CASE("a rank of either model that fails or stalls ends the text with an error within the timeout") {
  for (const bool stalls : {false, true}) {
    for (const int lost : {1, 2}) {  // of two ranks with the target, and one with the draft
      CAPTURE(stalls, lost);
      const auto began = std::chrono::steady_clock::now();
      std::atomic<bool> writes = false;  // a part of the text exists
      std::string found;
      const auto on_rank = [&](const Threads& all) {
        const bool holds_drafts = all.rank() == 2;
        const Threads of_targets = all.split(holds_drafts ? 1 : 0, all.rank());
        const Threads of_drafts = all.split(all.rank() == 1 ? 1 : 0, all.rank());
        const auto team = std::make_shared<Team>(holds_drafts ? of_drafts : of_targets);
        RankGroup group(Cpu(1), team);
        if (all.rank() == lost && stalls) {
          team->next();  // it executes no command
          std::this_thread::sleep_for(std::chrono::seconds(3));
          return;
        }
        std::jthread fails;
        if (all.rank() == lost) {
          fails = std::jthread([&] {
            while (!writes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            all.fail("this rank is meant to");
          });
        }
        if (all.rank() > 0) return group.follow();
        RankGroup draft_group(Cpu(1), std::make_shared<Team>(of_drafts));
        found = error_id([&] {
          const AnyModel target = group.load(demo_pair("target"));
          const AnyModel draft = draft_group.load(demo_pair("draft"), {}, {.first_only_controls = true});
          SpeculativeDecoder decoder{draft, target, {.draft_tokens = 3, .overlap = true}};
          decoder.generate(Request{.prompt = {5, 9}, .sampling = {.max_new_tokens = 400, .ignore_end_tokens = true}},
                           [&](Token) { writes = true; });
        });
        writes = true;
        throw Error("test.seen", "this rank has seen it", "It is meant to");
      };
      const std::string thrown = error_id([&] { ranks::run_threads(3, on_rank, std::chrono::milliseconds(1000)); });
      CHECK(found == "ranks.failed");
      CHECK(thrown != "no error");
      CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(20));
    }
  }
}
