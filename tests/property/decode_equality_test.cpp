// The coupled rule and sample-match give the text of plain decoding, token for token, for any drafter and draft length.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/naive_decoding.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Case {
  std::uint64_t seed;
  std::uint64_t salt = 0;
  std::uint64_t pick(std::uint64_t n) { return mix(seed * 977 + ++salt) % n; }
};

struct Setup {
  ToyOptions target, draft;
  std::vector<Token> prompt;
  Sampling sampling;
  int draft_length;
};

/// A random target, draft, prompt and sampling. Some vocabularies differ in size, some contexts are short, some ids end
/// the text.
Setup random_setup(std::uint64_t number) {
  Case random{number};
  Setup setup;
  setup.target.vocab = static_cast<int>(6 + random.pick(20));
  setup.target.seed = 1 + random.pick(1000);
  setup.target.memory = random.pick(3) == 0 ? 2 : 1 << 20;  // a short memory makes repetitive text, which suits n-grams
  setup.target.context = random.pick(4) == 0 ? static_cast<int>(12 + random.pick(20)) : 4096;
  setup.target.spread = 1 + static_cast<double>(random.pick(6));
  setup.draft = setup.target;
  setup.draft.other_seed = 5000 + number;
  setup.draft.other_share = static_cast<double>(random.pick(5)) / 4;  // 0: the target itself, 1: unrelated
  if (random.pick(4) == 0) setup.draft.vocab = std::max(2, setup.target.vocab + static_cast<int>(random.pick(9)) - 4);
  if (random.pick(4) == 0) setup.draft.context = static_cast<int>(8 + random.pick(16));
  const std::uint64_t ends = random.pick(3);
  for (std::uint64_t i = 0; i < ends; ++i) {
    setup.target.end_tokens.push_back(static_cast<Token>(random.pick(static_cast<std::uint64_t>(setup.target.vocab))));
  }
  setup.draft.end_tokens = setup.target.end_tokens;
  const std::uint64_t length = 1 + random.pick(8);
  for (std::uint64_t i = 0; i < length; ++i) {
    setup.prompt.push_back(static_cast<Token>(random.pick(static_cast<std::uint64_t>(setup.target.vocab))));
  }
  setup.sampling.max_new_tokens = static_cast<int>(1 + random.pick(28));
  setup.sampling.temperature = std::vector<float>{0.0f, 0.0f, 0.3f, 0.8f, 1.0f}[random.pick(5)];
  setup.sampling.top_k = std::vector<int>{0, 0, 3, 5}[random.pick(4)];
  setup.sampling.top_p = std::vector<float>{1.0f, 1.0f, 0.9f, 0.6f}[random.pick(4)];
  setup.sampling.min_p = random.pick(4) == 0 ? 0.05f : 0.0f;
  if (random.pick(3) == 0) {
    setup.sampling.repetition_penalty = 1.2f;
    setup.sampling.presence_penalty = 0.2f;
    setup.sampling.frequency_penalty = 0.3f;
  }
  setup.sampling.seed = number * 31 + 7;
  setup.sampling.ignore_end_tokens = random.pick(5) == 0;
  setup.draft_length = static_cast<int>(random.pick(17));
  return setup;
}

template <class Decoder>
std::vector<Token> text_of(Decoder& decoder, const Setup& setup) {
  std::vector<Token> text = setup.prompt;
  decoder.generate(setup.prompt, setup.sampling, [&](Token token) { text.push_back(token); });
  REQUIRE(std::equal(text.begin(), text.end(), decoder.history().begin(), decoder.history().end()));
  return text;
}

SpoiltModel<ToyModel>::Spoil spoil(std::uint64_t kind, int from) {
  return [kind, from](int call, std::span<float> rows) {
    if (call < from || rows.empty()) return;
    switch (kind) {
      case 0: rows[rows.size() / 2] = std::numeric_limits<float>::quiet_NaN(); return;
      case 1: rows[0] = std::numeric_limits<float>::infinity(); return;
      case 2: std::fill(rows.begin(), rows.end(), -std::numeric_limits<float>::infinity()); return;
      default: throw std::runtime_error("lost the device");
    }
  };
}

