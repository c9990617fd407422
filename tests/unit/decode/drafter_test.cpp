// The drafters alone.
#include "slm/decode/lookup.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "slm/decode/speculative_definition.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<Token> ask(Lookup& lookup, const std::vector<Token>& context, int most) {
  std::vector<Token> out;
  std::vector<float> chances;
  lookup.propose(context, most, out, chances);
  CHECK(out.size() == chances.size());
  return out;
}

std::vector<Token> proposed(int longest, int shortest, const std::vector<Token>& context, int most) {
  Lookup lookup({.longest = longest, .shortest = shortest});
  return ask(lookup, context, most);
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
  SpeculativeDecoder decoder{Lookup{}, ScriptedModel{script, 8}, {.draft_tokens = 6}};
  const std::vector<Token> prompt(script.begin(), script.begin() + 10);
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = 140, .temperature = 0}, [](Token) {});
  REQUIRE(stats.acceptance_rate() == 1.0);
  REQUIRE(stats.rounds == 20);
}

TEST_CASE("prompt lookup costs little on text without repetition, if rows are not free") {
  std::ifstream file(source_path("LICENSE"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Tokenizer tokenizer = Tokenizer::from(demo_pair("target"));
  const std::vector<Token> script = tokenizer.encode(text);
  SpeculativeDecoder decoder{Lookup{}, ScriptedModel{script, tokenizer.vocab(), {}, 8192}, {.draft_tokens = 4}};
  const std::vector<Token> prompt(script.begin(), script.begin() + 64);
  const int rest = static_cast<int>(script.size() - prompt.size());
  const Stats stats = decoder.generate(prompt, {.max_new_tokens = rest, .temperature = 0}, [](Token) {});
  REQUIRE(stats.emitted == rest);
  // Plain decoding steps for the same text, if each drafted row takes a third of a step.
  const double cost = static_cast<double>(stats.rounds) + 0.35 * static_cast<double>(stats.drafted);
  REQUIRE(static_cast<double>(stats.emitted) / cost > 0.9);
  REQUIRE(stats.drafted_at_depth.size() == 4);
}

TEST_CASE("lookup estimates its tokens from earlier matches, and a round drafts as many as pay") {
  // After 5 comes 6, and then another token each time.
  std::vector<Token> context;
  Lookup lookup;
  for (Token i = 0; i < 40; ++i) context.insert(context.end(), {5, 6, 100 + i, 200 + i});
  lookup.start({.prompt = context});
  const auto drafted_after = [&](const std::vector<Token>& tokens) {
    std::vector<Token> with = context, out;
    with.insert(with.end(), tokens.begin(), tokens.end());
    Lookup here = lookup;
    std::vector<float> survival;
    here.propose(with, 8, out, survival);
    float product = 1;
    for (float& chance : survival) chance = product *= chance;
    draft_length::Decision decision{.attempts = nullptr, .tokens = survival, .estimated = true, .model = {}};
    detail::decide_alone(decision, 8);
    CHECK_FALSE(decision.by_model);
    return decision.length;
  };
  CHECK(drafted_after({5}) == 1);
  CHECK(drafted_after({5, 6}) == 0);
  std::vector<Token> copied;
  for (Token i = 0; i < 60; ++i) copied.push_back(1000 + i % 30);
  lookup.start({.prompt = copied});
  context = copied;
  CHECK(drafted_after({}) == 8);
}

TEST_CASE("prompt lookup prefers a longer match in a library to a shorter one in the text") {
  const std::vector<Token> library{9, 1, 2, 3, 50, 51, 52, 4};
  const auto proposed_with = [&](const std::vector<Token>& context, int most) {
    Lookup lookup({}, library);
    lookup.start({.prompt = context});
    return ask(lookup, context, most);
  };
  CHECK(proposed_with({7, 1, 2, 3}, 3) == std::vector<Token>{50, 51, 52});
  CHECK(proposed_with({7, 1, 2, 3}, 9) == std::vector<Token>{50, 51, 52, 4});
  CHECK(proposed_with({3, 8, 1, 2, 3}, 2) == std::vector<Token>{50, 51});
  CHECK(proposed_with({1, 2, 3, 8, 1, 2, 3}, 2) ==
        std::vector<Token>{8, 1});       // an equally long match in the text itself
  CHECK(proposed_with({4}, 2).empty());  // no token follows in the library
  CHECK(proposed_with({4, 8, 4}, 2) == std::vector<Token>{8, 4});
  const std::vector<Token> endless(std::size_t{1 << 24} + 1);
  CHECK(error_id([&] { Lookup({}, endless); }) == "decode.long-lookup");
}

TEST_CASE("prompt lookup learns only committed tokens") {
  const std::vector<Token> prompt{1, 2, 3, 4, 1, 2};
  Lookup lookup, fresh;
  lookup.start({.prompt = prompt});
  REQUIRE(ask(lookup, prompt, 2) == std::vector<Token>{3, 4});
  // Both are rejected, and 3 4 1 occurs only at the text's start: it contains no old draft.
  const std::vector<Token> context{1, 2, 3, 4, 1, 2, 8, 3};
  const std::vector<Token> one = ask(lookup, context, 9);
  CHECK(one == ask(fresh, context, 9));
  CHECK(one == std::vector<Token>{4, 1, 2, 8, 3});
  // Another text starts, with the same tokens or with others.
  lookup.start({.prompt = {1, 2, 3}});
  CHECK(ask(lookup, {1, 2, 3, 8}, 9).empty());
}

TEST_CASE("finished answers are found again by requests of the same tenant, by count") {
  const std::vector<Token> answer{1, 2, 3, 4, 5, 6, 7, 8, 9}, other{9, 2, 3, 4, 5, 60};
  Lookup first, second = first;  // copies share the pool
  first.start({.prompt = {1}, .tenant = 7});
  first.finish(answer, 1);
  second.start({.prompt = {2, 3, 4, 5}, .tenant = 7});
  CHECK(ask(second, {2, 3, 4, 5}, 9) == std::vector<Token>{6, 7, 8, 9});
  CHECK(ask(second, {2, 3, 4, 5}, 2) == std::vector<Token>{6, 7});
  CHECK(ask(second, {3, 4, 5}, 2).empty());
  second.start({.prompt = {2, 3, 4, 5}, .tenant = 8});
  CHECK(ask(second, {2, 3, 4, 5}, 9).empty());
  // Two answers that differ: the more frequent token is proposed.
  first.start({.prompt = {1}, .tenant = 7});
  first.finish(other, 1);
  second.start({.prompt = {2, 3, 4, 5}, .tenant = 7});
  CHECK(ask(second, {2, 3, 4, 5}, 9).empty());
  first.finish(other, 1);
  CHECK(ask(second, {2, 3, 4, 5}, 9) == std::vector<Token>{60});
  second.isolate();
  CHECK(ask(second, {2, 3, 4, 5}, 9).empty());
  CHECK(ask(first, {2, 3, 4, 5}, 9) == std::vector<Token>{60});
  // The pool is bounded: old answers fade.
  Lookup small({.pool_bits = 4});
  small.start({.prompt = {1}});
  for (Token i = 0; i < 400; ++i) small.finish(std::vector<Token>{i, i + 1, i + 2, i + 3, i + 4}, 1);
  CHECK(ask(small, {399, 400, 401, 402}, 1).size() <= 1);
  Lookup none({.pool_bits = 0});
  none.finish(answer, 1);
  CHECK(ask(none, {2, 3, 4, 5}, 9).empty());
}

TEST_CASE("a drafter holds several sources, and at most one model") {
  const ToyModel model{{.vocab = 8}};
  CHECK(Drafter{}.empty());
  const Drafter both{Lookup{}, model};
  CHECK(both.model() != nullptr);
  CHECK(both.sources().size() == 1);
  CHECK(error_id([&] { Drafter{model, model}; }) == "decode.two-draft-models");
  STATIC_REQUIRE(EstimatingSource<Lookup>);
  STATIC_REQUIRE(TokenSource<ScriptedDrafter>);
  STATIC_REQUIRE_FALSE(DistributionSource<ScriptedDrafter>);
  STATIC_REQUIRE_FALSE(DraftSource<ToyModel>);
}

TEST_CASE("in each round the best source drafts, by its record") {
  std::vector<Token> script;
  for (int i = 0; i < 400; ++i) script.push_back(static_cast<Token>(1 + mix(static_cast<std::uint64_t>(i)) % 30));
  const std::vector<Token> prompt(script.begin(), script.begin() + 4);
  const ScriptedModel target{script, 32};
  const ScriptedDrafter right = prophet(script, 32), wrong = prophet(script, 32, 1);
  for (const bool adaptive : {false, true}) {
    Speculation speculation;
    if (!adaptive) speculation.draft_tokens = 4;
    double now = 0;  // each row and each step of the draft takes a tenth of a plain step
    const auto step = [&](const Batch& batch) {
      for (const Batch::Item& item : batch.items()) now += 0.9 + 0.1 * static_cast<double>(item.count);
    };
    const auto draft_step = [&](const Batch&) { now += 0.1; };
    speculation.clock = [&] { return now; };
    const Watched timed{target, step};
    std::vector<Token> text;
    const auto run = [&](Drafter drafter) {
      text = prompt;
      now = 0;
      SpeculativeDecoder decoder{std::move(drafter), timed, speculation};
      return decoder.generate(prompt, {.max_new_tokens = 300, .temperature = 0},
                              [&](Token token) { text.push_back(token); });
    };
    const auto expected = std::vector<Token>(script.begin(), script.begin() + 304);
    const Stats plain = run({});
    CHECK(text == expected);
    const Stats sources = run({wrong, right, wrong});
    CHECK(text == expected);
    CHECK(sources.acceptance_rate() > 0.9);
    CHECK(sources.drafted_by_model == 0);
    const Stats model = run({wrong, Watched{target, draft_step}});
    CHECK(text == expected);
    CHECK(model.drafted_by_model > model.drafted * 9 / 10);
    CHECK(model.total_seconds < 0.7 * plain.total_seconds);
    const Stats all = run({Watched{target, draft_step}, right, Lookup{}});
    CHECK(text == expected);
    CHECK(all.total_seconds < 0.7 * plain.total_seconds);
    const Stats useless = run({wrong, Watched{ScriptedModel{{}, 32}, draft_step}});
    CHECK(text == expected);
    if (adaptive) CHECK(useless.total_seconds <= 1.025 * plain.total_seconds);
  }
}
