// The drafters alone.
#include "slm/decode/drafter.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "slm/decode/speculative.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// If verification is free.
std::vector<Token> proposed(int longest, int shortest, const std::vector<Token>& context, int most) {
  std::vector<Token> out;
  NgramDrafter({longest, shortest, 0}).propose(context, most, out);
  return out;
}

}  // namespace

TEST_CASE("prompt lookup proposes the tokens after the latest occurrence of the longest match") {
  using Tokens = std::vector<Token>;
  REQUIRE(proposed(3, 1, {1, 2, 3, 4, 5, 1, 2, 3}, 2) == Tokens{4, 5});
  REQUIRE(proposed(3, 1, {1, 2, 3, 4, 5, 1, 2, 3}, 9) == Tokens{4, 5, 1, 2, 3});
  // Both occurrences match three tokens: the later one counts.
  REQUIRE(proposed(3, 1, {1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3}, 1) == Tokens{8});
  // A longer match further back is preferred to a shorter one nearby.
  REQUIRE(proposed(3, 1, {1, 2, 3, 7, 9, 3, 8, 1, 2, 3}, 1) == Tokens{7});
  REQUIRE(proposed(1, 1, {1, 2, 3, 7, 9, 3, 8, 1, 2, 3}, 1) == Tokens{8});
  REQUIRE(proposed(3, 3, {5, 2, 3, 7, 9, 2, 3}, 4).empty());
  REQUIRE(proposed(3, 2, {5, 2, 3, 7, 9, 2, 3}, 1) == Tokens{7});
  // Overlapping repetition, and no match.
  REQUIRE(proposed(3, 1, {4, 4, 4, 4}, 3) == Tokens{4});
  REQUIRE(proposed(3, 1, {1, 2, 3, 4}, 3).empty());
  REQUIRE(proposed(3, 1, {1}, 3).empty());
  REQUIRE(proposed(0, 0, {1, 1, 1}, 3).empty());
}

TEST_CASE("the longest match of prompt lookup equals that of a direct search") {
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
    REQUIRE(proposed(longest, 1, context, 4) == expected);
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

TEST_CASE("prompt lookup costs little on text without repetition, if rows are not free") {
  std::ifstream file(std::string{SLM_SOURCE_DIR} + "/LICENSE", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target"));
  const std::vector<Token> script = tokenizer.encode(text);
  SpeculativeDecoder decoder{NgramDrafter{}, ScriptedModel{script, tokenizer.vocab(), {}, 8192}};
  const std::vector<Token> prompt(script.begin(), script.begin() + 64);
  const int rest = static_cast<int>(script.size() - prompt.size());
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = rest, .temperature = 0}, [](Token) {});
  REQUIRE(stats.emitted == rest);
  // Plain decoding steps for the same text, if each drafted row takes a third of a step.
  const double cost = static_cast<double>(stats.rounds) + 0.35 * static_cast<double>(stats.drafted);
  REQUIRE(static_cast<double>(stats.emitted) / cost > 0.9);
  REQUIRE(stats.drafted_at_depth.size() == 4);
}

