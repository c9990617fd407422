// A draft that runs while the target verifies: the tokens, the drafts and the accepted tokens are those without
// overlap.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/side_thread.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/engine/engine.hpp"
#include "support/errors.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int vocab = 14;
const std::vector<Token> prompt{1, 2, 3};

/// A slow target.
Watched<ToyModel> slow(const ToyOptions& options, int microseconds = 150) {
  return {ToyModel{options},
          [microseconds](const Batch&) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }};
}

/// A draft that remembers rolled-back tokens: its output depends on its whole input history.
class Unforgetting {
 public:
  explicit Unforgetting(ToyOptions options) : model_(with_log(std::move(options))) {}
  const ModelInfo& info() const { return model_.info(); }
  Sequence sequence() const { return model_.sequence(); }
  KvPool pool(KvPoolOptions options = {}) const { return model_.pool(options); }
  void forward(Batch& batch) const {
    model_.forward(batch);
    const Batch::Item& item = batch.items().front();
    if (item.spec.result != RowResult::logits) return;
    const std::vector<float> row = model_.logits_after(model_.log()->fed);
    std::copy(row.begin(), row.end(), batch.logits_at(item.answer));
  }

 private:
  static ToyOptions with_log(ToyOptions options) {
    options.log = true;
    return options;
  }
  ToyModel model_;
};

/// All results that must not depend on overlap.
struct Outcome {
  std::vector<Token> tokens;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> at_depth;
  std::string disabled_reason;
  FinishReason reason = FinishReason::length;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome(std::vector<Token> tokens, const Stats& stats) {
  return {std::move(tokens),
          {stats.rounds, stats.plain_steps, stats.zero_rounds, stats.partial_rounds, stats.full_rounds, stats.drafted,
           stats.evaluated, stats.accepted, stats.corrections, stats.bonuses, stats.emitted, stats.trimmed,
           stats.draft_faults, stats.draft_length, stats.draft_length_changes},
          stats.accepted_at_depth,
          stats.disabled_reason,
          stats.finish_reason};
}

struct Guesses {
  std::int64_t made = 0, held = 0;
  void add(const Stats& stats) {
    made += stats.drafts_ahead;
    held += stats.drafts_ahead_held;
  }
};

/// Two requests with one decoder; the second has the prefix of the first, and its reader stops it.
template <class Draft, class Target, class Rule>
std::vector<Outcome> answers(Draft draft, Target target, Speculation speculation, Rule rule, const Sampling& sampling,
                             Guesses* guesses = nullptr) {
  SpeculativeDecoder decoder{std::move(draft), std::move(target), std::move(speculation), rule};
  std::vector<Outcome> found;
  for (const std::size_t most : {std::size_t{1000}, std::size_t{11}}) {
    std::vector<Token> tokens;
    const Stats stats = decoder.generate(prompt, sampling, [&](Token token) {
      tokens.push_back(token);
      return tokens.size() < most;
    });
    if (guesses != nullptr) guesses->add(stats);
    found.push_back(outcome(std::move(tokens), stats));
  }
  return found;
}

template <class Draft, class Target, class Rule>
void check_same(const Draft& draft, const Target& target, Speculation speculation, Rule rule, const Sampling& sampling,
                Guesses& guesses) {
  const auto expected = answers(draft, target, speculation, rule, sampling);
  speculation.overlap = true;
  REQUIRE(answers(draft, target, speculation, rule, sampling, &guesses) == expected);
}

std::vector<Sampling> some_samplings(std::uint64_t seed) {
  std::vector<Sampling> samplings(4);
  samplings[0].temperature = 0;
  samplings[1].temperature = 0.9f;
  samplings[2].top_k = 5;
  samplings[2].top_p = 0.8f;
  samplings[3].repetition_penalty = 1.3f;
  samplings[3].frequency_penalty = 0.2f;
  for (Sampling& sampling : samplings) {
    sampling.max_new_tokens = 24 + static_cast<int>(seed % 5);
    sampling.seed = seed;
  }
  return samplings;
}

}  // namespace

TEST_CASE("under every rule, with any draft and draft length, rounds equal those without overlap") {
  Guesses guesses;
  std::uint64_t seed = 0;
  for (const double share : {0.0, 0.2, 0.5, 1.0}) {
    for (const int length : {1, 2, 3, 5, 8}) {
      ++seed;
      ToyOptions target{.vocab = vocab, .seed = seed, .spread = 4};
      if (seed % 3 == 0) target.end_tokens = {4};
      if (seed % 4 == 0) target.context = 20;
      ToyOptions draft = target;
      draft.other_share = share;
      if (seed % 5 == 0) draft.context = 15;
      if (seed % 7 == 0) draft.vocab = vocab - 2;
      for (const Sampling& sampling : some_samplings(seed)) {
        CAPTURE(share, length, seed, sampling.temperature);
        const Speculation fixed{.draft_tokens = length};
        const auto check = [&](const Speculation& speculation, auto rule) {
          check_same(ToyModel{draft}, slow(target), speculation, rule, sampling, guesses);
        };
        check(fixed, rule::Coupled{});
        check(fixed, rule::Match{});
        check(fixed, rule::Ratio{});
        check(fixed, rule::Block{});
        check({.draft_tokens = length, .plain_step_every = 3}, rule::Ratio{});
        check({.draft_length = draft_length::Heuristic{.start = length, .limit = 9}}, rule::Block{});
        check({.draft_length = draft_length::Confidence{.threshold = 0.3, .limit = length}}, rule::Ratio{});
        check({.draft_length = draft_length::Confidence{.threshold = 0.3, .limit = length, .drop = true}},
              rule::Coupled{});
      }
    }
  }
  CHECK(guesses.made > 1000);
  CHECK(guesses.held > guesses.made / 10);
  CHECK(guesses.held < guesses.made);
}

