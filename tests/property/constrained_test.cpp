// Constrained decoding: every rule and drafter gives the text of plain constrained decoding, which is the model's
// distribution with forbidden tokens at minus infinity before all cuts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/autoregressive.hpp"
#include "slm/decode/forced_text.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "slm/grammar.hpp"
#include "support/naive_decoding.hpp"
#include "support/toy_constraints.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Setup {
  ToyOptions target, draft;
  Grammar grammar;
  std::vector<std::string> pieces;
  Request request;
  int draft_length;

  Token end() const { return target.end_tokens.front(); }
  TriedConstraint tried() const { return {grammar, pieces, end()}; }
};

Setup random_setup(std::uint64_t number) {
  ToyRandom random{number};
  Setup setup{.target = {},
              .draft = {},
              .grammar = random_grammar(random),
              .pieces = toy_pieces(number % 50),
              .request = {},
              .draft_length = 0};
  const auto vocab = static_cast<std::uint64_t>(setup.pieces.size());
  // Logits may be wider than the tokenizer's vocabulary.
  setup.target.vocab = static_cast<int>(vocab + random.pick(2) * 70);
  setup.target.seed = 1 + random.pick(1000);
  setup.target.memory = random.pick(3) == 0 ? 2 : 1 << 20;
  setup.target.context = random.pick(6) == 0 ? static_cast<int>(12 + random.pick(10)) : 4096;
  setup.target.spread = 1 + static_cast<double>(random.pick(6));
  setup.target.end_tokens = {static_cast<Token>(vocab - 1)};
  setup.draft = setup.target;
  setup.draft.other_seed = 5000 + number;
  setup.draft.other_share = static_cast<double>(random.pick(5)) / 4;
  if (random.pick(4) == 0) setup.draft.vocab = std::max(2, setup.draft.vocab - static_cast<int>(random.pick(30)));
  setup.request.constraint = constrain(setup.grammar, TokenTrie(setup.pieces));
  for (std::uint64_t i = 1 + random.pick(6); i > 0; --i) {
    setup.request.prompt.push_back(static_cast<Token>(random.pick(vocab)));
  }
  Sampling& sampling = setup.request.sampling;
  sampling.max_new_tokens = static_cast<int>(1 + random.pick(28));
  sampling.temperature = std::vector<float>{0.0f, 0.3f, 0.8f, 1.0f}[random.pick(4)];
  sampling.top_k = std::vector<int>{0, 0, 1, 3}[random.pick(4)];
  sampling.top_p = std::vector<float>{1.0f, 1.0f, 0.9f, 0.6f}[random.pick(4)];
  sampling.min_p = random.pick(4) == 0 ? 0.05f : 0.0f;
  if (random.pick(3) == 0) sampling.repetition_penalty = 1.2f, sampling.frequency_penalty = 0.3f;
  if (random.pick(8) == 0) {
    sampling.adjust_logits = [](std::span<const Token>, std::span<float> logits) { logits[0] = 50; };
  }
  sampling.seed = number * 31 + 7;
  setup.draft_length = static_cast<int>(random.pick(9));
  return setup;
}

template <class Decoder>
std::vector<Token> text_of(Decoder& decoder, const Setup& setup) {
  std::vector<Token> text = setup.request.prompt;
  const Stats stats = decoder.generate(setup.request, [&](Token token) { text.push_back(token); });
  const auto output = std::span<const Token>(text).subspan(setup.request.prompt.size());
  const TriedConstraint tried = setup.tried();
  const bool ended = stats.finish_reason == FinishReason::end_token;
  const auto answer = output.first(output.size() - ended);
  REQUIRE((stats.finish_reason == FinishReason::complete) == (!ended && tried.is_complete(answer)));  // a valid prefix
  if (ended) REQUIRE(tried.may_end(answer));
  return text;
}

/// Calls check(draft) with the drafters of a case.
template <class Check>
void with_drafter(const Setup& setup, std::uint64_t number, const std::vector<Token>& expected, Check check) {
  const auto offset = static_cast<Token>(number / 5 % 3);
  switch (number % 7) {
    case 5: return check(ForcedText{});
    case 6: return check(Drafter{ForcedText{}, Lookup{}, ToyModel{setup.draft}});
    case 0: return check(ToyModel{setup.draft});
    case 1:
      return check(
          Drafter{Lookup({.pool_bits = 6}), prophet(expected, setup.target.vocab, offset), ToyModel{setup.draft}});
    case 2: return check(Lookup({.longest = 1 + static_cast<int>(number % 4)}));
    case 3:
      return check(
          SpoiltModel{setup.draft, [from = static_cast<int>(number / 20 % 6)](int call, std::span<float> rows) {
                        if (call >= from && !rows.empty()) {
                          rows[rows.size() / 2] = std::numeric_limits<float>::quiet_NaN();
                        }
                      }});
    default: return check(prophet(expected, setup.target.vocab, offset));
  }
}

