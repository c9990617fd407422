// Draft length policies on simulated rounds.
#include "slm/decode/draft_length.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <span>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::draft_length;
using slm::testing::mix;

namespace {

/// Rounds with independent acceptance: a draft step costs `draft`, verifying n rows 1 + slope (n - 1), and at least n
/// times `row`.
struct Simulation {
  double draft = 0.05;
  double slope = 0.03;
  double noise = 0.1;
  double row = 0;
  std::uint64_t state = 1;
  RoundCosts costs = {};

  double next() { return static_cast<double>(mix(++state) >> 11) * 0x1p-53; }

  double verify(int rows) { return std::max(1 + slope * (rows - 1), row * rows) * (1 + noise * (next() - 0.5)); }

  struct Total {
    double tokens = 0, seconds = 0;
    int drafting_rounds = 0;
    double rate() const { return tokens / seconds; }
  };

  /// Sequences that decode in one batch, each with its own policy and acceptance.
  template <class AnyPolicy>
  Total run(std::span<AnyPolicy> policies, std::span<const double> acceptance, int rounds) {
    Total total;
    const int texts = static_cast<int>(policies.size());
    std::vector<RoundOutcome> outcomes(policies.size());
    for (int round = 0; round < rounds; ++round) {
      costs.begin_round({.texts = texts, .rows = texts}, texts);
      int steps = 0, drafting = 0, rows = texts;
      for (std::size_t i = 0; i < policies.size(); ++i) {
        const int k = policies[i].next(costs);
        int accepted = 0;
        while (accepted < k && next() < acceptance[i]) ++accepted;
        outcomes[i] = {k, accepted};
        total.tokens += accepted + 1;
        steps = std::max(steps, k);
        drafting += k > 0;
        rows += k;
      }
      const double verified = verify(rows);
      if (steps > 0) costs.took_draft(drafting, steps, draft * steps);
      costs.took_verification(rows, verified);
      total.seconds += draft * steps + verified;
      total.drafting_rounds += steps > 0;
      for (std::size_t i = 0; i < policies.size(); ++i) policies[i].observe(outcomes[i], costs);
    }
    return total;
  }

  template <class AnyPolicy>
  Total run(AnyPolicy& policy, double acceptance, int rounds) {
    return run(std::span(&policy, 1), std::span(&acceptance, 1), rounds);
  }
};

/// Many sequences with one policy.
template <class AnyPolicy>
double rate_of(AnyPolicy policy, Simulation simulation, int texts, double acceptance) {
  std::vector<AnyPolicy> policies(static_cast<std::size_t>(texts), policy);
  const std::vector<double> all(policies.size(), acceptance);
  return simulation.run(std::span(policies), std::span(all), 4000).rate();
}

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

TEST_CASE("an always wrong draft is abandoned at a bounded cost, and used again when it recovers") {
  for (const double cost : {0.02, 0.3, 1.0}) {
    Simulation simulation{.draft = cost, .noise = 0};
    ThroughputAdaptive adaptive{12};
    const auto early = simulation.run(adaptive, 0.0, 200);
    const auto late = simulation.run(adaptive, 0.0, 4000);
    CAPTURE(cost, early.rate(), late.rate(), late.drafting_rounds);
    if (cost < 0.5) REQUIRE(adaptive.cooldowns() > 0);  // else it is not tried at all
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
      sum += adaptive.next(simulation.costs);
      simulation.run(adaptive, acceptance, 20);
    }
    return sum / 64.0;
  };
  const double low = mean(0.4), high = mean(0.9);
  CAPTURE(low, high);
  REQUIRE(high > low + 2);
}

TEST_CASE("many sequences draft as long as it pays for all of them, within 10 % of the best fixed length") {
  for (const int texts : {2, 8, 64}) {
    for (const double slope : {0.01, 0.1, 0.9}) {
      for (const double acceptance : {0.2, 0.8}) {
        const Simulation simulation{.draft = 0.2, .slope = slope};
        double best = 0;
        for (int k = 0; k <= 12; ++k) best = std::max(best, rate_of(Fixed{k}, simulation, texts, acceptance));
        const double rate = rate_of(ThroughputAdaptive{12}, simulation, texts, acceptance);
        CAPTURE(texts, slope, acceptance, best, rate);
        CHECK(rate >= 0.9 * best);
        CHECK(rate >= 0.97 * rate_of(Fixed{0}, simulation, texts, acceptance));
      }
    }
  }
}