TEST_CASE("a target that is ready before the draft ends the early draft, and changes nothing") {
  const ToyOptions options{.vocab = vocab, .seed = 5};
  const Sampling sampling{.max_new_tokens = 60, .temperature = 0.8f, .seed = 3};
  for (const int pause : {0, 20, 80, 200}) {
    const auto wait = [pause](const Batch&) { std::this_thread::sleep_for(std::chrono::microseconds(pause)); };
    Guesses guesses;
    check_same(Watched<ToyModel>(ToyModel{options}, wait), slow(options, 100), {.draft_tokens = 4}, rule::Ratio{},
               sampling, guesses);
  }
}

TEST_CASE("a draft equal to the target predicts the last token of every round; another one predicts none or some") {
  const ToyOptions target{.vocab = 2000, .seed = 8};
  const auto guesses_of = [&](double share, auto rule) {
    ToyOptions draft = target;
    draft.other_share = share;
    Guesses guesses;
    const Sampling sampling{.max_new_tokens = 61, .temperature = 0.8f, .seed = 7};
    // The target waits for a step of the draft; without one, not long.
    const auto steps = std::make_shared<std::atomic<int>>(0);
    const auto count = [steps](const Batch&) { ++*steps; };
    const auto wait = [steps](const Batch&) {
      const int before = *steps;
      for (int i = 0; i < 500 && *steps == before; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    answers(Watched<ToyModel>(ToyModel{draft}, count), Watched<ToyModel>(ToyModel{target}, wait),
            {.draft_tokens = 4, .overlap = true}, rule, sampling, &guesses);
    return guesses;
  };
  const Guesses own = guesses_of(0, rule::Coupled{});
  CHECK(own.made == 14);  // 11 rounds before the last two that fit into 61 tokens, and 3 of the truncated text
  CHECK(own.held == 13);  // except the last of these
  CHECK(guesses_of(0, rule::Ratio{}).held == own.held);
  const Guesses other = guesses_of(1, rule::Coupled{});
  CHECK(other.made > 40);
  CHECK(other.held == 0);
}

TEST_CASE("the test detects a draft that does not forget wrong predictions") {
  const ToyOptions target{.vocab = vocab, .seed = 2, .memory = 1};
  ToyOptions draft = target;
  draft.other_share = 0.4;
  draft.memory = 1 << 20;
  const Sampling sampling{.max_new_tokens = 40, .temperature = 0.9f, .seed = 5};
  const auto with = [&](bool overlap) {
    return answers(Unforgetting{draft}, slow(target, 500), {.draft_tokens = 3, .overlap = overlap}, rule::Ratio{},
                   sampling);
  };
  CHECK(with(false) == with(false));
  CHECK(with(true) != with(false));
}

TEST_CASE("many sequences, and an engine's, equal those without overlap") {
  const ToyOptions target{.vocab = vocab, .seed = 4, .end_tokens = {2}};
  ToyOptions draft = target;
  draft.other_share = 0.2;
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Request request{.prompt = {static_cast<Token>(i), 3, 5},
                    .sampling = {.max_new_tokens = 10 + static_cast<int>(i) * 3, .seed = i}};
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
    requests.push_back(std::move(request));
  }
  Guesses guesses;
  const auto decoded = [&](bool overlap) {
    SpeculativeDecoder decoder{
        ToyModel{draft}, slow(target, 300), {.draft_tokens = 3, .overlap = overlap}, rule::Block{}};
    std::vector<std::vector<Token>> texts(requests.size());
    const auto stats = decoder.generate(
        requests,
        [&](std::size_t i, const GeneratedToken& token) {
          texts[i].push_back(token.token);
          return true;
        },
        5);
    std::vector<Outcome> found;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      found.push_back(outcome(texts[i], stats[i]));
      if (overlap) guesses.add(stats[i]);
    }
    return found;
  };
  CHECK(decoded(true) == decoded(false));
  CHECK(guesses.held > 0);

  const auto served = [&](bool overlap) {
    EngineOptions options{.speculation = {.draft_tokens = 3, .overlap = overlap}, .max_running = 5};
    Engine engine{ToyModel{draft}, slow(target, 300), options};
    std::vector<Answer> waiting;
    for (const Request& request : requests) waiting.push_back(engine.submit(request));
    engine.run();
    std::vector<std::vector<Token>> texts;
    for (Answer& answer : waiting) {
      texts.emplace_back();
      while (const auto token = answer.try_next()) texts.back().push_back(token->token);
    }
    return texts;
  };
  CHECK(served(true) == served(false));
}

