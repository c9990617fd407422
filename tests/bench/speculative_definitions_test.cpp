// The figures of slm bench speculative for given counts with known results.
#include <catch2/catch.hpp>
#include <memory>

#include "bench/command/speculative/cost_model.hpp"
#include "bench/command/speculative/judging.hpp"
#include "bench/command/speculative/settings.hpp"
#include "bench/command/speculative/summary.hpp"
#include "slm/decode/draft_length.hpp"
#include "support/paths.hpp"

namespace {

using namespace slm::bench::speculative;

struct Round {
  int drafted, accepted;
};

/// The counts of a decoder for these rounds.
slm::Stats stats_of(const std::vector<Round>& rounds) {
  slm::Stats stats;
  stats.start(64);
  for (const auto [drafted, accepted] : rounds) {
    stats.count_round(static_cast<std::size_t>(drafted), std::min(accepted + 1, drafted), accepted);
    stats.accepted += accepted;
    stats.emitted += accepted + 1;
    for (int i = 0; i < accepted; ++i) ++stats.accepted_at_depth[static_cast<std::size_t>(i)];
  }
  return stats;
}

Row row_with(const std::vector<Round>& rounds, double total, double prompt) {
  Row row;
  row.key = {"slm", "published", "greedy", "speculative", "heuristic", 0, "t"};
  row.take(stats_of(rounds));
  row.total = total;
  row.prompt = prompt;
  return row;
}

const std::vector<Round> five_rounds = {{5, 5}, {7, 3}, {6, 0}, {5, 5}, {0, 0}};

TEST_CASE("acceptance has AMD's definition, per token, and by position") {
  Tally tally;
  tally.add(row_with(five_rounds, 3, 1));
  // By the published formula: valid tokens 6 + 4 + 1 + 6 + 1, less five target forwards, over 23 draft forwards.
  CHECK(tally.acceptance() == Approx((18.0 - 5) / 23));
  CHECK(tally.acceptance_per_token() == Approx(13.0 / 15));  // after the rejections are 3 + 5 unevaluated ones
  CHECK(tally.tokens_per_target_step() == Approx(18.0 / 5));
  CHECK(tally.mean_draft_length() == Approx(23.0 / 5));
  CHECK(tally.drafted_at_depth == std::vector<std::int64_t>{4, 4, 4, 4, 4, 2, 1});
  CHECK(tally.accepted_at_depth == std::vector<std::int64_t>{3, 3, 3, 2, 2, 0, 0});
  CHECK(tally.throughput() == Approx(6));
  CHECK(tally.decode_throughput() == Approx(9));
}

TEST_CASE("by AMD's count, a text that ends with an accepted token has one accepted token less") {
  Row row = row_with({{4, 4}, {4, 2}}, 1, 0);
  --row.new_tokens;  // the second round's own token was not emitted: the drafted token before it ended the text
  Tally tally;
  tally.add(row);
  CHECK(tally.acceptance() == Approx(5.0 / 8));
}

TEST_CASE("figures are sums divided once, not means of the tasks' figures") {
  Tally tally;
  tally.add(row_with({{4, 4}}, 1, 0));
  tally.add(row_with({{16, 0}}, 4, 0));
  CHECK(tally.acceptance() == Approx(4.0 / 20));  // the mean of the two would be 0.5
  CHECK(tally.throughput() == Approx(6.0 / 5));
}

TEST_CASE("an empty run has zeros") {
  const Tally tally;
  CHECK(tally.acceptance() == 0);
  CHECK(tally.tokens_per_target_step() == 0);
  CHECK(tally.throughput() == 0);
}

TEST_CASE("the published schedule has the known steady state") {
  // Independent acceptance of 0.7: 3.65 drafted tokens a round, 2.58 tokens, acceptance 0.432.
  slm::draft_length::Heuristic policy;
  policy.restart();
  std::vector<Round> rounds;
  std::uint64_t state = 1;
  const auto accepts = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-53 < 0.7;
  };
  for (int i = 0; i < 200000; ++i) {
    const int drafted = policy.next();
    int accepted = 0;
    while (accepted < drafted && accepts()) ++accepted;
    rounds.push_back({drafted, accepted});
    policy.observe({drafted, accepted});
  }
  Tally tally;
  tally.add(row_with(rounds, 1, 0));
  CHECK(tally.acceptance() == Approx(0.432).margin(0.004));
  CHECK(tally.tokens_per_target_step() == Approx(2.58).margin(0.02));
  CHECK(tally.mean_draft_length() == Approx(3.65).margin(0.03));
  CHECK(tally.acceptance_per_token() == Approx(0.7).margin(0.004));
}

