// Draft models with another tokenizer: the text is that of plain decoding under every rule.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/engine/engine_definition.hpp"
#include "support/lossless.hpp"
#include "support/text_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Random {
  std::uint64_t seed;
  std::uint64_t salt = 0;
  std::uint64_t pick(std::uint64_t n) { return mix(seed * 977 + ++salt) % n; }
};

constexpr std::string_view letters = "abc ";

/// Letters, words of two to four letters, some of them twice, and tokens without a text, in random order.
std::vector<std::string> random_vocabulary(Random& random) {
  std::vector<std::string> tokens;
  for (const char letter : letters) {
    if (letter == ' ' || random.pick(8) > 0) tokens.emplace_back(1, letter);
  }
  for (std::uint64_t i = 2 + random.pick(20); i > 0; --i) {
    std::string word;
    for (std::uint64_t length = 2 + random.pick(3); length > 0; --length) word += letters[random.pick(letters.size())];
    tokens.push_back(word);
  }
  for (std::uint64_t i = random.pick(3); i > 0; --i) tokens.emplace_back();
  for (std::size_t i = tokens.size(); i > 1; --i) std::swap(tokens[i - 1], tokens[random.pick(i)]);
  return tokens;
}

TextForm random_form(Random& random) { return static_cast<TextForm>(random.pick(3)); }

struct Pair {
  TextModel draft, target;
  std::vector<Token> prompt;
  Sampling sampling;
  Speculation speculation;
};

Pair random_pair(std::uint64_t number) {
  Random random{number};
  const auto drafts = random_vocabulary(random), targets = random_vocabulary(random);
  ToyOptions options{.seed = 1 + random.pick(1000), .spread = 1 + static_cast<double>(random.pick(6))};
  const auto any = [&] { return static_cast<Token>(random.pick(targets.size())); };
  if (random.pick(2) == 0) options.end_tokens.push_back(any());
  if (random.pick(4) == 0) options.context = static_cast<int>(12 + random.pick(20));
  ToyOptions other = options;
  other.other_share = static_cast<double>(random.pick(5)) / 4;
  other.context = random.pick(3) == 0 ? static_cast<int>(6 + random.pick(50)) : 4096;
  if (!options.end_tokens.empty()) other.end_tokens.front() = static_cast<Token>(random.pick(drafts.size()));
  Pair pair{.draft = TextModel(drafts, random_form(random), other),
            .target = TextModel(targets, random_form(random), options),
            .prompt = {},
            .sampling = {.max_new_tokens = static_cast<int>(1 + random.pick(40)), .seed = number},
            .speculation = {.draft_tokens = static_cast<int>(1 + random.pick(8))}};
  for (std::uint64_t i = 1 + random.pick(8); i > 0; --i) pair.prompt.push_back(any());
  pair.sampling.temperature = std::vector<float>{0.0f, 0.5f, 1.0f}[random.pick(3)];
  pair.sampling.top_k = std::vector<int>{0, 4}[random.pick(2)];
  pair.sampling.ignore_end_tokens = random.pick(4) == 0;
  if (random.pick(4) == 0) pair.sampling.repetition_penalty = 1.2f;
  if (random.pick(4) == 0) {  // some texts permit only tokens that a small draft may lack
    pair.sampling.adjust_logits = [](std::span<const Token> prefix, std::span<float> logits) {
      for (std::size_t v = 0; v < logits.size(); ++v) {
        const bool keeps = logits.size() <= 5 || v % 5 == static_cast<std::size_t>(prefix.back()) % 5;
        if (!keeps) logits[v] = -std::numeric_limits<float>::infinity();
      }
    };
  }
  if (random.pick(4) == 0) pair.speculation.overlap = true;
  if (random.pick(3) == 0) pair.speculation.draft_length = draft_length::Confidence{0.3, 6};
  return pair;
}

template <class Decoder>
std::pair<std::vector<Token>, Stats> run(Decoder& decoder, const Pair& pair) {
  std::vector<Token> text = pair.prompt;
  const Stats stats = decoder.generate(pair.prompt, pair.sampling, [&](Token token) { text.push_back(token); });
  return {text, stats};
}

/// Texts with the rule equal those of plain decoding. Returns the number of accepted tokens.
template <class Rule>
std::int64_t check_equality(std::uint64_t cases) {
  std::int64_t accepted = 0;
  for (std::uint64_t number = 0; number < cases; ++number) {
    Pair pair = random_pair(number);
    if (Rule::needs_distribution) pair.sampling.temperature = 0;
    CAPTURE(Rule::name, number, pair.sampling.temperature);
    AutoregressiveDecoder plain{pair.target, Rule{}};
    const auto expected = run(plain, pair).first;
    SpeculativeDecoder decoder{pair.draft, pair.target, pair.speculation, Rule{}};
    for (int i = 0; i < 2; ++i) {  // the second time with the KV caches of the first
      const auto [text, stats] = run(decoder, pair);
      REQUIRE(text == expected);
      CAPTURE(stats.disabled_reason);
      REQUIRE(stats.draft_faults == 0);
      REQUIRE(stats.common_tokens > 0);
      accepted += stats.accepted;
    }
    const auto read = std::span<const Token>(expected).first(static_cast<std::size_t>(decoder.draft_read()));
    REQUIRE(read.size() < expected.size());
  }
  return accepted;
}

}  // namespace

