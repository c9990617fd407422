// Draft length policies on simulated rounds.
#include "slm/decode/draft_length.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::draft_length;
using slm::testing::mix;

namespace {

/// Rounds with independent acceptance: drafting costs `draft` per token, verifying n tokens 1 + slope (n - 1).
struct Simulation {
  double draft = 0.05;
  double slope = 0.03;
  double noise = 0.1;
  std::uint64_t state = 1;

  double next() { return static_cast<double>(mix(++state) >> 11) * 0x1p-53; }

  double verify(int rows) { return (1 + slope * (rows - 1)) * (1 + noise * (next() - 0.5)); }

  struct Total {
    double tokens = 0, seconds = 0;
    int drafting_rounds = 0;
    double rate() const { return tokens / seconds; }
  };

  template <class AnyPolicy>
  Total run(AnyPolicy& policy, double acceptance, int rounds) {
    Total total;
    for (int round = 0; round < rounds; ++round) {
      const int k = policy.next();
      int accepted = 0;
      while (accepted < k && next() < acceptance) ++accepted;
      const RoundOutcome outcome{k, accepted, draft * k, verify(k + 1), true};
      total.tokens += accepted + 1;
      total.seconds += outcome.draft_seconds + outcome.verify_seconds;
      total.drafting_rounds += k > 0;
      policy.observe(outcome);
    }
    return total;
  }
};

}  // namespace

TEST_CASE("the adaptive draft length comes within 10 % of the best fixed one") {
  for (const double cost : {0.02, 0.1, 0.3}) {
    for (const double acceptance : {0.3, 0.65, 0.9}) {
      double best = 0;
      for (int k = 0; k <= 12; ++k) {
        Simulation simulation{.draft = cost};
        Fixed fixed{k};
        best = std::max(best, simulation.run(fixed, acceptance, 4000).rate());
      }
      Simulation simulation{.draft = cost};
      ThroughputAdaptive adaptive{12};
      const double rate = simulation.run(adaptive, acceptance, 4000).rate();
      CAPTURE(cost, acceptance, best, rate);
      REQUIRE(rate >= 0.9 * best);
      REQUIRE(rate >= 0.97);  // and never much slower than plain decoding's 1 token per second
    }
  }
}

TEST_CASE("an always wrong draft is given up at a bounded cost, and found again when it recovers") {
  for (const double cost : {0.02, 0.3, 1.0}) {
    Simulation simulation{.draft = cost, .noise = 0};
    ThroughputAdaptive adaptive{12};
    const auto early = simulation.run(adaptive, 0.0, 200);
    const auto late = simulation.run(adaptive, 0.0, 4000);
    CAPTURE(cost, early.rate(), late.rate(), late.drafting_rounds);
    REQUIRE(adaptive.cooldowns() > 0);
    REQUIRE(early.rate() > 0.75);
    REQUIRE(late.rate() > 0.97);
    REQUIRE(late.drafting_rounds < 60);
    if (cost > 0.5) continue;
    const auto recovering = simulation.run(adaptive, 0.9, 700);  // pauses are at most 512 rounds
    const auto recovered = simulation.run(adaptive, 0.9, 500);
    REQUIRE(recovered.rate() > (cost < 0.1 ? 3.0 : 1.5));
    REQUIRE(recovering.rate() > 0.97);
  }
}

TEST_CASE("the adaptive draft length follows the text") {
  Simulation simulation{};
  ThroughputAdaptive adaptive{12};
  const auto mean = [&](double acceptance) {
    simulation.run(adaptive, acceptance, 400);
    int sum = 0;
    for (int i = 0; i < 64; ++i) {
      const int k = adaptive.next();
      sum += k;
      adaptive.observe({k, 0, 0.05 * k, 1 + 0.03 * k, false});  // does not teach much
      simulation.run(adaptive, acceptance, 20);
    }
    return sum / 64.0;
  };
  const double low = mean(0.4), high = mean(0.9);
  CAPTURE(low, high);
  REQUIRE(high > low + 2);
}

TEST_CASE("the cost of a step between measured row counts is interpolated") {
  ThroughputAdaptive adaptive{8};
  REQUIRE(adaptive.verify_seconds(3) == 0);
  adaptive.observe({0, 0, 0, 1.0, true});
  REQUIRE(adaptive.verify_seconds(5) == 1.0);
  adaptive.observe({4, 4, 0.1, 1.4, true});
  REQUIRE(adaptive.verify_seconds(3) == Approx(1.2));
  REQUIRE(adaptive.verify_seconds(7) == Approx(1.6));
  REQUIRE(adaptive.verify_seconds(1) == 1.0);
}

TEST_CASE("the heuristic is Hugging Face's: 5, plus 2 when all is accepted, else minus 1, afresh for each request") {
  Policy policy = Heuristic{};
  policy.restart();
  std::vector<int> seen;
  for (const bool full :
       {true, true, false, false, true, false, false, false, false, false, false, false, false, false}) {
    const int k = policy.next();
    seen.push_back(k);
    policy.observe({k, full ? k : k - 1, 0, 0, true});
  }
  REQUIRE(seen == std::vector<int>{5, 7, 9, 8, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  policy.observe({1, 0, 0, 0, true});
  REQUIRE(policy.next() == 1);
  policy.restart();
  REQUIRE(policy.next() == 5);
}

TEST_CASE("in steady state the heuristic's acceptance is what its arithmetic says") {
  // P(full) = 1/3 in equilibrium; simulated values of the cost model: .432 at .7, .490 at .8, .546 at .9.
  const double expected[][2] = {{0.7, 0.432}, {0.8, 0.490}, {0.9, 0.546}};
  for (const auto& [alpha, rate] : expected) {
    Simulation simulation{};
    Heuristic heuristic{};
    double drafted = 0, accepted = 0;
    for (int round = 0; round < 200000; ++round) {
      const int k = heuristic.next();
      int a = 0;
      while (a < k && simulation.next() < alpha) ++a;
      drafted += k;
      accepted += a;
      heuristic.observe({k, a, 0, 0, true});
    }
    REQUIRE(accepted / drafted == Approx(rate).margin(0.004));
  }
}

TEST_CASE("the confidence policy keeps the unlikely token, or drops it when told to") {
  using namespace slm::testing;
  // A draft that is right but never sure: it gives its choice, 1 among 8 ids, a probability of .28.
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

TEST_CASE("draft lengths are chosen by name") {
  REQUIRE(parse("7").next() == 7);
  REQUIRE(parse("0").most() == 0);
  REQUIRE(parse("heuristic").next() == 5);
  REQUIRE(parse("confidence").wants_confidence());
  REQUIRE(parse("adaptive").most() == 12);
  for (const char* wrong : {"", "-1", "four", "4.5", "99999"}) {
    REQUIRE_THROWS_WITH(parse(wrong), Catch::Contains("decode.unknown-draft-length"));
  }
}

TEST_CASE("interleaved plain steps do not teach the policy") {
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
