// The end of generation: end tokens, stop tokens, lengths, contexts, and sinks that return false.
#include <catch2/catch.hpp>
#include <stdexcept>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr Token end = 9;
constexpr int vocab = 10;

/// Prompt 1 2, then `before` ordinary tokens, the end token, and more that must never be emitted.
std::vector<Token> script_with_end(int before) {
  std::vector<Token> script{1, 2};
  for (int i = 0; i < before; ++i) script.push_back(static_cast<Token>(3 + i % 5));
  script.push_back(end);
  for (int i = 0; i < 20; ++i) script.push_back(static_cast<Token>(i % 9));
  return script;
}

const std::vector<Token> prompt{1, 2};

template <class Decoder>
std::pair<std::vector<Token>, Stats> run(Decoder& decoder, const std::vector<Token>& from, const Sampling& sampling) {
  std::vector<Token> text = from;
  const Stats stats = decoder.generate(from, sampling, [&](Token token) { text.push_back(token); });
  return {text, stats};
}

}  // namespace

TEST_CASE("an end token anywhere in a round ends the text once, and the KV caches stay usable") {
  enum { accepted, correction, bonus };
  for (const int role : {accepted, correction, bonus}) {
    for (int before = 0; before <= 8; ++before) {
      for (int draft_length = 1; draft_length <= 6; ++draft_length) {
        const auto script = script_with_end(before);
        const std::vector<Token> expected(script.begin(), script.begin() + 3 + before);
        auto drafted = script;
        if (role != accepted) drafted.resize(static_cast<std::size_t>(2 + before));
        if (role == correction) drafted.push_back(0);
        const ScriptedModel target{script, vocab, {end}};
        SpeculativeDecoder decoder{prophet(drafted, vocab), target, {.draft_tokens = draft_length}};
        const auto [text, stats] = run(decoder, prompt, {.max_new_tokens = 20, .temperature = 0});
        CAPTURE(role, before, draft_length);
        REQUIRE(text == expected);
        REQUIRE(stats.finish_reason == FinishReason::end_token);
        REQUIRE(stats.emitted == before + 1);
        REQUIRE(stats.emitted == stats.accepted + stats.corrections + stats.bonuses);
        REQUIRE(decoder.sequence().length() == static_cast<int>(text.size()) - 1);
        // The next turn of a conversation: everything except the last token is cached.
        auto longer = text;
        longer.push_back(4);
        const auto [again, next] = run(decoder, longer, {.max_new_tokens = 3, .temperature = 0});
        REQUIRE(next.reused_tokens == static_cast<std::int64_t>(text.size()) - 1);
        SpeculativeDecoder fresh{Drafter{}, ScriptedModel{script, vocab, {end}}};
        REQUIRE(run(fresh, longer, {.max_new_tokens = 3, .temperature = 0}).first == again);
      }
    }
  }
}

TEST_CASE("after an accepted drafted end token there is no bonus token, and no further draft") {
  const auto script = script_with_end(3);
  SpeculativeDecoder decoder{prophet(script, vocab), ScriptedModel{script, vocab, {end}}, {.draft_tokens = 6}};
  const auto [text, stats] = run(decoder, prompt, {.max_new_tokens = 20, .temperature = 0});
  REQUIRE(text.back() == end);
  REQUIRE(stats.drafted == 4);  // 3, 4, 5, end: the draft of 6 stops there
  REQUIRE(stats.accepted == 4);
  REQUIRE(stats.bonuses == 0);
  REQUIRE(stats.trimmed == 1);
  REQUIRE(stats.rounds == 1);
}

