// Useless, broken and hostile drafts: the text does not change, and the statistics show the fault.
#include <catch2/catch.hpp>
#include <climits>
#include <limits>
#include <stdexcept>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr int vocab = 12;
const ToyOptions options{.vocab = vocab, .seed = 3};
const std::vector<Token> prompt{1, 2, 3};
const Sampling sampling{.max_new_tokens = 60, .temperature = 0.8f, .seed = 4};

template <class Decoder>
std::pair<std::vector<Token>, Stats> run(Decoder& decoder) {
  std::vector<Token> text = prompt;
  const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
  return {text, stats};
}

std::vector<Token> plain_text() {
  AutoregressiveDecoder plain{ToyModel{options}};
  return run(plain).first;
}

}  // namespace

TEST_CASE("an always wrong draft costs one round per token and changes nothing") {
  const auto expected = plain_text();
  const ToyModel target{options};
  const auto log = target.log();
  SpeculativeDecoder decoder{prophet(expected, vocab, 1), target, {.draft_tokens = 4}};
  const auto [text, stats] = run(decoder);
  REQUIRE(text == expected);
  REQUIRE(stats.rounds == 60);
  REQUIRE(stats.accepted == 0);
  REQUIRE(stats.zero_rounds + stats.plain_steps == stats.rounds);
  REQUIRE(stats.corrections == stats.zero_rounds);
  REQUIRE(log->forwards == 61);  // one more processed the prompt
}

TEST_CASE("an always correct draft gives K + 1 tokens per round") {
  const auto expected = plain_text();
  SpeculativeDecoder decoder{prophet(expected, vocab), ToyModel{options}, {.draft_tokens = 4}};
  const auto [text, stats] = run(decoder);
  REQUIRE(text == expected);
  REQUIRE(stats.rounds == 12);
  REQUIRE(stats.corrections == 0);
  REQUIRE(stats.acceptance_rate() == 1.0);
  REQUIRE(stats.emitted_histogram[5] == 12);
}

TEST_CASE("invalid logits of the draft end drafting, not generation") {
  const auto expected = plain_text();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float bad_values[] = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
  for (const float bad : bad_values) {
    for (int call = 1; call <= 6; ++call) {  // call 0 processes the prompt
      const auto spoil = [=](int at, std::span<float> rows) {
        if (at != call) return;
        if (bad == -infinity) {
          std::fill(rows.begin(), rows.end(), bad);
        } else {
          rows[5] = bad;
        }
      };
      SpeculativeDecoder decoder{SpoiltModel{options, spoil}, ToyModel{options}, {.draft_tokens = 4}};
      const auto [text, stats] = run(decoder);
      CAPTURE(bad, call);
      REQUIRE(text == expected);
      REQUIRE(stats.draft_faults == 1);
      REQUIRE(stats.drafted == call - 1);  // tokens drafted before the fault were used
      REQUIRE_THAT(stats.disabled_reason, Catch::Contains("expected finite logits"));
      REQUIRE(run(decoder).second.draft_faults == 0);  // the next request tries again
    }
  }
}

TEST_CASE("invalid logits of the target are an error") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const int kind : {0, 1, 2}) {
    const auto spoil = [=](int call, std::span<float> rows) {
      if (call != 2) return;
      if (kind == 0) rows[rows.size() - 1] = std::numeric_limits<float>::quiet_NaN();
      if (kind == 1) rows[0] = infinity;
      if (kind == 2) std::fill(rows.begin(), rows.end(), -infinity);
    };
    for (const float temperature : {0.0f, 0.8f}) {
      AutoregressiveDecoder plain{SpoiltModel{options, spoil}};
      std::vector<Token> text;
      const auto collect = [&](Token token) { text.push_back(token); };
      const Sampling some{.max_new_tokens = 9, .temperature = temperature};
      REQUIRE_THROWS_WITH(plain.generate(prompt, some, collect), Catch::Contains("decode.non-finite-logits"));
      REQUIRE(text.size() == 1);
      REQUIRE_NOTHROW(plain.generate(prompt, some, collect));
    }
  }
}

