// Stop strings and streaming text under speculation: the sink decides by the text, and the decoder commits exactly the
// accepted tokens.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Outcome {
  std::string text;              // visible text
  std::vector<Token> committed;  // prompt and output, by the decoder
  std::vector<double> logprobs;  // one for each token of the output
  FinishReason reason{};
  bool operator==(const Outcome&) const = default;
};

/// A sink that also takes log-probabilities.
struct Recorder {
  TextStream stream;
  std::vector<double>* logprobs;
  bool operator()(const GeneratedToken& emitted) {
    logprobs->push_back(emitted.logprob);
    return stream(emitted.token);
  }
  void finish() { stream.finish(); }
};

template <class Decoder>
Outcome run(Decoder& decoder, const Tokenizer& tokenizer, const std::vector<Token>& prompt,
            const std::vector<std::string>& stops, int max_new_tokens = 200) {
  Outcome outcome;
  Recorder sink{TextStream{tokenizer, prompt, [&](std::string_view piece) { outcome.text += piece; }, stops},
                &outcome.logprobs};
  const Request request{
      .prompt = prompt, .sampling = {.max_new_tokens = max_new_tokens, .temperature = 0}, .logprobs = {.raw = true}};
  outcome.reason = decoder.generate(request, sink).finish_reason;
  outcome.committed.assign(decoder.history().begin(), decoder.history().end());
  return outcome;
}

/// Plain and speculative decoding of a known text, for every draft length and with drafts that are correct, wrong and
/// half correct. Returns their common result.
Outcome run_all(const Tokenizer& tokenizer, const std::string& prompt_text, const std::string& continuation,
                const std::vector<std::string>& stops, int max_new_tokens = 200) {
  const auto prompt = tokenizer.encode(prompt_text);
  const auto more = tokenizer.encode(continuation, false);
  auto script = prompt;
  script.insert(script.end(), more.begin(), more.end());
  const int vocab = tokenizer.vocab();
  const int most = std::min(max_new_tokens, static_cast<int>(more.size()));
  AutoregressiveDecoder plain{ScriptedModel{script, vocab}};
  const Outcome expected = run(plain, tokenizer, prompt, stops, most);
  REQUIRE(expected.logprobs.size() == expected.committed.size() - prompt.size());
  for (int draft_length = 1; draft_length <= 8; ++draft_length) {
    for (const int mistake_every : {0, 1, 3}) {
      auto guess = script;
      for (std::size_t i = prompt.size(); mistake_every > 0 && i < guess.size(); ++i) {
        if (i % static_cast<std::size_t>(mistake_every) == 0) guess[i] = (guess[i] + 1) % vocab;
      }
      SpeculativeDecoder decoder{
          ScriptedModel{guess, vocab}, ScriptedModel{script, vocab}, {.draft_tokens = draft_length}};
      CAPTURE(continuation, stops, draft_length, mistake_every);
      const Outcome found = run(decoder, tokenizer, prompt, stops, most);
      REQUIRE(found.text == expected.text);
      REQUIRE(found == expected);
      REQUIRE(decoder.sequence().length() == static_cast<int>(found.committed.size()) - 1);
    }
  }
  return expected;
}

Tokenizer fixture_tokenizer(const std::string& name) {
  return Tokenizer::from(slm::testing::fixture("tokenizers/" + name + ".json"));
}

/// A tokenizer's output between two separately encoded texts: SentencePiece's begin with a space.
std::string joint(const Tokenizer& tokenizer) {
  auto tokens = tokenizer.encode("a", false);
  tokens.push_back(tokens.front());
  const std::string twice = tokenizer.decode(tokens);
  return twice.substr(1, twice.size() - 2);
}

const std::vector<std::string> tokenizers{"llama2_legacy", "llama2_metaspace", "phi3", "gpt2", "llama3"};

}  // namespace