TEST_CASE("random tokenizers: the coupled rule") { REQUIRE(check_equality<rule::Coupled>(3000) > 3000); }
TEST_CASE("random tokenizers: sample-match") { REQUIRE(check_equality<rule::Match>(1500) > 1000); }
TEST_CASE("random tokenizers: greedy ratio test") { REQUIRE(check_equality<rule::Ratio>(1500) > 1000); }
TEST_CASE("random tokenizers: greedy block verification") { REQUIRE(check_equality<rule::Block>(1500) > 1000); }

TEST_CASE("a draft that has all of the target's tokens and reads the same bytes is always right") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    Random random{number};
    std::vector<std::string> targets;
    for (const std::string& token : random_vocabulary(random)) {
      const bool again = std::find(targets.begin(), targets.end(), token) != targets.end();
      if (!token.empty() && !again) targets.push_back(token);
    }
    std::vector<std::string> drafts(targets.rbegin(), targets.rend());
    drafts.insert(drafts.begin(), {"abcabc", ""});
    const ToyOptions options{.seed = number + 1};
    const TextModel draft(drafts, random_form(random), options), target(targets, random_form(random), options);
    SpeculativeDecoder decoder{draft, target, {.draft_tokens = 5}};
    const Sampling sampling{.max_new_tokens = 60, .temperature = number % 2 ? 0.0f : 0.9f};
    const Stats stats = decoder.generate(std::vector<Token>{0}, sampling, [](Token) {});
    CAPTURE(number);
    REQUIRE(stats.acceptance_rate() == 1.0);
    REQUIRE(stats.unmappable_tokens == 0);
    REQUIRE(stats.common_tokens == std::ssize(targets));
  }
}

TEST_CASE("the draft reads the bytes of the target's text, in its own tokens") {
  const TextModel draft({" ", "a", "b", "c", "ab", "ba"}, TextForm::byte_level, {.seed = 4});
  const TextModel target({"abc", "cab", "a", "b", "c", " ", "bab", "c a"}, TextForm::sentencepiece, {.seed = 4});
  SpeculativeDecoder decoder{draft, target, {.draft_tokens = 3}};
  const Sampling sampling{.max_new_tokens = 80, .temperature = 0};
  const Stats stats = decoder.generate(std::vector<Token>{0, 6, 7}, sampling, [](Token) {});
  const auto read = decoder.history().first(static_cast<std::size_t>(decoder.draft_read()));
  REQUIRE(read.size() > 60);
  REQUIRE(draft.text().starts_with(target.bytes_of(read)));
  REQUIRE(stats.unmappable_tokens > 10);
  REQUIRE(stats.accepted > 10);
}

TEST_CASE("a draft with another tokenizer stops at the end of its own context") {
  const TextModel target({"abcabc", "b", " "}, TextForm::plain, {.seed = 4, .spread = 1});
  const TextModel draft({" ", "a", "b", "c"}, TextForm::plain, {.context = 100, .seed = 4, .spread = 1});
  AutoregressiveDecoder plain{target};
  SpeculativeDecoder decoder{draft, target, {.draft_tokens = 3}};
  const std::vector<Token> prompt{0, 0, 0};
  const Sampling sampling{.max_new_tokens = 90, .temperature = 1, .seed = 3};
  std::vector<Token> expected, text;
  plain.generate(prompt, sampling, [&](Token token) { expected.push_back(token); });
  const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
  REQUIRE(text == expected);
  REQUIRE(stats.draft_faults == 0);
  REQUIRE(stats.drafted > 10);
  REQUIRE(decoder.draft_read() < 60);  // fewer than 100 tokens of the target, as some take six of the draft's
  REQUIRE(decoder.generate(std::vector<Token>(30, 0), sampling, [](Token) {}).drafted == 0);
}

TEST_CASE("all rules keep the target's distribution with a draft of another tokenizer") {
  // Four of the target's six tokens are in common, in another order; the fifth is spelled, the last has no text.
  const Setting setting{2, 6};
  ToyModel target{target_options(setting.vocab)}, draft{draft_options(7)};
  target.info().tokens = [] { return std::vector<std::string>{"a", "b", "c", "d", "ab", ""}; };
  draft.info().tokens = [] { return std::vector<std::string>{"x", "d", "c", "y", "b", "a", "z"}; };
  const auto check = [&](auto rule) {
    for (const int number : {0, 1}) {
      const Fit found = fit<decltype(rule)>(draft, target, setting, sampling_number(number));
      CAPTURE(rule.name, number, found.p, found.out_of_support);
      CHECK_FALSE(found.rejects());
    }
  };
  check(rule::Ratio{});
  check(rule::Block{});
  check(rule::Coupled{});
  check(rule::Match{});
}

TEST_CASE("an engine's answers with a draft of another tokenizer are those of plain decoding") {
  const Pair pair = random_pair(8);
  std::vector<std::vector<Token>> expected;
  std::vector<Request> requests;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    requests.push_back({.prompt = {static_cast<Token>(seed % 4), 1}, .sampling = {.max_new_tokens = 40, .seed = seed}});
    AutoregressiveDecoder plain{pair.target};
    plain.generate(requests.back().prompt, requests.back().sampling, [&, first = true](Token token) mutable {
      if (std::exchange(first, false)) expected.emplace_back();
      expected.back().push_back(token);
    });
  }
  Engine engine{pair.draft, pair.target, {.speculation = {.draft_tokens = 4}}};
  std::vector<Answer> answers;
  for (const Request& request : requests) answers.push_back(engine.submit(request));
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::vector<Token> text;
    while (const auto token = answers[i].next()) text.push_back(token->token);
    REQUIRE(text == expected[i]);
    REQUIRE(answers[i].stats().common_tokens > 0);
  }
}
