// Counts, times and log-probabilities.
#include "slm/decode/stats.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <sstream>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/naive_decoding.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

const std::vector<Token> prompt{1, 2, 3};

void check_identities(const Stats& stats) {
  REQUIRE(stats.drafted >= stats.evaluated);
  REQUIRE(stats.evaluated >= stats.accepted);
  REQUIRE(stats.emitted == stats.accepted + stats.corrections + stats.bonuses);
  REQUIRE(stats.rounds == stats.plain_steps + stats.zero_rounds + stats.partial_rounds + stats.full_rounds);
  REQUIRE(stats.rounds == stats.target_forwards);
  const auto& histogram = stats.emitted_histogram;
  REQUIRE(std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0}) == stats.rounds);
  std::int64_t emitted = 0;
  for (std::size_t i = 0; i < histogram.size(); ++i) emitted += static_cast<std::int64_t>(i) * histogram[i];
  REQUIRE(emitted == stats.emitted);
  const auto& drafted = stats.drafted_at_depth;
  const auto& accepted = stats.accepted_at_depth;
  REQUIRE(std::accumulate(drafted.begin(), drafted.end(), std::int64_t{0}) == stats.drafted);
  REQUIRE(std::accumulate(accepted.begin(), accepted.end(), std::int64_t{0}) == stats.accepted);
  for (std::size_t depth = 0; depth < drafted.size(); ++depth) {
    REQUIRE(accepted[depth] <= drafted[depth]);
    if (depth == 0) continue;
    REQUIRE(drafted[depth] <= drafted[depth - 1]);
    REQUIRE(accepted[depth] <= accepted[depth - 1]);
  }
  std::int64_t forwards = 0;
  for (const std::int64_t count : stats.verify_rounds) forwards += count;
  REQUIRE(forwards == stats.target_forwards);
}

/// Advances a common clock by a cost per forward pass, depending on the number of tokens.
struct TimedModel : Watched<ToyModel> {
  TimedModel(ToyOptions options, std::shared_ptr<double> clock, double first, double further)
      : Watched(ToyModel{std::move(options)}, [=](const Batch& batch) {
          *clock += first + further * static_cast<double>(batch.items().front().count - 1);
        }) {}
};

}  // namespace

TEST_CASE("the counts are consistent in every case") {
  int drafted = 0, trimmed = 0;
  for (std::uint64_t number = 0; number < 400; ++number) {
    ToyOptions options{.vocab = 8, .context = number % 3 ? 4096 : 30, .seed = number + 1};
    if (number % 2) options.end_tokens = {static_cast<Token>(number % 8)};
    auto other = options;
    other.other_share = static_cast<double>(number % 5) / 4;
    Sampling sampling{.max_new_tokens = static_cast<int>(mix(number) % 50), .temperature = number % 4 ? 0.9f : 0.0f};
    sampling.seed = number;
    const auto check = [&](auto draft, auto rule) {
      SpeculativeDecoder decoder{
          std::move(draft), ToyModel{options}, {.draft_tokens = static_cast<int>(number % 7)}, rule};
      std::size_t tokens = 0;
      const std::size_t patience = number % 6 == 0 ? 5 : 1000;
      const Stats stats = decoder.generate(prompt, sampling, [&](Token) { return ++tokens < patience; });
      CAPTURE(number, rule.name);
      REQUIRE(stats.emitted == static_cast<std::int64_t>(tokens));
      check_identities(stats);
      drafted += stats.drafted > 0;
      trimmed += stats.trimmed > 0;
    };
    check(ToyModel{other}, rule::Coupled{});
    check(ToyModel{other}, rule::Ratio{});
    check(ToyModel{other}, rule::Block{});
    check(Lookup{}, rule::Match{});
    check(Drafter{}, rule::Ratio{});
  }
  REQUIRE(drafted > 500);
  REQUIRE(trimmed > 50);
}

