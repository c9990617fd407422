// The drafters on their own.
#include "slm/decode/drafter.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "slm/decode/speculative.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<Token> proposed(const NgramDrafter& drafter, const std::vector<Token>& context, int most) {
  std::vector<Token> out;
  drafter.propose(context, most, out);
  return out;
}

}  // namespace

TEST_CASE("prompt lookup proposes what followed the latest occurrence of the longest match") {
  using Tokens = std::vector<Token>;
  const NgramDrafter drafter{3, 1};
  REQUIRE(proposed(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 2) == Tokens{4, 5});
  REQUIRE(proposed(drafter, {1, 2, 3, 4, 5, 1, 2, 3}, 9) == Tokens{4, 5, 1, 2, 3});
  // Both occurrences match three tokens: the later one counts.
  REQUIRE(proposed(drafter, {1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3}, 1) == Tokens{8});
  // A longer match further back beats a shorter one nearby.
  REQUIRE(proposed(drafter, {1, 2, 3, 7, 9, 3, 8, 1, 2, 3}, 1) == Tokens{7});
  REQUIRE(proposed(NgramDrafter{1, 1}, {1, 2, 3, 7, 9, 3, 8, 1, 2, 3}, 1) == Tokens{8});
  REQUIRE(proposed(NgramDrafter{3, 3}, {5, 2, 3, 7, 9, 2, 3}, 4).empty());
  REQUIRE(proposed(NgramDrafter{3, 2}, {5, 2, 3, 7, 9, 2, 3}, 1) == Tokens{7});
  // Overlapping repetition, and nothing to find.
  REQUIRE(proposed(drafter, {4, 4, 4, 4}, 3) == Tokens{4});
  REQUIRE(proposed(drafter, {1, 2, 3, 4}, 3).empty());
  REQUIRE(proposed(drafter, {1}, 3).empty());
  REQUIRE(proposed(NgramDrafter{0, 0}, {1, 1, 1}, 3).empty());
}

TEST_CASE("the longest match of prompt lookup agrees with a search by hand") {
  for (std::uint64_t number = 0; number < 2000; ++number) {
    std::vector<Token> context;
    const std::uint64_t size = 1 + mix(number) % 30;
    for (std::uint64_t i = 0; i < size; ++i) context.push_back(static_cast<Token>(mix(number * 64 + i) % 3));
    const int longest = 1 + static_cast<int>(mix(number + 9) % 5);
    std::vector<Token> expected;
    for (std::size_t length = static_cast<std::size_t>(longest); length >= 1 && expected.empty(); --length) {
      if (length >= context.size()) continue;
      const std::vector<Token> tail(context.end() - static_cast<std::ptrdiff_t>(length), context.end());
      for (std::size_t start = context.size() - length; start-- > 0 && expected.empty();) {
        if (!std::equal(tail.begin(), tail.end(), context.begin() + static_cast<std::ptrdiff_t>(start))) continue;
        for (std::size_t i = start + length; i < context.size() && expected.size() < 4; ++i) {
          expected.push_back(context[i]);
        }
      }
    }
    CAPTURE(number, context, longest);
    REQUIRE(proposed(NgramDrafter{longest, 1}, context, 4) == expected);
  }
}

TEST_CASE("prompt lookup pays on repetitive text") {
  std::vector<Token> script;
  for (int i = 0; i < 200; ++i) script.push_back(static_cast<Token>(i % 7));
  SpeculativeDecoder decoder{NgramDrafter{}, ScriptedModel{script, 8}, {.draft_tokens = 6}};
  const std::vector<Token> prompt(script.begin(), script.begin() + 10);
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = 140, .temperature = 0}, [](Token) {});
  REQUIRE(stats.acceptance_rate() == 1.0);
  REQUIRE(stats.rounds == 20);
}

TEST_CASE("prompt lookup costs little on text that does not repeat itself, where rows are not free") {
  std::ifstream file(std::string{SLM_SOURCE_DIR} + "/LICENSE", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target"));
  const std::vector<Token> script = tokenizer.encode(text);
  SpeculativeDecoder decoder{NgramDrafter{}, ScriptedModel{script, tokenizer.vocab(), {}, 8192}};
  const std::vector<Token> prompt(script.begin(), script.begin() + 64);
  const int rest = static_cast<int>(script.size() - prompt.size());
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = rest, .temperature = 0}, [](Token) {});
  REQUIRE(stats.emitted == rest);
  // Steps of plain decoding that the same text costs, when each drafted row takes a third of a step.
  const double cost = static_cast<double>(stats.rounds) + 0.35 * static_cast<double>(stats.drafted);
  REQUIRE(static_cast<double>(stats.emitted) / cost > 0.9);
  REQUIRE(stats.drafted_at_depth.size() == 4);
}

TEST_CASE("which drafters have a distribution") {
  STATIC_REQUIRE(BatchedDrafter<ModelDrafter<ToyModel>>);
  STATIC_REQUIRE_FALSE(Drafter<ModelDrafter<ToyModel>>);
  STATIC_REQUIRE(DistributionDrafter<NoDrafter>);
  STATIC_REQUIRE(TokenDrafter<NgramDrafter>);
  STATIC_REQUIRE_FALSE(DistributionDrafter<NgramDrafter>);
  STATIC_REQUIRE_FALSE(Drafter<ToyModel>);
}
