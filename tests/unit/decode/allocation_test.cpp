// After a warm-up no round allocates.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/allocations.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// Allocations between the 20th and the 400th token of one request.
template <class Draft, class Rule>
std::int64_t allocations_in_rounds(Draft draft, Rule rule, const Sampling& sampling, const Speculation& speculation) {
  const ToyOptions options{.vocab = 50, .context = 1000, .seed = 3, .memory = 3};
  SpeculativeDecoder decoder{std::move(draft), ToyModel{options}, speculation, rule};
  // The toy's own list grows: one request of the same length first makes it large enough.
  Request request{.prompt = {1, 2, 3}, .sampling = sampling, .logprobs = {.raw = true, .sampled = true, .top = 3}};
  decoder.generate(request, [](Token) {});
  request.prompt.front() = 4;
  int tokens = 0;
  std::int64_t begin = 0, end = 0;
  decoder.generate(request, [&](const GeneratedToken&) {
    if (++tokens == 20) begin = allocations;
    end = allocations;
  });
  REQUIRE(tokens == 400);
  return end - begin;
}

}  // namespace

TEST_CASE("rounds do not allocate") {
  const ToyOptions draft{.vocab = 50, .context = 1000, .seed = 3, .other_share = 0.3, .memory = 3};
  std::vector<Sampling> samplings(4);
  samplings[0].temperature = 0;
  samplings[1].temperature = 0.8f;
  samplings[2].top_k = 5;
  samplings[2].top_p = 0.9f;
  samplings[3].top_p = 0.7f;
  samplings[3].repetition_penalty = 1.2f;
  samplings[3].frequency_penalty = 0.1f;
  const Speculation policies[] = {
      {.draft_tokens = 4},
      {.draft_length = draft_length::Heuristic{}},
      {.draft_length = draft_length::Confidence{}},
      // Steps that take equally long, so that both requests are drafted alike.
      {.draft_length = draft_length::Adaptive{}, .clock = [now = 0.0]() mutable { return now += 1e-3; }},
  };
  for (Sampling& sampling : samplings) {
    sampling.max_new_tokens = 400;
    for (const Speculation& policy : policies) {
      REQUIRE(allocations_in_rounds(ToyModel{draft}, rule::Coupled{}, sampling, policy) == 0);
      REQUIRE(allocations_in_rounds(ToyModel{draft}, rule::Ratio{}, sampling, policy) == 0);
      REQUIRE(allocations_in_rounds(ToyModel{draft}, rule::Block{}, sampling, policy) == 0);
      REQUIRE(allocations_in_rounds(ToyModel{draft}, rule::Match{}, sampling, policy) == 0);
      REQUIRE(allocations_in_rounds(Lookup{}, rule::Coupled{}, sampling, policy) == 0);
      REQUIRE(allocations_in_rounds(Drafter{}, rule::Coupled{}, sampling, policy) == 0);
    }
  }
  // The counter works: it detects a drafter that allocates.
  const ScriptedDrafter wasteful{[](auto, int, auto& out) { out = std::vector<Token>(2, 7); }};
  REQUIRE(allocations_in_rounds(wasteful, rule::Coupled{}, samplings[0], policies[0]) > 50);
}