/// Steps of random length: the adaptive draft length then makes random decisions.
std::function<double()> random_clock(std::uint64_t seed) {
  return [seed, now = 0.0]() mutable {
    const std::uint64_t random = mix(++seed * 7919);
    return now += static_cast<double>(random % 100) * (random % 7 == 0 ? 1 : 0.01);
  };
}

template <class Rule>
void check_equality(int cases) {
  for (int number = 0; number < cases; ++number) {
    const Setup setup = random_setup(static_cast<std::uint64_t>(number));
    CAPTURE(Rule::name, number, setup.draft_length, setup.sampling.temperature, setup.target.vocab, setup.draft.vocab);
    AutoregressiveDecoder plain{ToyModel{setup.target}, Rule{}};
    const auto expected = text_of(plain, setup);
    if (std::is_same_v<Rule, rule::Coupled> && setup.draft_length % 4 == 0) {
      REQUIRE(expected == naive_text(ToyModel{setup.target}, setup.prompt, setup.sampling));
    }
    Speculation speculation{.draft_tokens = setup.draft_length};
    if (number / 5 % 2 == 1) speculation = {.clock = random_clock(static_cast<std::uint64_t>(number))};
    const auto check = [&](auto draft) {
      SpeculativeDecoder decoder{std::move(draft), ToyModel{setup.target}, speculation, Rule{}};
      REQUIRE(text_of(decoder, setup) == expected);
      REQUIRE(text_of(decoder, setup) == expected);  // again, with the current contents of the KV caches
    };
    switch (number % 5) {
      case 0: check(ToyModel{setup.draft}); break;
      case 1:
        check(Drafter{Lookup({.pool_bits = 6}), prophet(expected, setup.target.vocab, number / 5 % 3),
                      ToyModel{setup.draft}});
        break;
      case 2: check(Lookup({.longest = 1 + number % 4, .pool_bits = number % 3 == 0 ? 0 : 8})); break;
      case 3:
        check(SpoiltModel{setup.draft, spoil(static_cast<std::uint64_t>(number / 5 % 4), number / 20 % 6)});
        break;
      default: check(prophet(expected, setup.target.vocab, number / 5 % 3)); break;
    }
  }
}

}  // namespace

TEST_CASE("the coupled rule gives the text of plain decoding for every drafter and draft length") {
  check_equality<rule::Coupled>(20000);
}

TEST_CASE("sample-match gives the text of plain decoding for every drafter and draft length") {
  check_equality<rule::Match>(8000);
}

TEST_CASE("greedy text equals plain greedy text for K = 1..16 under every rule") {
  int texts = 0;
  for (std::uint64_t number = 0; number < 200; ++number) {
    Setup setup = random_setup(number);
    setup.target.context = setup.draft.context = 4096;
    setup.target.end_tokens.clear();
    setup.draft.end_tokens.clear();
    setup.sampling.temperature = 0;
    setup.sampling.max_new_tokens = 256;
    setup.target.memory = setup.draft.memory = 3;
    AutoregressiveDecoder plain{ToyModel{setup.target}};
    const auto expected = text_of(plain, setup);
    const Speculation speculation{.draft_tokens = 1 + static_cast<int>(number % 16)};
    const auto check = [&](auto draft, auto rule) {
      SpeculativeDecoder decoder{std::move(draft), ToyModel{setup.target}, speculation, rule};
      REQUIRE(text_of(decoder, setup) == expected);
      ++texts;
    };
    check(ToyModel{setup.draft}, rule::Coupled{});
    check(ToyModel{setup.draft}, rule::Match{});
    check(ToyModel{setup.draft}, rule::Ratio{});
    check(ToyModel{setup.draft}, rule::Block{});
    check(Lookup{}, rule::Coupled{});
  }
  REQUIRE(texts == 1000);
}

