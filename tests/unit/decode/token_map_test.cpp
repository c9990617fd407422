// The tokens that two vocabularies have in common, and how the draft reads the others.
#include "slm/decode/token_map.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "slm/decode/token_bytes.hpp"

using namespace slm;

namespace {

using Texts = std::vector<std::string>;
using Tokens = std::vector<Token>;

ModelInfo model(Texts tokens, Tokens ends = {}, int vocab = 0) {
  ModelInfo info;
  info.name = "m";
  info.vocab = vocab > 0 ? vocab : static_cast<int>(tokens.size());
  info.end_tokens = std::move(ends);
  info.tokens = [tokens = std::move(tokens)] { return tokens; };
  return info;
}

std::vector<std::pair<Token, Token>> common(const detail::TokenMap& map) {
  std::vector<std::pair<Token, Token>> pairs;
  for (const auto& [target, draft] : map.common()) pairs.emplace_back(target, draft);
  return pairs;
}

Tokens read(const detail::TokenMap& map, Token target) {
  const auto tokens = map.tokens_for(target);
  return {tokens.begin(), tokens.end()};
}

Texts bytes(const Texts& tokens) {
  Texts all;
  for (const auto& token : detail::bytes_of_tokens(tokens)) all.push_back(token.bytes);
  return all;
}

const std::string space = "\xE2\x96\x81";

}  // namespace

TEST_CASE("token texts of three kinds of vocabularies become bytes") {
  CHECK(bytes({"\xC4\xA0", "\xC4\xA0the", "\xC3\xA9", "\xC4\x8A", "<|end|>", "\xE2\x82\xAC", "\xC4", ""}) ==
        Texts{" ", " the", "\xE9", "\n", "<|end|>", "\xE2\x82\xAC", "\xC4", ""});
  CHECK(bytes({space, "<0x0A>", "<0xff>", "<0xFG>", "a" + space + space + "b", "\xC3\xA9", "<0x41>x"}) ==
        Texts{" ", "\n", "<0xff>", "<0xFG>", "a  b", "\xC3\xA9", "<0x41>x"});
  CHECK(bytes({"a", " b", "<0x41>", "<" + space + ">"}) == Texts{"a", " b", "<0x41>", "<" + space + ">"});
}

TEST_CASE("tokens with the same bytes are in common, others are spelled by the draft's longest tokens") {
  const ModelInfo draft = model({"?", "\xC4\xA0", "a", "b", "ab",
                                 "\xC4\xA0"
                                 "ab",
                                 "c"});
  const ModelInfo target = model({"b", space, space + "ab", "abab", "abc" + space, "xaz", "xyz", "", "c"}, {}, 10);
  const detail::TokenMap map(draft, target);
  CHECK(common(map) == std::vector<std::pair<Token, Token>>{{0, 3}, {1, 1}, {2, 5}, {8, 6}});
  CHECK(read(map, 2) == Tokens{5});
  CHECK(read(map, 3) == Tokens{4, 4});
  CHECK(read(map, 4) == Tokens{4, 6, 1});
  CHECK(read(map, 5) == Tokens{2});  // the draft has no x and no z
  CHECK(read(map, 6) == Tokens{0});  // the stand-in
  CHECK(read(map, 7) == Tokens{0});
  CHECK(read(map, 9) == Tokens{0});  // an id without a text
  for (Token id = 0; id < 10; ++id) CHECK(map.knows(id) == (id < 3 || id == 8));
}

TEST_CASE("of several tokens with the same bytes one is drafted, and all are read") {
  const ModelInfo draft = model({space, "<0x61>", "a", "a", "<0x62>"});
  const ModelInfo target = model({"<0x61>", "<0x62>", "a", space, "a", "b", "<0x62>"});
  const detail::TokenMap map(draft, target);
  CHECK(common(map) == std::vector<std::pair<Token, Token>>{{2, 2}, {3, 0}, {5, 4}});
  for (const Token id : {0, 2, 4}) CHECK(read(map, id) == Tokens{2});
  for (const Token id : {1, 5, 6}) CHECK(read(map, id) == Tokens{4});
}

TEST_CASE("ids beyond a model's vocabulary, and very long tokens") {
  const ModelInfo draft = model({"a", "b", "c"}, {}, 2);
  const ModelInfo target = model({"c", "b", std::string(256, 'b'), std::string(257, 'b'), "a"}, {}, 4);
  const detail::TokenMap map(draft, target);
  CHECK(common(map) == std::vector<std::pair<Token, Token>>{{1, 1}});
  CHECK(map.target_vocab() == 4);
  CHECK(read(map, 0) == Tokens{0});
  CHECK(read(map, 2) == Tokens(256, 1));
  CHECK(read(map, 3) == Tokens{0});
}

TEST_CASE("end tokens with different texts correspond") {
  const Texts draft{"a", "</s>", "b"}, target{"b", "a", "<|end|>"};
  const auto pairs = [](const ModelInfo& of_draft, const ModelInfo& of_target) {
    return common(detail::TokenMap(of_draft, of_target));
  };
  using Pairs = std::vector<std::pair<Token, Token>>;
  CHECK(pairs(model(draft, {1}), model(target, {2})) == Pairs{{0, 2}, {1, 0}, {2, 1}});
  CHECK(pairs(model(draft, {2}), model(target, {2})) == Pairs{{0, 2}, {1, 0}});  // b is in common already
  CHECK(pairs(model(draft, {1}), model(target, {2, 0})) == Pairs{{0, 2}, {1, 0}});
  CHECK(pairs(model(draft, {7}), model(target, {2})) == Pairs{{0, 2}, {1, 0}});
  CHECK(pairs(model(draft, {1}), model(target, {-1})) == Pairs{{0, 2}, {1, 0}});
}

TEST_CASE("equal tokenizers need no map; unknown texts and vocabularies with nothing in common are refused") {
  CHECK(detail::map_tokens(model({"a", "b"}), model({"a", "b", "c"})) == nullptr);
  CHECK(detail::map_tokens(model({"a", "b"}), model({"b", "a"}))->common().size() == 2);
  CHECK_THROWS_WITH(detail::map_tokens(model({"a"}), model({"b"}, {}, 5)),
                    Catch::Contains("decode.different-tokenizers") && Catch::Contains("no token is in common"));
  CHECK_THROWS_WITH(detail::map_tokens(model({}, {}, 5), model({"b"}, {}, 500)),
                    Catch::Contains("decode.different-tokenizers"));
  ModelInfo unknown = model({}, {}, 500);
  unknown.tokens = {};
  CHECK_THROWS_WITH(detail::map_tokens(unknown, model({"b"})), Catch::Contains("5"));
}
