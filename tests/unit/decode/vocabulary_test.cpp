// Draft and target with different vocabulary sizes, and with different tokenizers.
#include "slm/decode/vocabulary.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

ModelInfo info_of(int vocab, std::vector<std::string> pieces = {}, std::vector<Token> ends = {}) {
  ModelInfo info;
  info.name = "m";
  info.vocab = vocab;
  info.end_tokens = std::move(ends);
  if (!pieces.empty()) info.tokens = [pieces] { return pieces; };
  return info;
}

std::vector<std::string> pieces(int count) {
  std::vector<std::string> result;
  for (int id = 0; id < count; ++id) result.push_back(text("piece", id));
  return result;
}

template <class Decoder>
std::pair<std::vector<Token>, Stats> run(Decoder& decoder, const std::vector<Token>& prompt, const Sampling& sampling) {
  std::vector<Token> out = prompt;
  const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { out.push_back(token); });
  return {out, stats};
}

}  // namespace

TEST_CASE("ids outside the draft's vocabulary never reach it, and are counted") {
  // The sizes of CodeLlama and AMD-Llama in small: 16 more ids in the target, which occur often in its text.
  const ToyOptions target{.vocab = 48, .seed = 3};
  const ToyOptions draft{.vocab = 32, .seed = 3, .log = true};
  for (const float temperature : {0.0f, 1.0f}) {
    const Sampling sampling{.max_new_tokens = 200, .temperature = temperature, .seed = 4};
    const std::vector<Token> prompt{1, 2, 3};
    AutoregressiveDecoder plain{ToyModel{target}};
    const auto expected = run(plain, prompt, sampling).first;
    const auto beyond = std::count_if(expected.begin(), expected.end() - 1, [](Token token) { return token >= 32; });
    REQUIRE(beyond > 30);
    const ToyModel small{draft};
    const auto log = small.log();
    SpeculativeDecoder decoder{small, ToyModel{target}, {.draft_tokens = 4}};
    const auto [out, stats] = run(decoder, prompt, sampling);
    REQUIRE(out == expected);
    REQUIRE(stats.draft_faults == 0);  // the toy throws for an id it does not have
    REQUIRE(stats.unmappable_tokens >= beyond - 4);
    REQUIRE(stats.unmappable_tokens <= beyond);
    REQUIRE(*std::max_element(log->fed.begin(), log->fed.end()) < 32);
  }
}

TEST_CASE("a prompt with ids beyond the draft's vocabulary") {
  const ToyOptions target{.vocab = 48, .seed = 3};
  const ToyOptions draft{.vocab = 32, .seed = 3};
  const std::vector<Token> prompt{32, 5, 47, 40};  // as in an infill prompt
  const Sampling sampling{.max_new_tokens = 50, .temperature = 0};
  AutoregressiveDecoder plain{ToyModel{target}};
  SpeculativeDecoder decoder{ToyModel{draft}, ToyModel{target}, {.draft_tokens = 4}};
  const auto [out, stats] = run(decoder, prompt, sampling);
  REQUIRE(out == run(plain, prompt, sampling).first);
  REQUIRE(stats.unmappable_tokens >= 3);
  // Substituted tokens are known by their real ids: the same prompt is reused, another one is not.
  REQUIRE(run(decoder, prompt, sampling).first == out);
  REQUIRE(run(decoder, {33, 5, 47, 40}, sampling).first == run(plain, {33, 5, 47, 40}, sampling).first);
}

TEST_CASE("a draft with more ids proposes only those of the target") {
  const ToyOptions target{.vocab = 32, .seed = 3};
  const ToyOptions draft{.vocab = 48, .seed = 3};
  for (const float temperature : {0.0f, 1.0f}) {
    const Sampling sampling{.max_new_tokens = 200, .temperature = temperature, .seed = 4};
    AutoregressiveDecoder plain{ToyModel{target}};
    SpeculativeDecoder decoder{ToyModel{draft}, ToyModel{target}, {.draft_tokens = 4}};
    const auto [out, stats] = run(decoder, {1, 2, 3}, sampling);
    REQUIRE(out == run(plain, {1, 2, 3}, sampling).first);
    REQUIRE(stats.draft_faults == 0);
    REQUIRE(stats.acceptance_rate() == 1.0);  // masked to the target's ids it is the same model
  }
}