TEST_CASE("expected tokens of a round") {
  CHECK(expected_tokens(0.65, 4) == Approx(2.53).margin(0.005));
  CHECK(expected_tokens(0.80, 8) == Approx(4.33).margin(0.005));
  CHECK(expected_tokens(1, 5) == Approx(6));
  CHECK(expected_tokens(0, 5) == Approx(1));
  CHECK(expected_tokens(0.9, 0) == Approx(1));
}

/// A target step of 2 ms for any number of tokens; a draft step of c times that.
Probe flat_probe(double c) { return {{{1, 2e-3}, {2, 2e-3}, {5, 2e-3}, {8, 2e-3}, {9, 2e-3}}, c * 2e-3}; }

TEST_CASE("the predicted speedup of a memory-bound device") {
  const std::vector<Probe> probes = {flat_probe(0.063)};
  const Costs costs(probes, 0);
  CHECK(costs.c() == Approx(0.063));
  std::vector<std::int64_t> rounds(8, 0);
  rounds[6] = 100;
  CHECK(costs.predicted(rounds, 0.74) == Approx(2.45).margin(0.01));
  rounds[6] = 0, rounds[7] = 100;
  CHECK(costs.predicted(rounds, 0.80) == Approx(2.89).margin(0.01));
  // AMD's MI250, bf16, greedy: 1.75 with c = 0.314, were the mean draft length 6.5 and 0.6655 of it accepted.
  const Costs mi250(std::vector<Probe>{flat_probe(0.314)}, 0);
  CHECK(mi250.predicted_from_counts(std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 50, 50}, 533) ==
        Approx(1.75).margin(0.01));
}

TEST_CASE("rounds without a draft are plain decoding") {
  const Costs costs(std::vector<Probe>{flat_probe(0.1)}, 1e-4);
  CHECK(costs.predicted(std::vector<std::int64_t>{10}, 0.9) == Approx(1));
}

TEST_CASE("choosing tokens costs time in both kinds of decoding") {
  // Plain: 2 + 1 ms a token. A round of 4, all accepted: 2 + 4 * 0.2 + (4 + 5) * 1 ms for 5 tokens.
  const Costs costs(std::vector<Probe>{flat_probe(0.1)}, 1e-3);
  CHECK(costs.predicted(std::vector<std::int64_t>{0, 0, 0, 0, 1}, 1) == Approx(5 * 3 / 11.8));
}

TEST_CASE("v(n) is linear between measured values") {
  const Costs costs(std::vector<Probe>{{{{1, 1}, {1, 3}, {3, 4}, {5, 8}}, 1}}, 0);
  CHECK(costs.plain_seconds() == Approx(2));
  CHECK(costs.c() == Approx(0.5));
  CHECK(costs.v(1) == Approx(1));
  CHECK(costs.v(2) == Approx(1.5));
  CHECK(costs.v(4) == Approx(3));
  CHECK(costs.v(7) == Approx(6));  // along the last slope
  CHECK_FALSE(Costs({}, 0).known());
  CHECK(Costs({}, 0).predicted(std::vector<std::int64_t>{0, 5}, 0.5) == Approx(0));
}

TEST_CASE("rounds are counted by their number of drafted tokens") {
  CHECK(rounds_by_draft(5, std::vector<std::int64_t>{4, 4, 4, 4, 4, 2, 1}) ==
        std::vector<std::int64_t>{1, 0, 0, 0, 0, 2, 1, 1});
  CHECK(rounds_by_draft(3, {}) == std::vector<std::int64_t>{3});
}