TEST_CASE("impossible proposals are rejected") {
  const auto expected = plain_text();
  const auto check = [&](auto script, std::int64_t faults, const std::string& reason) {
    SpeculativeDecoder decoder{ScriptedDrafter{script}, ToyModel{options}, {.draft_tokens = 4}};
    const auto [text, stats] = run(decoder);
    REQUIRE(text == expected);
    REQUIRE(stats.draft_faults == faults);
    REQUIRE_THAT(stats.disabled_reason, Catch::Contains(reason));
    return stats;
  };
  for (const Token bad : {-1, vocab, INT_MAX, INT_MIN}) {
    const auto stats = check([=](auto, int, auto& out) { out = {expected[3], bad, 1}; }, 1, text("id ", bad));
    REQUIRE(stats.drafted == 1);
    REQUIRE(stats.accepted == 1);
  }
  REQUIRE(check([](auto, int most, auto& out) { out.assign(static_cast<std::size_t>(most) + 5, 1); }, 1,
                "at most 4 were requested")
              .drafted == 4);
  const auto silent = check([](auto, int, auto&) {}, 0, "");
  REQUIRE(silent.drafted == 0);
  REQUIRE(silent.plain_steps == 60);
}

TEST_CASE("a drafter that continues after the end is stopped") {
  struct Pushy {
    std::vector<float> row = std::vector<float>(vocab, 0.0f);
    void start(std::span<const Token>) {}
    void rewind(int) {}
    void propose(std::span<const Token>, const ChooseNext& choose) {
      for (int i = 0; i < 10; ++i) choose(row);
    }
  };
  SpeculativeDecoder decoder{Pushy{}, ToyModel{options}, {.draft_tokens = 4}};
  const auto [text, stats] = run(decoder);
  REQUIRE(text == plain_text());
  REQUIRE(stats.drafted == 4);
  REQUIRE_THAT(stats.disabled_reason, Catch::Contains("more rows"));
}

TEST_CASE("a draft that throws in any call leaves plain decoding") {
  const auto expected = plain_text();
  for (int call = 0; call <= 12; ++call) {
    const auto spoil = [=](int at, std::span<float>) {
      if (at == call) throw std::runtime_error("lost the device");
    };
    SpeculativeDecoder decoder{SpoiltModel{options, spoil}, ToyModel{options}, {.draft_tokens = 4}};
    const auto [text, stats] = run(decoder);
    CAPTURE(call);
    REQUIRE(text == expected);
    REQUIRE(stats.draft_faults == 1);
    REQUIRE_THAT(stats.disabled_reason, Catch::Contains("lost the device"));
    REQUIRE(decoder.sequence().length() == static_cast<int>(text.size()) - 1);
    const auto [again, next] = run(decoder);
    REQUIRE(again == expected);
    REQUIRE(next.draft_faults == 0);
    REQUIRE(next.acceptance_rate() == 1.0);
  }
  // Includes exceptions outside the standard library.
  SpeculativeDecoder odd{ScriptedDrafter{[](auto, int, auto&) { throw 42; }}, ToyModel{options}};
  const auto [text, stats] = run(odd);
  REQUIRE(text == expected);
  REQUIRE_THAT(stats.disabled_reason, Catch::Contains("unknown exception"));
}

TEST_CASE("a decoder works after an exception of the target") {
  const auto spoil = [](int call, std::span<float>) {
    if (call == 3) throw std::runtime_error("lost the target");
  };
  SpeculativeDecoder decoder{ToyModel{options}, SpoiltModel{options, spoil}, {.draft_tokens = 4}};
  REQUIRE_THROWS_WITH(run(decoder), "lost the target");
  REQUIRE(run(decoder).first == plain_text());
}