TEST_CASE("sequences of one round draft by their own acceptance, and try again together") {
  Simulation simulation{};
  std::vector<ThroughputAdaptive> policies(16, ThroughputAdaptive{12});
  std::vector<double> acceptance(16, 0.0);
  std::fill_n(acceptance.begin(), 8, 0.9);
  simulation.run(std::span(policies), std::span<const double>(acceptance), 400);
  int good = 0, bad = 0;
  for (int round = 0; round < 100; ++round) {
    simulation.run(std::span(policies), std::span<const double>(acceptance), 1);
    for (std::size_t i = 0; i < 16; ++i) (i < 8 ? good : bad) += policies[i].next(simulation.costs) > 0;
  }
  CHECK(good > 700);
  CHECK(bad < 80);

  Simulation useless{.draft = 1};
  std::vector<ThroughputAdaptive> others(16, ThroughputAdaptive{12});
  const std::vector<double> none(16, 0.0);
  useless.run(std::span(others), std::span(none), 200);
  CHECK(useless.run(std::span(others), std::span(none), 2000).drafting_rounds < 40);
}

TEST_CASE("with many sequences and no possible gain no draft runs, and each one runs as soon as it may pay") {
  Simulation simulation{.draft = 0.1, .noise = 0, .row = 0.25};
  std::vector<ThroughputAdaptive> policies(8, ThroughputAdaptive{12});
  const std::vector<double> acceptance(8, 0.9);
  const auto run = [&](std::size_t texts, int rounds) {
    return simulation.run(std::span(policies).first(texts), std::span(acceptance).first(texts), rounds);
  };
  run(8, 10);
  const auto many = run(8, 2000);
  CHECK(many.drafting_rounds <= 4);
  CHECK(many.rate() > 0.999 * 8 / (8 * simulation.row));
  const auto one = run(1, 100);
  CHECK(one.drafting_rounds > 90);
  CHECK(one.rate() > 2.3);  // 2.8 with the best length
  CHECK(run(8, 100).drafting_rounds <= 1);
}

TEST_CASE("the cost of one more token is measured, in plain steps of its sequence") {
  RoundCosts costs;
  costs.begin_round({.texts = 1, .rows = 1}, 1);
  CHECK_FALSE(costs.row_cost());
  costs.took_verification(1, 1.0);
  CHECK_FALSE(costs.row_cost());
  costs.took_verification(5, 1.4);
  CHECK(costs.row_cost().value() == Approx(0.1));
  costs.took_verification(10, 2.0);
  costs.took_verification(100, 20.0);
  costs.begin_round({.texts = 10, .rows = 10}, 10);
  CHECK(costs.row_cost().value() == Approx(1));  // a sequence's own row and each further one cost the same
  costs.begin_round({.texts = 10, .rows = 50}, 10);
  CHECK(costs.row_cost().value() == Approx(1));  // with any prompts in the step
}

TEST_CASE("if drafting does not pay, a draft processes only one text of sixteen") {
  const auto read_of = [](double draft, double acceptance) {
    Simulation simulation{.draft = draft};
    std::vector<ThroughputAdaptive> policies(8, ThroughputAdaptive{12});
    simulation.run(std::span(policies), std::span<const double>(std::vector<double>(8, acceptance)), 200);
    int read = 0;
    for (int i = 0; i < 160; ++i) {
      ThroughputAdaptive policy{12};
      policy.restart();
      read += policy.reads(simulation.costs);
    }
    return read;
  };
  CHECK(read_of(0.01, 0.9) == 160);
  CHECK(read_of(1, 0.2) == 10);
}

TEST_CASE("a new request starts with the experience of other texts") {
  Simulation simulation{.draft = 0.5};
  ThroughputAdaptive first{12}, second{12};
  simulation.run(first, 0.0, 300);
  second.restart();
  CHECK(simulation.run(second, 0.0, 15).drafting_rounds == 0);
}

TEST_CASE("the time of a step between measured row counts is interpolated") {
  StepSeconds steps;
  REQUIRE(steps.at(3) == 0);
  REQUIRE_FALSE(steps.reaches_down_to(3));
  steps.take(1, 1.0);
  REQUIRE(steps.at(5) == 1.0);
  steps.take(5, 1.4);
  REQUIRE(steps.at(3) == Approx(1.2));
  REQUIRE(steps.at(7) == Approx(1.6));
  REQUIRE(steps.at(1) == 1.0);
  REQUIRE(steps.reaches_down_to(1));
  StepSeconds many;
  for (const int rows : {72, 64, 64}) many.take(rows, 1.0);  // one point, a little beyond 64
  REQUIRE(many.reaches_down_to(64));
  REQUIRE_FALSE(many.reaches_down_to(16));
  for (const int rows : {100, 104}) steps.take(rows, 0.1 * rows);  // adjacent numbers share a point
  REQUIRE(steps.at(102) == Approx(10.2));
  REQUIRE(steps.at(5) == Approx(1.4));
  steps.take(1 << 20, 50);
  REQUIRE(steps.at(1 << 20) == Approx(50));
  REQUIRE(steps.at(1 << 21) > 50);
}