TEST_CASE("an end token in the last allowed place counts as the end") {
  for (int draft_length = 0; draft_length <= 6; ++draft_length) {
    const auto script = script_with_end(4);
    SpeculativeDecoder decoder{
        prophet(script, vocab), ScriptedModel{script, vocab, {end}}, {.draft_tokens = draft_length}};
    const auto reason = [&](int most) {
      return run(decoder, prompt, {.max_new_tokens = most, .temperature = 0}).second.finish_reason;
    };
    REQUIRE(reason(5) == FinishReason::end_token);
    REQUIRE(reason(4) == FinishReason::length);
    // Also when the context is full with it, and when the sink returns false.
    SpeculativeDecoder tight{
        prophet(script, vocab), ScriptedModel{script, vocab, {end}, 7}, {.draft_tokens = draft_length}};
    const Sampling greedy{.temperature = 0};
    REQUIRE(run(tight, prompt, greedy).second.finish_reason == FinishReason::end_token);
    const Stats stopped = tight.generate(prompt, greedy, [](Token token) { return token != end; });
    REQUIRE(stopped.finish_reason == FinishReason::end_token);
  }
}

TEST_CASE("stop tokens end the text, and end tokens can be ignored") {
  const auto script = script_with_end(4);
  SpeculativeDecoder decoder{prophet(script, vocab), ScriptedModel{script, vocab, {end}}, {.draft_tokens = 3}};
  const auto stopped = run(decoder, prompt, {.max_new_tokens = 20, .temperature = 0, .stop_tokens = {5, 8}});
  REQUIRE(stopped.first == std::vector<Token>{1, 2, 3, 4, 5});
  REQUIRE(stopped.second.finish_reason == FinishReason::stop_token);
  const auto on = run(decoder, prompt, {.max_new_tokens = 12, .temperature = 0, .ignore_end_tokens = true});
  REQUIRE(on.first == std::vector<Token>(script.begin(), script.begin() + 14));
  REQUIRE(on.second.finish_reason == FinishReason::length);
}

TEST_CASE("max_new_tokens is met exactly for every draft length") {
  const ToyOptions options{.vocab = vocab, .seed = 3};
  for (int most = 0; most <= 8; ++most) {
    AutoregressiveDecoder plain{ToyModel{options}};
    const Sampling sampling{.max_new_tokens = most, .temperature = 0.7f};
    const auto expected = run(plain, prompt, sampling).first;
    REQUIRE(expected.size() == static_cast<std::size_t>(2 + most));
    for (int draft_length = 0; draft_length <= 8; ++draft_length) {
      SpeculativeDecoder decoder{ToyModel{options}, ToyModel{options}, {.draft_tokens = draft_length}};
      const auto [text, stats] = run(decoder, prompt, sampling);
      CAPTURE(most, draft_length);
      REQUIRE(text == expected);
      REQUIRE(stats.finish_reason == FinishReason::length);
      if (most == 1) REQUIRE(stats.drafted == 0);
      REQUIRE(stats.rounds == (most + draft_length) / (draft_length + 1));
    }
  }
}

TEST_CASE("near the context's end the tokens and the reason equal plain decoding") {
  constexpr int context = 24;
  const ToyOptions options{.vocab = vocab, .context = context, .seed = 3};
  for (int length = context - 6; length <= context; ++length) {
    std::vector<Token> from;
    for (int i = 0; i < length; ++i) from.push_back(static_cast<Token>(i % vocab));
    const Sampling sampling{.max_new_tokens = 50, .temperature = 0};
    AutoregressiveDecoder plain{ToyModel{options}};
    const auto [expected, plain_stats] = run(plain, from, sampling);
    REQUIRE(expected.size() == context);
    REQUIRE(plain_stats.finish_reason == FinishReason::context);
    for (int draft_length = 1; draft_length <= 8; ++draft_length) {
      const ToyModel target{options};
      const auto log = target.log();
      SpeculativeDecoder decoder{ToyModel{options}, target, {.draft_tokens = draft_length}};
      const auto [text, stats] = run(decoder, from, sampling);
      REQUIRE(text == expected);
      REQUIRE(stats.finish_reason == FinishReason::context);
      REQUIRE(stats.draft_faults == 0);
      REQUIRE(log->longest < context);
    }
  }
}

