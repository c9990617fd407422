// KV caches after rejected drafts: the models contain the committed tokens, after any history.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "support/naive_decoding.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// The invariant between rounds, on models that keep a list of tokens.
template <class Decoder>
void check_caches(const Decoder& decoder, const std::vector<Token>& text) {
  REQUIRE(std::vector<Token>(decoder.history().begin(), decoder.history().end()) == text);
  const std::span<const Token> held = decoder.sequence().tokens();
  REQUIRE(std::vector<Token>(held.begin(), held.end()) == std::vector<Token>(text.begin(), text.end() - 1));
  REQUIRE(decoder.draft_read() <= static_cast<int>(text.size()) - 1);
}

}  // namespace

TEST_CASE("random sequences of requests, rewinds, cancellations and changes of sampling") {
  // On failure the number identifies the sequence, and `step` its first wrong operation.
  int operations = 0;
  for (std::uint64_t number = 0; number < 10000; ++number) {
    std::uint64_t salt = 0;
    const auto pick = [&](std::uint64_t n) { return mix(number * 7919 + ++salt) % n; };
    ToyOptions options{.vocab = 9, .context = 60, .seed = 1 + number % 50};
    if (pick(3) == 0) options.end_tokens = {static_cast<Token>(pick(9))};
    auto other = options;
    other.other_share = static_cast<double>(pick(4)) / 3;
    if (pick(4) == 0) other.context = 25;
    Speculation speculation{.draft_tokens = static_cast<int>(pick(8))};
    if (pick(3) == 0) speculation.draft_length = draft_length::Heuristic{};
    if (pick(4) == 0) speculation.draft_length = draft_length::Confidence{0.3, 6, pick(2) == 0};
    if (pick(4) == 0) speculation.draft_length = draft_length::Adaptive{};
    SpeculativeDecoder decoder{ToyModel{other}, ToyModel{options}, speculation};
    std::vector<Token> text{static_cast<Token>(pick(9))};
    for (int step = 0; step < 5; ++step) {
      std::vector<Token> prompt = text;
      switch (pick(4)) {
        case 0: prompt.resize(1 + pick(prompt.size())); break;              // rewind
        case 1: prompt.push_back(static_cast<Token>(pick(9))); break;       // a new user message
        case 2: prompt[pick(prompt.size())] = static_cast<Token>(pick(9));  // an edit in the middle
        default: break;                                                     // continue
      }
      if (prompt.size() > 55) prompt.resize(20);
      Sampling sampling{.max_new_tokens = static_cast<int>(1 + pick(20)), .temperature = pick(2) ? 0.9f : 0.0f};
      sampling.seed = pick(100);
      sampling.repetition_penalty = pick(3) == 0 ? 1.3f : 1.0f;
      const std::size_t patience = pick(3) == 0 ? 1 + pick(8) : 1000;
      text = prompt;
      decoder.generate(prompt, sampling, [&](Token token) {
        text.push_back(token);
        return text.size() < prompt.size() + patience;
      });
      CAPTURE(number, step, prompt);
      check_caches(decoder, text);
      Sampling same = sampling;
      same.max_new_tokens = std::min(sampling.max_new_tokens, static_cast<int>(patience));
      REQUIRE(text == naive_text(ToyModel{options}, prompt, same));
      ++operations;
    }
  }
  REQUIRE(operations == 50000);
}

TEST_CASE("every pattern of correct and wrong drafted tokens, and the draft's input afterwards") {
  constexpr int vocab = 6;
  for (int draft_length = 1; draft_length <= 6; ++draft_length) {
    for (int pattern = 0; pattern < 1 << draft_length; ++pattern) {
      // The draft is wrong where the pattern has a 1, in the first round; correct from then on.
      std::vector<Token> script{1};
      for (int i = 0; i < 40; ++i) script.push_back(static_cast<Token>(i * i % 5));
      auto drafted = script;
      int accepted = draft_length;
      for (int i = draft_length - 1; i >= 0; --i) {
        if ((pattern >> i & 1) == 0) continue;
        drafted[static_cast<std::size_t>(1 + i)] = 5;
        accepted = i;
      }
      // After a rejection the round's remaining mistakes are drafted again: correct them for the second round.
      const ScriptedModel draft{drafted, vocab}, target{script, vocab};
      const auto draft_log = draft.log();
      SpeculativeDecoder decoder{draft, target, {.draft_tokens = draft_length}};
      int tokens = 0;
      const std::vector<Token> prompt{1};
      std::vector<Token> text = prompt;
      // Stop directly after the first round, plus one token to see the start of the second round.
      const Stats stats = decoder.generate(prompt, {.max_new_tokens = 30, .temperature = 0}, [&](Token token) {
        text.push_back(token);
        return ++tokens < accepted + 2;
      });
      CAPTURE(draft_length, pattern, accepted);
      REQUIRE(text == std::vector<Token>(script.begin(), script.begin() + accepted + 3));
      REQUIRE(stats.rounds == 2);
      REQUIRE(stats.emitted_histogram[static_cast<std::size_t>(accepted) + 1] >= 1);
      // The first round's draft processed the prompt, then its own tokens one by one. The second round begins with the
      // last emitted token, and only after a fully accepted draft with the last drafted token before it.
      const auto& batches = draft_log->batches;
      REQUIRE(static_cast<int>(batches.size()) > draft_length);
      for (int call = 0; call < draft_length; ++call) REQUIRE(batches[static_cast<std::size_t>(call)] == 1);
      REQUIRE(batches[static_cast<std::size_t>(draft_length)] == (accepted == draft_length ? 2 : 1));
    }
  }
}