TEST_CASE("a stop string ends the text where plain decoding ends it") {
  const std::string name = GENERATE(from_range(tokenizers));
  const Tokenizer tokenizer = fixture_tokenizer(name);
  const std::string space = joint(tokenizer);
  const auto text_of = [&](const std::string& continuation, const std::vector<std::string>& stops) {
    const Outcome outcome = run_all(tokenizer, "def f(", continuation, stops);
    const bool stopped = outcome.reason == FinishReason::sink;
    return outcome.text + (stopped ? "|" : "");
  };
  CAPTURE(name);
  SECTION("inside one round, across two, in the middle of a token") {
    REQUIRE(text_of("x): return 1\n\nprint(2)", {"\n\n"}) == space + "x): return 1|");
    REQUIRE(text_of("x): return 1 END and more", {"END"}) == space + "x): return 1 |");
    REQUIRE(text_of("x): internationalization", {"nationaliz"}) == space + "x): inter|");
  }
  SECTION("overlapping itself") {
    REQUIRE(text_of("aaab c", {"aab"}) == space + "a|");
    REQUIRE(text_of("ababac d", {"abac"}) == space + "ab|");
  }
  SECTION("not in the text: withheld text is emitted at the end") {
    REQUIRE(text_of("x) EN", {"END"}) == space + "x) EN");
    REQUIRE(text_of("x) aa", {"aab"}) == space + "x) aa");
  }
  SECTION("its beginning in the prompt is not counted") {
    // The prompt ends with "f(": the output "x" does not complete a stop string "f(x".
    REQUIRE(text_of("x) and f(x)", {"f(x"}) == space + "x) and |");
  }
  SECTION("beginning with a space") {
    REQUIRE(text_of("x) END", {" END"}) == space + "x)|");
    REQUIRE(text_of(space.empty() ? " x) END" : "x) END", {" x"}) == "|");  // the first character
  }
  SECTION("with characters of several bytes") {
    REQUIRE(text_of("caf\u00e9 \u4e16\u754c! \U0001F600 end", {"\u754c"}) == space + "caf\u00e9 \u4e16|");
    REQUIRE(text_of("a \U0001F600 b", {"\U0001F600"}) == space + "a |");
  }
}

TEST_CASE("of several stop strings the one that ends first is used, not the first in the list") {
  const std::string name = GENERATE(from_range(tokenizers));
  const Tokenizer tokenizer = fixture_tokenizer(name);
  const std::string space = joint(tokenizer);
  for (const auto& stops : {std::vector<std::string>{"three", "two"}, std::vector<std::string>{"two", "three"}}) {
    const Outcome outcome = run_all(tokenizer, "count: ", "one two three four", stops);
    REQUIRE(outcome.text == space + "one ");
    REQUIRE(outcome.reason == FinishReason::sink);
  }
  // One inside the other, ending earlier although it begins later.
  REQUIRE(run_all(tokenizer, "count: ", "one two three four", {"wo three", "o"}).text == space);
  REQUIRE(run_all(tokenizer, "count: ", "five six seven", {"x seven", "six"}).text == space + "five ");
}

TEST_CASE("characters split over tokens and rounds are emitted whole") {
  for (const std::string& name : tokenizers) {
    const Tokenizer tokenizer = fixture_tokenizer(name);
    const std::string continuation =
        "na\u00efve \U0001F468\u200D\U0001F469 \u0939\u093f \u4e16\u754c \U0001F600\U0001F680 ok";
    const Outcome whole = run_all(tokenizer, "x", continuation, {});
    REQUIRE(whole.text == joint(tokenizer) + continuation);
    // Every length: a cut inside a character gives the result of plain decoding.
    for (int most = 1; most < 30; ++most) run_all(tokenizer, "x", continuation, {}, most);
    // Each emitted piece consists of whole characters.
    const auto tokens = tokenizer.encode(continuation, false);
    SpeculativeDecoder decoder{
        ScriptedModel{tokens, tokenizer.vocab()}, ScriptedModel{tokens, tokenizer.vocab()}, {.draft_tokens = 3}};
    const std::vector<Token> prompt{tokens.front()};
    int pieces = 0;
    TextStream stream{tokenizer, prompt, [&](std::string_view piece) {
                        REQUIRE(utf8::is_valid(piece));
                        REQUIRE(piece.find("\uFFFD") == std::string_view::npos);
                        ++pieces;
                      }};
    decoder.generate(prompt, {.max_new_tokens = static_cast<int>(tokens.size()) - 1, .temperature = 0}, stream);
    REQUIRE(pieces > 3);
  }
}