template <class Rule>
void check_equality(std::uint64_t cases) {
  for (std::uint64_t number = 0; number < cases; ++number) {
    const Setup setup = random_setup(number);
    CAPTURE(Rule::name, number, setup.draft_length, setup.request.sampling.temperature);
    AutoregressiveDecoder plain{ToyModel{setup.target}, Rule{}};
    const auto expected = text_of(plain, setup);
    if (std::is_same_v<Rule, rule::Coupled> && setup.target.vocab == static_cast<int>(setup.pieces.size())) {
      REQUIRE(expected == naive_constrained_text(ToyModel{setup.target}, setup.request.prompt, setup.request.sampling,
                                                 setup.tried()));
    }
    Speculation speculation{.draft_tokens = setup.draft_length};
    if (number / 5 % 3 == 1) speculation = {};
    speculation.overlap = number % 3 == 0;
    with_drafter(setup, number, expected, [&](auto draft) {
      SpeculativeDecoder decoder{std::move(draft), ToyModel{setup.target}, speculation, Rule{}};
      REQUIRE(text_of(decoder, setup) == expected);
      REQUIRE(text_of(decoder, setup) == expected);
    });
  }
}

}  // namespace

TEST_CASE("constrained: the coupled rule gives the text of plain decoding for every drafter") {
  check_equality<rule::Coupled>(2500);
}

TEST_CASE("constrained: sample-match gives the text of plain decoding for every drafter") {
  check_equality<rule::Match>(800);
}

TEST_CASE("constrained: greedy text is that of plain decoding, and every text fits, under every rule") {
  for (std::uint64_t number = 0; number < 600; ++number) {
    Setup setup = random_setup(number);
    setup.target.context = setup.draft.context = 4096;
    const bool greedy = number % 2 == 0;
    if (greedy) setup.request.sampling.temperature = 0;
    CAPTURE(number);
    AutoregressiveDecoder plain{ToyModel{setup.target}};
    const auto expected = text_of(plain, setup);
    with_drafter(setup, number / 2, expected, [&](auto draft) {
      SpeculativeDecoder ratio{draft, ToyModel{setup.target}, {.draft_tokens = 4}, rule::Ratio{}};
      SpeculativeDecoder block{draft, ToyModel{setup.target}, {.draft_tokens = 4}, rule::Block{}};
      const auto by_ratio = text_of(ratio, setup), by_block = text_of(block, setup);
      if (!greedy) return;
      REQUIRE(by_ratio == expected);
      REQUIRE(by_block == expected);
    });
  }
}

namespace {

/// Keeps the state of discarded tokens.
struct NotRolledBack : Unchanged {
  void truncate(ConstraintState&, std::size_t) {}
};

/// Plain constrained decoding in which top-k keeps the likeliest tokens of all.
std::vector<Token> text_masked_after_top_k(const Setup& setup) {
  Sampling sampling = setup.request.sampling;
  const auto edits = sampling.adjust_logits;
  const auto k = static_cast<std::size_t>(sampling.top_k);
  sampling.adjust_logits = [&, edits](std::span<const Token> prefix, std::span<float> logits) {
    if (edits) edits(prefix, logits);
    std::vector<float> sorted(logits.begin(), logits.end());
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k) - 1, sorted.end(), std::greater{});
    for (float& logit : logits) logit = logit < sorted[k - 1] ? -1000 : logit;
  };
  return naive_constrained_text(ToyModel{setup.target}, setup.request.prompt, sampling, setup.tried());
}

}  // namespace

TEST_CASE("constrained: wrong variants are found") {
  int after_top_k = 0, not_rolled_back = 0, of_top_k = 0;
  for (std::uint64_t number = 0; number < 200; ++number) {
    Setup setup = random_setup(number);
    AutoregressiveDecoder plain{ToyModel{setup.target}};
    const auto expected = text_of(plain, setup);
    if (setup.request.sampling.top_k > 0 && setup.target.vocab == static_cast<int>(setup.pieces.size())) {
      ++of_top_k;
      after_top_k += text_masked_after_top_k(setup) != expected;
    }
    setup.request.constraint = std::make_shared<ChangedConstraint<NotRolledBack>>(setup.request.constraint);
    SpeculativeDecoder decoder{ToyModel{setup.draft}, ToyModel{setup.target}, {.draft_tokens = 4}};
    std::vector<Token> text = setup.request.prompt;
    try {
      decoder.generate(setup.request, [&](Token token) { text.push_back(token); });
      not_rolled_back += text != expected;
    } catch (const Error&) {
      ++not_rolled_back;
    }
  }
  CHECK(after_top_k > of_top_k / 4);
  CHECK(not_rolled_back > 50);
}

namespace {

const std::vector<std::string> letters{"a", "b", "ab", "", ""};
const ToyOptions toy{.vocab = 5, .seed = 3, .end_tokens = {4}};

Request request_for(const Grammar& grammar, int max_new_tokens = 20) {
  return {.prompt = {1, 2},
          .sampling = {.max_new_tokens = max_new_tokens},
          .constraint = constrain(grammar, TokenTrie(letters))};
}

struct Answered {
  std::string text;
  Stats stats;
};

Answered answer(const Request& request, Drafter draft = {}) {
  SpeculativeDecoder decoder{std::move(draft), ToyModel{toy}};
  Answered answered;
  answered.stats =
      decoder.generate(request, [&](Token token) { answered.text += letters[static_cast<std::size_t>(token)]; });
  return answered;
}

}  // namespace