TEST_CASE("different tokenizers are rejected, with the first id that differs") {
  auto permuted = pieces(100);
  std::swap(permuted[41], permuted[77]);
  const auto refused = [](const ModelInfo& draft, const ModelInfo& target, const std::string& why) {
    REQUIRE_THROWS_WITH(check_same_tokenizer(draft, target),
                        Catch::Contains("decode.different-tokenizers") && Catch::Contains(why));
  };
  refused(info_of(100, permuted), info_of(100, pieces(100)), "id 41 is 'piece77' in the draft and 'piece41'");
  refused(info_of(100), info_of(500), "100 and 500 ids");
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(100, pieces(100)), info_of(100, pieces(100))));
  // Known token texts decide; sizes only if they are unknown.
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(1000, pieces(1000)), info_of(2000, pieces(2000))));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(32000), info_of(32016)));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(32016), info_of(32000)));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(32000, pieces(32000)), info_of(32256)));
  refused(info_of(32000), info_of(32257), "more than 256 apart");
}

TEST_CASE("the decoder's constructor checks") {
  ToyModel draft{{.vocab = 10}}, target{{.vocab = 10}};
  draft.info().tokens = [] { return pieces(10); };
  target.info().tokens = [] {
    auto other = pieces(10);
    other[3] = "?";
    return other;
  };
  REQUIRE_NOTHROW((SpeculativeDecoder{draft, target}));  // nine tokens are in common
  target.info().tokens = [] { return std::vector<std::string>(10, "?"); };
  REQUIRE_THROWS_WITH((SpeculativeDecoder{draft, target}),
                      Catch::Contains("id 0 is 'piece0'") && Catch::Contains("no token is in common"));
  REQUIRE_THROWS_WITH((SpeculativeDecoder{ToyModel{{.vocab = 10}}, ToyModel{{.vocab = 900}}}),
                      Catch::Contains("decode.different-tokenizers"));
  REQUIRE_NOTHROW((SpeculativeDecoder{Lookup{}, ToyModel{{.vocab = 900}}}));
  REQUIRE_THROWS_WITH((SpeculativeDecoder{draft, draft, {.draft_tokens = -1}}),
                      Catch::Contains("decode.bad-draft-length"));
  REQUIRE_THROWS_WITH((SpeculativeDecoder{draft, draft, {.draft_tokens = 257}}),
                      Catch::Contains("decode.bad-draft-length"));
  const Speculation drop{.draft_length = draft_length::Confidence{.drop = true}};
  REQUIRE_THROWS_WITH((SpeculativeDecoder{draft, draft, drop, rule::Ratio{}}), Catch::Contains("decode.lossy-drop"));
  REQUIRE_THROWS_WITH((SpeculativeDecoder{draft, draft, drop, rule::Block{}}), Catch::Contains("decode.lossy-drop"));
  REQUIRE_NOTHROW((SpeculativeDecoder{draft, draft, drop}));
}

TEST_CASE("end tokens without a common id are rejected if the token texts are unknown") {
  REQUIRE_THROWS_WITH(check_same_tokenizer(info_of(100, {}, {2}), info_of(100, {}, {7})),
                      Catch::Contains("the draft ends with id 2, the target with id 7"));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(100, {}, {2, 7}), info_of(100, {}, {7, 8})));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(100, {}, {}), info_of(100, {}, {7})));
  REQUIRE_NOTHROW(check_same_tokenizer(info_of(100, pieces(100), {2}), info_of(100, pieces(100), {7})));
}

TEST_CASE("the target's end tokens apply, not the draft's") {
  std::vector<Token> script{1, 2};
  for (Token token = 3; token < 20; ++token) script.push_back(token);
  SpeculativeDecoder decoder{ScriptedModel{script, 20, {5, 9}}, ScriptedModel{script, 20, {9}}, {.draft_tokens = 5}};
  const auto [out, stats] = run(decoder, {1, 2}, {.max_new_tokens = 15, .temperature = 0});
  REQUIRE(out.back() == 9);
  REQUIRE(stats.acceptance_rate() == 1.0);
  REQUIRE(stats.finish_reason == FinishReason::end_token);
}