TEST_CASE("a draft that fails at any position of the text fails as without overlap") {
  const ToyOptions options{.vocab = vocab, .seed = 6};
  ToyOptions draft = options;
  draft.other_share = 0.2;
  const Sampling sampling{.max_new_tokens = 40, .temperature = 0.8f, .seed = 9};
  for (const bool throws : {true, false}) {
    for (int length = 4; length < 40; ++length) {
      // By the text's length, since the number of the draft's steps depends on overlap.
      struct Failing {
        ToyModel model;
        int length;
        bool throws;
        const ModelInfo& info() const { return model.info(); }
        Sequence sequence() const { return model.sequence(); }
        KvPool pool(KvPoolOptions how = {}) const { return model.pool(how); }
        void forward(Batch& batch) const {
          model.forward(batch);
          const Batch::Item& item = batch.items().front();
          if (item.sequence->length() != length || item.spec.result != RowResult::logits) return;
          if (!throws) {
            batch.logits_at(item.answer)[3] = std::numeric_limits<float>::quiet_NaN();
            return;
          }
          item.sequence->truncate(length - static_cast<int>(item.count));
          throw std::runtime_error("lost the device");
        }
      };
      Guesses guesses;
      CAPTURE(throws, length);
      check_same(Failing{ToyModel{draft}, length, throws}, slow(options), {.draft_tokens = 3}, rule::Ratio{}, sampling,
                 guesses);
    }
  }
}

TEST_CASE("an exception of the target during a draft is rethrown, and the next text works") {
  const ToyOptions options{.vocab = vocab, .seed = 7};
  const Sampling sampling{.max_new_tokens = 30, .temperature = 0.8f, .seed = 2};
  AutoregressiveDecoder plain{ToyModel{options}};
  std::vector<Token> expected, found;
  plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
  for (int call = 1; call < 6; ++call) {
    const auto spoil = [call](int at, std::span<float>) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      if (at == call) throw Error("gpu.lost", "the device is lost", "Look for it");
    };
    SpeculativeDecoder decoder{ToyModel{options}, SpoiltModel{options, spoil}, {.draft_tokens = 4, .overlap = true}};
    found.clear();
    CHECK(error_id([&] { decoder.generate(prompt, sampling, [&](Token token) { found.push_back(token); }); }) ==
          "gpu.lost");
    CHECK(std::equal(found.begin(), found.end(), expected.begin()));
    CHECK(decoder.history().size() == prompt.size() + found.size());
    found.clear();
    decoder.generate(prompt, sampling, [&](Token token) { found.push_back(token); });
    CHECK(found == expected);
  }
}

TEST_CASE("the loss of a rank of the draft is an error immediately, not the end of drafting") {
  const ToyOptions options{.vocab = vocab, .seed = 7};
  for (int call = 1; call < 12; ++call) {
    const auto spoil = [call](int at, std::span<float>) {
      if (at == call) throw Error("ranks.failed", "rank 1 has failed", "Start it again");
    };
    SpeculativeDecoder decoder{SpoiltModel{options, spoil}, slow(options), {.draft_tokens = 3, .overlap = true}};
    CHECK(error_id([&] { decoder.generate(prompt, {.max_new_tokens = 30}, [](Token) {}); }) == "ranks.failed");
  }
}

TEST_CASE("a text can be cancelled during an early draft") {
  const ToyOptions options{.vocab = vocab, .seed = 3};
  CancelSource cancel;
  SpeculativeDecoder decoder{ToyModel{options}, slow(options), {.draft_tokens = 4, .overlap = true}};
  int tokens = 0;
  Request request{.prompt = prompt, .sampling = {.max_new_tokens = 1000}, .cancel = cancel.get_token()};
  const Stats stats = decoder.generate(request, [&](Token) {
    if (++tokens == 12) cancel.request_stop();
  });
  CHECK(stats.finish_reason == FinishReason::cancelled);
  CHECK(stats.emitted == 15);  // the round's
}

TEST_CASE("a side thread computes beside its owner, and passes exceptions on") {
  detail::SideThread side;
  for (int i = 0; i < 200; ++i) {
    std::thread::id there;
    int sum = 0;
    std::atomic<bool> met = false;
    side.run(
        [&] {
          there = std::this_thread::get_id();
          while (!met) std::this_thread::yield();
          sum = i;
        },
        [&] { met = true; });
    CHECK(sum == i);
    CHECK(there != std::this_thread::get_id());
    CHECK(side.done());
  }
  const auto fail = [](const char* why) { return [why] { throw std::runtime_error(why); }; };
  CHECK_THROWS_WITH(side.run(fail("there"), [] {}), "there");
  CHECK_THROWS_WITH(side.run([] {}, fail("here")), "here");
  CHECK_THROWS_WITH(side.run(fail("there"), fail("here")), "there");
  side.run([] {}, [] {});
}