TEST_CASE(
    "the heuristic is Hugging Face's: 5, plus 2 when all are accepted, else minus 1, restarted for each request") {
  Policy policy = Heuristic{};
  RoundCosts costs;
  policy.restart();
  std::vector<int> seen;
  for (const bool full :
       {true, true, false, false, true, false, false, false, false, false, false, false, false, false}) {
    const int k = policy.next(costs);
    seen.push_back(k);
    policy.observe({k, full ? k : k - 1}, costs);
  }
  REQUIRE(seen == std::vector<int>{5, 7, 9, 8, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  policy.observe({1, 0}, costs);
  REQUIRE(policy.next(costs) == 1);
  policy.restart();
  REQUIRE(policy.next(costs) == 5);
}

TEST_CASE("in steady state the heuristic has its calculated acceptance") {
  // P(full) = 1/3 in equilibrium; simulated values of the cost model: .432 at .7, .490 at .8, .546 at .9.
  const double expected[][2] = {{0.7, 0.432}, {0.8, 0.490}, {0.9, 0.546}};
  for (const auto& [alpha, rate] : expected) {
    Simulation simulation{};
    Heuristic heuristic{};
    double drafted = 0, accepted = 0;
    for (int round = 0; round < 200000; ++round) {
      const int k = heuristic.next(simulation.costs);
      int a = 0;
      while (a < k && simulation.next() < alpha) ++a;
      drafted += k;
      accepted += a;
      heuristic.observe({k, a}, simulation.costs);
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
  RoundCosts costs;
  REQUIRE(parse("7").next(costs) == 7);
  REQUIRE(parse("0").most() == 0);
  REQUIRE(parse("heuristic").next(costs) == 5);
  REQUIRE(parse("confidence").wants_confidence());
  REQUIRE(parse("adaptive").most() == 12);
  for (const char* wrong : {"", "-1", "four", "4.5", "99999"}) {
    REQUIRE_THROWS_WITH(parse(wrong), Catch::Contains("decode.unknown-draft-length"));
  }
}

TEST_CASE("a drafter that weighs its tokens receives their cost, and is called in each round") {
  using namespace slm::testing;
  struct Weighing : ScriptedDrafter {
    std::vector<std::optional<float>>* costs;
    void set_row_cost(std::optional<float> cost) { costs->push_back(cost); }
  };
  STATIC_REQUIRE(WeighingDrafter<Weighing>);
  STATIC_REQUIRE(WeighingDrafter<NgramDrafter>);
  STATIC_REQUIRE_FALSE(WeighingDrafter<ScriptedDrafter>);
  std::vector<Token> script;
  for (int i = 0; i < 200; ++i) script.push_back(static_cast<Token>(1 + i % 7));
  std::size_t asked = 0;
  double now = 0;
  const auto run = [&](draft_length::Policy policy) {
    std::vector<std::optional<float>> costs;
    asked = 0;
    const auto guess = [&, whole = prophet(script, 8)](std::span<const Token> context, int, std::vector<Token>& out) {
      whole.script(context, static_cast<int>(++asked % 4), out);
    };
    const auto step = [&](const Batch& batch) {
      for (const Batch::Item& item : batch.items()) now += 0.9 + 0.1 * static_cast<double>(item.count);
    };
    SpeculativeDecoder decoder{Weighing{{guess}, &costs},
                               Watched{ScriptedModel{script, 8}, step},
                               {.draft_length = policy, .clock = [&] { return now; }}};
    const std::vector<Token> prompt{1};
    const Stats stats = decoder.generate(prompt, {.max_new_tokens = 150, .temperature = 0}, [](Token) {});
    CHECK(stats.emitted == 150);
    CHECK(asked + 1 >= static_cast<std::size_t>(stats.rounds));  // no draft fits before the last token
    return costs;
  };
  const auto measured = run(ThroughputAdaptive{12});
  CHECK_FALSE(measured.front());
  CHECK(measured.back().value() == Approx(0.1));
  CHECK(run(Fixed{4}).back() == std::nullopt);
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