TEST_CASE("constrained: an answer ends where the grammar ends") {
  const Answered whole = answer(request_for(Grammar::choice(std::vector<std::string>{"abba"})));
  CHECK(whole.text == "abba");
  CHECK(whole.stats.finish_reason == FinishReason::complete);

  const Answered empty = answer(request_for(Grammar::choice(std::vector<std::string>{""})));
  CHECK(empty.text.empty());
  CHECK(empty.stats.finish_reason == FinishReason::complete);
  CHECK(empty.stats.emitted == 0);

  // Whole and at the limit of tokens: it is complete.
  CHECK(answer(request_for(Grammar::regex("bb"), 2)).stats.finish_reason == FinishReason::complete);

  Request endless = request_for(Grammar::regex("a*"), 200);
  endless.sampling.temperature = 1;
  CHECK(answer(endless).stats.finish_reason == FinishReason::end_token);
  endless.sampling.ignore_end_tokens = true;
  const Answered ignored = answer(endless);
  CHECK(ignored.stats.finish_reason == FinishReason::length);
  CHECK(ignored.text == std::string(200, 'a'));
}

TEST_CASE("constrained: an answer that does not fit into the limit is a valid beginning") {
  const Grammar grammar = Grammar::regex("(ab){30}");
  const Answered cut = answer(request_for(grammar, 7));
  CHECK(cut.stats.finish_reason == FinishReason::length);
  CHECK(cut.stats.emitted == 7);
  CHECK(Constraint(grammar).advance(cut.text) == cut.text.size());
}

TEST_CASE("constrained: stop tokens with a text are ordinary ones, others end a whole answer") {
  Request request = request_for(Grammar::regex("a{3}b"));
  request.sampling.stop_tokens = {1, 3};
  const Answered by_text = answer(request);
  CHECK(by_text.stats.finish_reason == FinishReason::stop_token);
  CHECK(by_text.text == "aaab");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    request = request_for(Grammar::regex("(aa)*"), 500);
    request.sampling.stop_tokens = {3};
    request.sampling.seed = seed;
    const Answered by_special = answer(request);
    CHECK(by_special.text.size() % 2 == 0);
  }
}

TEST_CASE("constrained: a grammar whose bytes have no token is an error") {
  const Request request = request_for(Grammar::choice(std::vector<std::string>{"abc"}));
  CHECK_THROWS_WITH(answer(request), Catch::Contains("structured.no-token"));
  CHECK_THROWS_WITH(answer(request, Drafter{ToyModel{toy}}), Catch::Contains("structured.no-token"));
}

namespace {

/// Fails after three tokens.
struct Failing : Unchanged {
  int length = 0;
  bool advance(ConstraintState& state, Token token) {
    length += state.advance(token);
    return true;
  }
  void truncate(ConstraintState& state, std::size_t tokens) {
    state.truncate(tokens);
    length = static_cast<int>(tokens);
  }
  void mask(const ConstraintState& state, std::span<std::uint64_t> bits) const {
    if (length == 3) throw Error("grammar.limit", "a mask took too long", "Simplify it");
    state.mask(bits);
  }
};

}  // namespace

TEST_CASE("constrained: an error of the constraint is thrown at its place, with and without a draft") {
  Request request = request_for(Grammar::regex("[ab]{9}"));
  request.constraint = std::make_shared<ChangedConstraint<Failing>>(request.constraint);
  for (const bool drafts : {false, true}) {
    SpeculativeDecoder decoder{drafts ? Drafter{ToyModel{toy}} : Drafter{}, ToyModel{toy}, {.draft_tokens = 6}};
    int tokens = 0;
    CHECK_THROWS_WITH(decoder.generate(request, [&](Token) { ++tokens; }), Catch::Contains("grammar.limit"));
    if (!drafts) CHECK(tokens == 3);
    request.sampling.max_new_tokens = 3;
    CHECK(decoder.generate(request, [](Token) {}).emitted == 3);
    request.sampling.max_new_tokens = 20;
  }
}

TEST_CASE("constrained: forced text is drafted and counted") {
  const Request request = request_for(Grammar::regex("(abba){4}[ab]b{9}"), 60);
  const Answered plain = answer(request);
  SpeculativeDecoder decoder{ForcedText{}, ToyModel{toy}, {.draft_tokens = 6}};
  std::string text;
  const Stats stats = decoder.generate(request, [&](Token token) { text += letters[static_cast<std::size_t>(token)]; });
  CHECK(text == plain.text);
  CHECK(plain.stats.forced == 0);
  CHECK(stats.forced > 0);
  CHECK(stats.forced == stats.accepted);
  CHECK(stats.forced_share() > 0.2);
  CHECK(stats.draft_faults == 0);
}