TEST_CASE("drafts are as long as they pay if verifying a row has a cost") {
  // After 5 comes 6, and then another token each time.
  std::vector<Token> context;
  NgramDrafter drafter;
  const auto drafted_after = [&](const std::vector<Token>& tokens) {
    std::vector<Token> with = context, out;
    with.insert(with.end(), tokens.begin(), tokens.end());
    NgramDrafter here = drafter;
    here.propose(with, 8, out);
    return out.size();
  };
  for (Token i = 0; i < 40; ++i) {
    context.insert(context.end(), {5, 6, 100 + i, 200 + i});
    drafter.start(context);
    if (i == 0) CHECK(drafted_after({5, 6}) > 0);
  }
  CHECK(drafted_after({5}) == 1);
  CHECK(drafted_after({5, 6}) == 0);
  // A copied text is drafted up to the limit.
  std::vector<Token> copied;
  for (Token i = 0; i < 60; ++i) copied.push_back(1000 + i % 30);
  drafter.start(copied);
  std::vector<Token> out;
  drafter.propose(copied, 8, out);
  CHECK(out == std::vector<Token>{1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007});
  // Rows that cost more than half a step do not pay.
  NgramDrafter dear({.row_cost = 0.9f});
  out.clear();
  dear.propose(std::vector<Token>{1, 2, 3, 1}, 8, out);
  CHECK(out.empty());
  // Rows whose measured cost is so high do not pay either, except with unlimited drafts.
  for (const float first : {0.125f, 0.0f}) {
    NgramDrafter told({.row_cost = first});
    const auto drafted_at = [&](std::optional<float> cost) {
      out.clear();
      told.set_row_cost(cost);
      told.propose(copied, 8, out);
      return out.size();
    };
    CHECK(drafted_at(std::nullopt) == 8);
    CHECK(drafted_at(0.99f) == (first > 0 ? 0 : 8));
    CHECK(drafted_at(0.7f) > (first > 0 ? 0 : 7));
    CHECK(drafted_at(0.01f) == 8);
  }
}

TEST_CASE("prompt lookup prefers a longer match in a library to a shorter one in the text") {
  const std::vector<Token> library{9, 1, 2, 3, 50, 51, 52, 4};
  const auto proposed_with = [&](const std::vector<Token>& context, int most) {
    NgramDrafter drafter({.row_cost = 0}, library);
    std::vector<Token> out;
    drafter.start(context);
    drafter.propose(context, most, out);
    return out;
  };
  CHECK(proposed_with({7, 1, 2, 3}, 3) == std::vector<Token>{50, 51, 52});
  CHECK(proposed_with({7, 1, 2, 3}, 9) == std::vector<Token>{50, 51, 52, 4});
  CHECK(proposed_with({3, 8, 1, 2, 3}, 2) == std::vector<Token>{50, 51});
  CHECK(proposed_with({1, 2, 3, 8, 1, 2, 3}, 2) ==
        std::vector<Token>{8, 1});       // an equally long match in the text itself
  CHECK(proposed_with({4}, 2).empty());  // no token follows in the library
  CHECK(proposed_with({4, 8, 4}, 2) == std::vector<Token>{8, 4});
  const std::vector<Token> endless(std::size_t{1 << 24} + 1);
  CHECK(error_id([&] { NgramDrafter{{}, endless}; }) == "decode.long-lookup");
}

TEST_CASE("prompt lookup learns only committed tokens") {
  const std::vector<Token> prompt{1, 2, 3, 4, 1, 2};
  NgramDrafter drafter({.row_cost = 0}), fresh({.row_cost = 0});
  std::vector<Token> drafted;
  drafter.start(prompt);
  drafter.propose(prompt, 2, drafted);
  REQUIRE(drafted == std::vector<Token>{3, 4});
  // Both are rejected, and 3 4 1 occurs only at the text's start: it contains no old draft.
  const std::vector<Token> context{1, 2, 3, 4, 1, 2, 8, 3};
  std::vector<Token> one, other;
  drafter.propose(context, 9, one);
  fresh.propose(context, 9, other);
  CHECK(one == other);
  CHECK(one == std::vector<Token>{4, 1, 2, 8, 3});
  // Another text starts, with the same tokens or with others.
  drafter.start(std::vector<Token>{1, 2, 3});
  one.clear();
  drafter.propose(std::vector<Token>{1, 2, 3, 8}, 9, one);
  CHECK(one.empty());
}

TEST_CASE("some drafters have a distribution") {
  STATIC_REQUIRE(BatchedDrafter<ModelDrafter<ToyModel>>);
  STATIC_REQUIRE_FALSE(Drafter<ModelDrafter<ToyModel>>);
  STATIC_REQUIRE(DistributionDrafter<NoDrafter>);
  STATIC_REQUIRE(TokenDrafter<NgramDrafter>);
  STATIC_REQUIRE_FALSE(DistributionDrafter<NgramDrafter>);
  STATIC_REQUIRE_FALSE(Drafter<ToyModel>);
}
