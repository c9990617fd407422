// Draft length policies on simulated rounds.
#include "slm/decode/draft_length.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::draft_length;
using slm::testing::mix;

TEST_CASE("the time of a step between measured row counts is interpolated") {
  StepSeconds steps;
  REQUIRE(steps.at(3) == 0);
  REQUIRE_FALSE(steps.reaches_down_to(3));
  steps.take(1, 1.0);
  REQUIRE(steps.at(5) == 1.0);
  REQUIRE(steps.count_above(1, 9) == 0);
  steps.take(5, 1.4);
  REQUIRE(steps.count_above(1, 9) > 0);
  REQUIRE(steps.count_above(1, 4) == 0);
  REQUIRE(steps.count_above(5, 5) == 0);
  REQUIRE(steps.count_above(5, 9) == 0);
  REQUIRE(steps.at(3) == Approx(1.2));
  REQUIRE(steps.at(7) == Approx(1.6));
  REQUIRE(steps.at(1) == 1.0);
  REQUIRE(steps.reaches_down_to(1));
  StepSeconds many;
  for (const int rows : {72, 64, 64}) many.take(rows, 1.0);  // one point, a little beyond 64
  REQUIRE(many.reaches_down_to(64));
  REQUIRE_FALSE(many.reaches_down_to(16));
  for (const int rows : {100, 104}) steps.take(rows, 10.2);  // adjacent numbers share a point
  REQUIRE(steps.at(102) == Approx(10.2));
  REQUIRE(steps.at(5) == Approx(1.4));
  steps.take(1 << 20, 50);
  REQUIRE(steps.at(1 << 20) == Approx(50));
  REQUIRE(steps.at(1 << 21) > 50);
}

TEST_CASE(
    "the heuristic is Hugging Face's: 5, plus 2 when all are accepted, else minus 1, restarted for each request") {
  Policy policy = Heuristic{};
  policy.restart();
  std::vector<int> seen;
  for (const bool full :
       {true, true, false, false, true, false, false, false, false, false, false, false, false, false}) {
    const int k = policy.next();
    seen.push_back(k);
    policy.observe({k, full ? k : k - 1});
  }
  REQUIRE(seen == std::vector<int>{5, 7, 9, 8, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  policy.observe({1, 0});
  REQUIRE(policy.next() == 1);
  policy.restart();
  REQUIRE(policy.next() == 5);
}

TEST_CASE("in steady state the heuristic has its calculated acceptance") {
  // P(full) = 1/3 in equilibrium; simulated values of the cost model: .432 at .7, .490 at .8, .546 at .9.
  const double expected[][2] = {{0.7, 0.432}, {0.8, 0.490}, {0.9, 0.546}};
  for (const auto& [alpha, rate] : expected) {
    std::uint64_t state = 1;
    Heuristic heuristic{};
    double drafted = 0, accepted = 0;
    for (int round = 0; round < 200000; ++round) {
      const int k = heuristic.next();
      int a = 0;
      while (a < k && static_cast<double>(mix(++state) >> 11) * 0x1p-53 < alpha) ++a;
      drafted += k;
      accepted += a;
      heuristic.observe({k, a});
    }
    REQUIRE(accepted / drafted == Approx(rate).margin(0.004));
  }
}

TEST_CASE("the confidence policy keeps the unlikely token, or drops it on request") {
  using namespace slm::testing;
  // A draft that is correct but uncertain: its choice, 1 among 8 ids, has a probability of .28.
  const auto flatten = [](int, std::span<float> rows) {
    for (float& logit : rows) logit = logit > 0 ? 1.0f : 0.0f;
  };
  std::vector<Token> script;
  for (int i = 0; i < 60; ++i) script.push_back(static_cast<Token>(1 + i % 7));
  const std::vector<Token> prompt{1};
  const auto run = [&](Confidence confidence) {
    SpeculativeDecoder decoder{
        SpoiltModel{ScriptedModel{script, 8}, flatten}, ScriptedModel{script, 8}, {.draft_length = confidence}};
    std::vector<Token> text = prompt;
    const Stats stats =
        decoder.generate(prompt, {.max_new_tokens = 30, .temperature = 0}, [&](Token token) { text.push_back(token); });
    REQUIRE(text == std::vector<Token>(script.begin(), script.begin() + 31));
    return stats;
  };
  const Stats kept = run({.threshold = 0.5, .limit = 10});
  REQUIRE(kept.drafted == 15);  // one per round of two tokens
  REQUIRE(kept.accepted == 15);
  REQUIRE(run({.threshold = 0.5, .limit = 10, .drop = true}).drafted == 0);
  REQUIRE(run({.threshold = 0.2, .limit = 10}).rounds == 3);
}

TEST_CASE("draft lengths are selected by name") {
  REQUIRE(parse("7").next() == 7);
  REQUIRE(parse("0").most() == 0);
  REQUIRE(parse("heuristic").next() == 5);
  REQUIRE(parse("confidence").wants_confidence());
  REQUIRE(parse("adaptive").most() == 12);
  REQUIRE(parse("adaptive").adaptive());
  for (const char* wrong : {"", "-1", "four", "4.5", "99999"}) {
    REQUIRE_THROWS_WITH(parse(wrong), Catch::Contains("decode.unknown-draft-length"));
  }
}

TEST_CASE("interleaved plain steps do not train the policy") {
  using namespace slm::testing;
  std::vector<Token> script;
  for (int i = 0; i < 300; ++i) script.push_back(static_cast<Token>(1 + i % 7));
  SpeculativeDecoder decoder{ScriptedModel{script, 8},
                             ScriptedModel{script, 8},
                             {.draft_length = Heuristic{.limit = 9}, .plain_step_every = 2}};
  const std::vector<Token> prompt{1};
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = 100, .temperature = 0}, [](Token) {});
  // Rounds of 6, 1, 8, 1, 10, 1, 10, 1, ... tokens.
  REQUIRE(stats.emitted_histogram[6] == 1);
  REQUIRE(stats.emitted_histogram[8] == 1);
  REQUIRE(stats.emitted_histogram[10] >= 7);
  REQUIRE(stats.acceptance_rate() == 1.0);
}

TEST_CASE("the default draft length is adaptive, except under rules whose text depends on it") {
  CHECK(policy_of({}).adaptive());
  CHECK(policy_of({}, rule::Match::may_drop).adaptive());
  CHECK_FALSE(policy_of({}, rule::Ratio::may_drop).adaptive());
  CHECK(policy_of({}, rule::Block::may_drop).next() == 4);
  CHECK(policy_of({.draft_tokens = 3}).next() == 3);
  CHECK(policy_of({.draft_tokens = 3, .draft_length = Heuristic{}}).next() == 5);
}