TEST_CASE("beyond the draft's context generation continues as plain decoding") {
  const ToyOptions options{.vocab = vocab, .context = 200, .seed = 3};
  auto short_options = options;
  short_options.context = 40;
  for (const std::size_t length :
       {std::size_t{2}, std::size_t{38}, std::size_t{40}, std::size_t{41}, std::size_t{60}}) {
    std::vector<Token> from;
    for (std::size_t i = 0; i < length; ++i) from.push_back(static_cast<Token>(i % vocab));
    AutoregressiveDecoder plain{ToyModel{options}};
    const Sampling sampling{.max_new_tokens = 100, .temperature = 0};
    const auto expected = run(plain, from, sampling).first;
    const ToyModel draft{short_options};
    const auto log = draft.log();
    SpeculativeDecoder decoder{draft, ToyModel{options}, {.draft_tokens = 5}};
    const auto [text, stats] = run(decoder, from, sampling);
    REQUIRE(text == expected);
    REQUIRE(stats.draft_faults == 0);
    REQUIRE(stats.disabled_reason.empty());
    REQUIRE(log->longest <= 40);
    REQUIRE((stats.drafted > 0) == (length < 39));
    REQUIRE(stats.plain_steps > 50);
  }
}

TEST_CASE("a sink that returns false leaves exactly the delivered tokens, and the text can be resumed") {
  const ToyOptions options{.vocab = vocab, .seed = 3};
  auto other = options;
  other.other_share = 0.3;
  const auto check = [&](auto rule, float temperature) {
    const Sampling sampling{.max_new_tokens = 40, .temperature = temperature, .seed = 21};
    AutoregressiveDecoder plain{ToyModel{options}, rule};
    const auto whole = run(plain, prompt, sampling).first;
    for (std::size_t stop = 1; stop < 40; ++stop) {
      SpeculativeDecoder decoder{ToyModel{other}, ToyModel{options}, {.draft_tokens = 5}, rule};
      std::vector<Token> text = prompt;
      const Stats stats = decoder.generate(prompt, sampling, [&](Token token) {
        text.push_back(token);
        return text.size() < prompt.size() + stop;
      });
      REQUIRE(text.size() == prompt.size() + stop);
      REQUIRE(stats.finish_reason == FinishReason::sink);
      REQUIRE(stats.emitted == static_cast<std::int64_t>(stop));
      REQUIRE(std::vector<Token>(decoder.history().begin(), decoder.history().end()) == text);
      REQUIRE(decoder.sequence().length() == static_cast<int>(text.size()) - 1);
      REQUIRE(decoder.draft_read() < static_cast<int>(text.size()));
      // Resuming with the same seed gives the same text.
      Sampling rest = sampling;
      rest.max_new_tokens = 40 - static_cast<int>(stop);
      const auto [resumed, more] = run(decoder, text, rest);
      REQUIRE(resumed == whole);
      REQUIRE(more.reused_tokens == static_cast<std::int64_t>(text.size()) - 1);
    }
  };
  check(rule::Coupled{}, 0.9f);
  check(rule::Match{}, 0.9f);
  check(rule::Coupled{}, 0.0f);
}

TEST_CASE("a decoder works after an exception of the sink") {
  const ToyOptions options{.vocab = vocab, .seed = 3};
  SpeculativeDecoder decoder{ToyModel{options}, ToyModel{options}, {.draft_tokens = 5}};
  const Sampling sampling{.max_new_tokens = 30, .temperature = 0.9f};
  const auto expected = run(decoder, prompt, sampling).first;
  int left = 7;
  const auto refuse = [&](Token) {
    if (--left == 0) throw std::runtime_error("disk full");
  };
  REQUIRE_THROWS_WITH(decoder.generate(prompt, sampling, refuse), "disk full");
  const auto [text, stats] = run(decoder, prompt, sampling);
  REQUIRE(text == expected);
  REQUIRE(stats.disabled_reason.empty());
}

namespace application {
struct Sink {
  std::vector<Token> tokens;
  void operator()(Token token) { tokens.push_back(token); }
};
int called = 0;  // functions of an application with names of the library
[[maybe_unused]] void finish(Sink&) { ++called; }
[[maybe_unused]] bool deliver(Sink&, const GeneratedToken&) { return ++called > 0; }
}  // namespace application