TEST_CASE("log-probabilities equal those of plain decoding, for accepted, corrected and bonus tokens") {
  const ToyOptions options{.vocab = 30, .seed = 8};
  auto other = options;
  other.other_share = 0.3;
  struct Listed {
    double logprob;
    std::vector<std::pair<Token, double>> top;
    bool operator==(const Listed&) const = default;
  };
  struct Line {
    Token token;
    std::int64_t position;
    Listed raw, sampled;
    bool operator==(const Line&) const = default;
  };
  const auto listed = [](double logprob, std::span<const TokenLogprob> top) {
    Listed list{logprob, {}};
    for (const TokenLogprob& entry : top) list.top.emplace_back(entry.token, entry.logprob);
    return list;
  };
  const auto right = [](const Listed& found, Token chosen, const auto& p) {
    REQUIRE(found.logprob == Approx(static_cast<double>(std::log(p.at(chosen)))).epsilon(1e-8));
    REQUIRE(found.top.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const auto [token, logprob] = found.top[i];
      REQUIRE(logprob == Approx(static_cast<double>(std::log(p.at(token)))).epsilon(1e-8));
      const auto better =
          std::count_if(p.begin(), p.end(), [&, t = token](const auto& entry) { return entry.second > p.at(t); });
      REQUIRE(better == static_cast<std::ptrdiff_t>(i));
    }
  };
  for (const float temperature : {0.0f, 0.7f}) {
    for (const float penalty : {1.0f, 1.3f}) {
      Sampling sampling{.max_new_tokens = 80, .temperature = temperature, .top_k = 12, .seed = 3};
      sampling.repetition_penalty = penalty;
      Request request{.prompt = prompt, .sampling = sampling, .logprobs = {.raw = true, .sampled = true, .top = 4}};
      int drafted = 0;
      const auto lines = [&](auto& decoder) {
        std::vector<Line> result;
        decoder.generate(request, [&](const GeneratedToken& token) {
          result.push_back({token.token, token.position, listed(token.logprob, token.top),
                            listed(token.sampled_logprob, token.sampled_top)});
          drafted += token.drafted;
        });
        return result;
      };
      AutoregressiveDecoder plain{ToyModel{options}};
      const auto expected = lines(plain);
      REQUIRE(drafted == 0);
      SpeculativeDecoder decoder{ToyModel{other}, ToyModel{options}, {.draft_tokens = 4}};
      REQUIRE(lines(decoder) == expected);
      REQUIRE(drafted > 10);
      // And they are correct.
      std::vector<Token> output;
      for (const Line& line : expected) {
        std::vector<Token> whole = prompt;
        whole.insert(whole.end(), output.begin(), output.end());
        REQUIRE(line.position == static_cast<std::int64_t>(whole.size()));
        const std::vector<float> logits = ToyModel{options}.logits_after(whole);
        Sampling unedited{.temperature = 1}, meant = sampling;
        if (temperature == 0) {
          meant.temperature = 1;
          meant.top_k = 0;
        }
        right(line.raw, line.token, naive_distribution(logits, unedited, prompt, output));
        right(line.sampled, line.token, naive_distribution(logits, meant, prompt, output));
        output.push_back(line.token);
      }
      // Each alone, and none without a request.
      request.logprobs = {.raw = true};
      REQUIRE(lines(decoder).front().raw.logprob == expected.front().raw.logprob);
      REQUIRE(std::isnan(lines(decoder).front().sampled.logprob));
      request.logprobs = {.sampled = true};
      REQUIRE(lines(decoder).front().sampled.logprob == expected.front().sampled.logprob);
      REQUIRE(std::isnan(lines(decoder).front().raw.logprob));
    }
  }
}

TEST_CASE("on a simulated clock the predicted speedup is the measured one") {
  for (const double share : {0.0, 0.2, 0.5}) {
    const ToyOptions options{.vocab = 20, .seed = 8};
    auto other = options;
    other.other_share = share;
    const Sampling sampling{.max_new_tokens = 2000, .temperature = 0};
    const auto clock = std::make_shared<double>(0);
    const auto read_clock = [clock] { return *clock; };
    const double step = 1.0, further = 0.05, draft_step = 0.1;
    SpeculativeDecoder decoder{TimedModel{other, clock, draft_step, 0.01},
                               TimedModel{options, clock, step, further},
                               {.draft_tokens = 4, .plain_step_every = 16, .clock = read_clock}};
    const Stats stats = decoder.generate(prompt, sampling, [](Token) {});
    SpeculativeDecoder plain{
        Drafter{}, TimedModel{options, clock, step, further}, {.draft_tokens = 0, .clock = read_clock}};
    const Stats baseline = plain.generate(prompt, sampling, [](Token) {});
    const double measured = stats.tokens_per_second() / baseline.tokens_per_second();
    CAPTURE(share, measured, stats.predicted_speedup());
    REQUIRE(stats.predicted_speedup() == Approx(measured).epsilon(0.05));
    // The formula of the cost model, from counts and costs.
    const double rounds = static_cast<double>(stats.rounds);
    const double draft_length = stats.mean_draft_length();
    const double formula =
        (1 + static_cast<double>(stats.accepted) / rounds) / (1 + further * draft_length + draft_step * draft_length);
    REQUIRE(formula == Approx(measured).epsilon(0.05));
    REQUIRE(stats.verify_cost(5) == Approx(1.2));
    REQUIRE(stats.draft_cost() == Approx(0.1).epsilon(0.05));
  }
}

TEST_CASE("statistics of an empty run are zero, not NaN") {
  const Stats stats;
  REQUIRE(stats.acceptance_rate() == 0);
  REQUIRE(stats.tokens_per_target_step() == 0);
  REQUIRE(stats.tokens_per_second() == 0);
  REQUIRE(stats.predicted_speedup() == 0);
  REQUIRE(stats.acceptance_at_depth(3) == 0);
  AutoregressiveDecoder plain{ToyModel{{}}};
  const Stats none = plain.generate(prompt, {.max_new_tokens = 0}, [](Token) {});
  REQUIRE(none.emitted == 0);
  REQUIRE(none.finish_reason == FinishReason::length);
}

TEST_CASE("statistics print the main figures, and do not change the caller's stream settings") {
  const ToyOptions options{.vocab = 20, .seed = 8};
  auto other = options;
  other.other_share = 0.2;
  SpeculativeDecoder decoder{ToyModel{other}, ToyModel{options}, {.draft_tokens = 4}};
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = 100, .temperature = 0}, [](Token) {});
  std::ostringstream out;
  out << stats << 0.123456;
  const std::string table = out.str();
  for (const char* part :
       {"new tokens", "tokens per second", "acceptance", "tokens per step", "rule coupled", "0.123456"}) {
    REQUIRE_THAT(table, Catch::Contains(part));
  }
  AutoregressiveDecoder plain{ToyModel{options}};
  std::ostringstream plain_out;
  plain_out << plain.generate(prompt, {.max_new_tokens = 10, .temperature = 0}, [](Token) {});
  REQUIRE_THAT(plain_out.str(), !Catch::Contains("acceptance"));
}