/// Two tasks, two repeats: plain 10 tokens in 1 s; speculative in 0.5 s, and in 0.4 s in the second repeat.
std::vector<Row> run_of_four(bool identical) {
  std::vector<Row> rows;
  for (const int repeat : {0, 1}) {
    for (const std::string task : {"a", "b"}) {
      for (const std::string kind : {"plain", "speculative"}) {
        Row row;
        row.key = {"slm", "published", "greedy", kind, kind == "plain" ? "0" : "heuristic", repeat, task};
        row.new_tokens = 10;
        row.new_ids = {1, 2, 3};
        if (!identical && kind == "speculative" && task == "b") row.new_ids.back() = 4;
        row.total = kind == "plain" ? 1 : repeat == 0 ? 0.5 : 0.4;
        row.drafted = kind == "plain" ? 0 : 8;
        row.accepted = row.drafted;
        row.rounds = kind == "plain" ? 10 : 2;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

TEST_CASE("a summary has medians, spreads, and whether the texts are equal") {
  const auto found = summary_of(run_of_four(true))["configurations"];
  REQUIRE(found.size() == 1);
  CHECK(found[0]["speedup"]["least"] == Approx(2));
  CHECK(found[0]["speedup"]["most"] == Approx(2.5));
  CHECK(found[0]["repeats"] == 2);
  CHECK(found[0]["identical"]["equal"] == 4);
  CHECK_FALSE(found[0]["identical"].contains("first_difference"));
  CHECK(found[0]["predicted_speedup"].is_null());  // nothing was probed

  const auto other = summary_of(run_of_four(false))["configurations"];
  CHECK(other[0]["identical"]["equal"] == 2);
  CHECK(other[0]["identical"]["first_difference"] == "b");
}

TEST_CASE("a task without its counterpart is not counted") {
  auto rows = run_of_four(true);
  rows.pop_back();  // the last speculative one: the plain one alone would raise plain throughput
  const auto found = summary_of(rows)["configurations"];
  CHECK(found[0]["pairs"] == 3);
  CHECK(found[0]["new_tokens"]["plain"] == 30);
}

TEST_CASE("prompts are cut just before their last three tokens") {
  const TokenLimits limits = TokenLimits::in(16, 512);
  CHECK(limits.window == 16);
  CHECK(limits.max_new_tokens == 8);
  CHECK(TokenLimits::in(16384, 512).window == 4096);
  CHECK(TokenLimits::in(16384, 512).max_new_tokens == 512);
  CHECK(fit(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}, limits) == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(fit(std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, limits) == std::vector<int>{1, 2, 3, 4, 5, 8, 9, 10});
  CHECK(fit(std::vector<int>{1, 2, 3, 4}, TokenLimits{3, 1}) == std::vector<int>{3, 4});
}

TEST_CASE("programs are cut as their setup says") {
  CHECK(completion_of("published", "   x = 1\n\n    return x\n") == "    x = 1");
  CHECK(completion_of("best", "    x = 1\n\n    return x\ndef g():") == "    x = 1\n\n    return x\n");
}

TEST_CASE("pass@1 is computed for each kind, from the first repeat") {
  std::unique_ptr<slm::bench::Sandbox> sandbox;
  try {
    sandbox = std::make_unique<slm::bench::Sandbox>(slm::bench::SandboxOptions{.processor_seconds = 20, .seconds = 60});
  } catch (const slm::Error& error) {
    WARN("SKIPPED: " << error.what());
    return;
  }
  const auto tasks = slm::bench::read_humaneval(slm::testing::fixture("humaneval/tasks.jsonl"));
  std::vector<Row> rows;
  for (const int repeat : {0, 1}) {
    for (const auto& task : tasks) {
      for (const std::string kind : {"plain", "speculative"}) {
        Row row;
        row.key = {"slm", "published", "greedy", kind, kind == "plain" ? "0" : "heuristic", repeat, task.id};
        row.total = 1;
        const bool wrong = repeat == 1 || (kind == "speculative" && task.id == tasks.front().id);
        row.completion = wrong ? "    return 'wrong'\n" : task.canonical_solution;
        rows.push_back(row);
      }
    }
  }
  slm::Json summary = summary_of(rows);
  judge(summary, rows, tasks, *sandbox, {.cut = slm::bench::Cut::none});
  const slm::Json& found = summary["configurations"][0]["pass_at_1"];
  CHECK(found["plain"] == 1.0);
  CHECK(found["speculative"].get<double>() == Approx(2.0 / 3));
}

TEST_CASE("settings follow the options") {
  CHECK(settings_of("both", "both", "adaptive", 164, 8).size() == 5);
  const auto one = settings_of("published", "sampled", "adaptive", 5, 0);
  REQUIRE(one.size() == 1);
  CHECK(one[0].draft_lengths == std::vector<std::string>{"heuristic"});
  CHECK(one[0].sampling_of(512, 3).temperature == 0.1f);
  CHECK(one[0].sampling_of(512, 3).top_k == 10);
  CHECK(one[0].sampling_of(512, 3).seed != one[0].sampling_of(512, 4).seed);
  CHECK(settings_of("best", "greedy", "4", 5, 100).back().tasks == 5);
}

}  // namespace