TEST_CASE("a draft equal to the target is never corrected") {
  const auto check = [](auto rule, float temperature) {
    for (int draft_length = 1; draft_length <= 9; ++draft_length) {
      const ToyOptions options{.vocab = 40, .seed = 9};
      SpeculativeDecoder decoder{ToyModel{options}, ToyModel{options}, {.draft_tokens = draft_length}, rule};
      const std::vector<Token> prompt{3, 1, 4};
      const Sampling sampling{.max_new_tokens = 100, .temperature = temperature, .seed = 5};
      const Stats stats = decoder.generate(prompt, sampling, [](Token) {});
      CAPTURE(rule.name, temperature, draft_length);
      REQUIRE(stats.corrections == 0);
      REQUIRE(stats.acceptance_rate() == 1.0);
      REQUIRE(stats.rounds == (100 + draft_length) / (draft_length + 1));
    }
  };
  for (const float temperature : {0.0f, 0.7f}) {
    check(rule::Coupled{}, temperature);
    check(rule::Match{}, temperature);
    check(rule::Ratio{}, temperature);
    check(rule::Block{}, temperature);
  }
}

TEST_CASE("the same seed gives the same text, and interleaved decoders are independent") {
  const Setup setup = random_setup(4242);
  Sampling sampling{.max_new_tokens = 60, .temperature = 1.0f, .seed = 11};
  const auto run_all = [&](auto rule) {
    const auto make = [&] {
      return SpeculativeDecoder{ToyModel{setup.draft}, ToyModel{setup.target}, {.draft_tokens = 3}, rule};
    };
    auto first = make(), second = make();
    std::vector<Token> a, b, alone;
    first.generate(setup.prompt, sampling, [&](Token token) {
      a.push_back(token);
      if (a.size() != 1) return;
      Sampling other = sampling;
      other.seed = 12;
      second.generate(setup.prompt, other, [&](Token inner) { b.push_back(inner); });
    });
    auto third = make();
    third.generate(setup.prompt, sampling, [&](Token token) { alone.push_back(token); });
    REQUIRE(a == alone);
    REQUIRE(a != b);
  };
  run_all(rule::Coupled{});
  run_all(rule::Match{});
  run_all(rule::Ratio{});
  run_all(rule::Block{});
}

TEST_CASE("a mask that depends on the prefix holds under speculation, and equals plain masked decoding") {
  // After an even token only odd ids may follow, and vice versa; every fifth token must be 0 or 1.
  const auto allowed = [](std::span<const Token> prefix, Token next) {
    if (prefix.size() % 5 == 0) return next <= 1;
    return next % 2 != prefix.back() % 2;
  };
  for (std::uint64_t number = 0; number < 100; ++number) {
    Setup setup = random_setup(number);
    setup.target.end_tokens.clear();
    setup.sampling.adjust_logits = [&](std::span<const Token> prefix, std::span<float> logits) {
      for (std::size_t id = 0; id < logits.size(); ++id) {
        if (!allowed(prefix, static_cast<Token>(id))) logits[id] = -std::numeric_limits<float>::infinity();
      }
    };
    AutoregressiveDecoder plain{ToyModel{setup.target}};
    const auto expected = text_of(plain, setup);
    REQUIRE(expected == naive_text(ToyModel{setup.target}, setup.prompt, setup.sampling));
    for (std::size_t i = setup.prompt.size(); i < expected.size(); ++i) {
      REQUIRE(allowed(std::span{expected}.first(i), expected[i]));
    }
    SpeculativeDecoder coupled{ToyModel{setup.draft}, ToyModel{setup.target}, {.draft_tokens = 4}};
    REQUIRE(text_of(coupled, setup) == expected);
    SpeculativeDecoder ratio{ToyModel{setup.draft}, ToyModel{setup.target}, {.draft_tokens = 4}, rule::Ratio{}};
    const auto other = text_of(ratio, setup);
    for (std::size_t i = setup.prompt.size(); i < other.size(); ++i) {
      REQUIRE(allowed(std::span{other}.first(i), other[i]));
    }
  }
}