TEST_CASE("an application's own finish() and deliver() beside its sink are not called") {
  SpeculativeDecoder decoder{Drafter{}, ToyModel{ToyOptions{.vocab = 12}}};
  application::Sink sink;
  decoder.generate(std::vector<Token>{1, 2}, {.max_new_tokens = 3}, sink);
  CHECK(application::called == 0);
  CHECK(sink.tokens.size() == 3);
}

TEST_CASE("a sink's finish() is called once, at the end") {
  struct Counting {
    int tokens = 0, finished = 0;
    void operator()(Token) { ++tokens; }
    void finish() { ++finished; }
  } sink;
  AutoregressiveDecoder plain{ToyModel{{.vocab = vocab}}};
  plain.generate(prompt, {.max_new_tokens = 5, .temperature = 0}, sink);
  REQUIRE(sink.tokens == 5);
  REQUIRE(sink.finished == 1);
}

TEST_CASE("invalid prompts are rejected, each with its own id") {
  AutoregressiveDecoder plain{ToyModel{{.vocab = vocab, .context = 8}}};
  const auto id_of = [&](const std::vector<Token>& from) {
    try {
      plain.generate(from, {.max_new_tokens = 2, .temperature = 0}, [](Token) {});
    } catch (const Error& error) {
      return error.id();
    }
    return std::string{};
  };
  REQUIRE(id_of({}) == "decode.empty-prompt");
  REQUIRE(id_of(std::vector<Token>(9, 1)) == "decode.prompt-too-long");
  REQUIRE(id_of({1, -1}) == "decode.token-out-of-range");
  REQUIRE(id_of({1, vocab}) == "decode.token-out-of-range");
  REQUIRE(id_of(std::vector<Token>(8, 1)).empty());  // full: nothing to generate
  REQUIRE(id_of({1}).empty());
}

TEST_CASE("the common prefix of a prompt with the last text is not processed again") {
  const ToyOptions options{.vocab = vocab, .seed = 3, .log = true};
  const ToyModel target{options}, draft{options};
  const auto log = target.log(), draft_log = draft.log();
  SpeculativeDecoder decoder{draft, target, {.draft_tokens = 3}};
  const std::vector<Token> from{1, 2, 3, 4, 5, 6};
  const Sampling sampling{.max_new_tokens = 4, .temperature = 0};
  run(decoder, from, sampling);
  REQUIRE(log->batches.front() == 5);
  log->batches.clear();
  draft_log->batches.clear();
  const auto [text, stats] = run(decoder, {1, 2, 3, 7, 8, 9}, sampling);
  REQUIRE(stats.reused_tokens == 3);
  REQUIRE(log->batches.front() == 2);  // 7, 8; the 9 is processed with the first draft
  REQUIRE(draft_log->batches.front() == 2);
  // The same prompt again: only its last token, with the draft.
  log->batches.clear();
  const auto [same, again] = run(decoder, {1, 2, 3, 7, 8, 9}, sampling);
  REQUIRE(same == text);
  REQUIRE(again.reused_tokens == 5);
  REQUIRE(log->batches.front() == 4);
}

TEST_CASE("one model can alternate between two decoders") {
  const ToyOptions options{.vocab = vocab, .seed = 3};
  ToyModel target{options}, draft{options};
  AutoregressiveDecoder plain{target};
  SpeculativeDecoder fast{draft, target, {.draft_tokens = 3}};
  const Sampling sampling{.max_new_tokens = 20, .temperature = 0.8f};
  const auto expected = run(plain, {1, 2, 3}, sampling).first;
  REQUIRE(run(fast, {1, 2, 3}, sampling).first == expected);
  run(plain, {4, 4, 4}, sampling);
  REQUIRE(run(fast, {1, 2, 3}, sampling).first == expected);
  REQUIRE(run(plain, {1, 2, 3}, sampling).first == expected);
}
