// Grammars that are made of grammars.
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar.hpp"

using namespace slm;

namespace {

bool accepts(const Grammar& grammar, std::string_view text) {
  Constraint constraint(grammar);
  return constraint.advance(text) == text.size() && constraint.may_end();
}

/// The tokens of one byte that may follow.
std::string next(const Grammar& grammar, std::string_view text) {
  std::vector<std::string> tokens;
  for (int byte = 32; byte < 127; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const TokenTrie trie(tokens);
  Constraint constraint(grammar);
  REQUIRE(constraint.advance(text) == text.size());
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  constraint.mask(trie, bits);
  std::string allowed;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if ((bits[i / 64] >> i % 64 & 1) != 0) allowed += tokens[i];
  }
  return allowed;
}

}  // namespace

TEST_CASE("a sequence has a text of each grammar") {
  const Grammar parts[]{Grammar::regex("a*"), Grammar::json_schema(R"({"type": "array", "items": {"$ref": "#"}})"),
                        Grammar::gbnf("root ::= \"(\" root \")\" | \"x\""),
                        Grammar::choice(std::vector<std::string>{"!"})};
  const Grammar whole = Grammar::sequence(parts);
  CHECK(accepts(whole, "aa[[], [[]]]((x))!"));
  CHECK(accepts(whole, "[]x!"));
  CHECK_FALSE(accepts(whole, "aa[[], [[]]((x))!"));
  CHECK_FALSE(accepts(whole, "[]((x)!"));
  CHECK_FALSE(accepts(whole, "[]x"));
  CHECK(next(whole, "a") == "[a");
  CHECK(next(whole, "[]") == "(x");
  CHECK(accepts(Grammar::sequence({}), ""));
  const Grammar twice[]{whole, whole};  // rules of one do not mix with those of the other
  CHECK(accepts(Grammar::sequence(twice), "a[](x)![[]]x!"));
}

TEST_CASE("any of several grammars") {
  const Grammar parts[]{Grammar::json_schema(R"({"const": 12})"), Grammar::regex("1[ab]+"), Grammar::regex("")};
  const Grammar whole = Grammar::any_of(parts);
  for (const char* text : {"12", "1ab", ""}) CHECK(accepts(whole, text));
  for (const char* text : {"1", "12a", "x"}) CHECK_FALSE(accepts(whole, text));
  CHECK(next(whole, "1") == "2ab");
  CHECK_THROWS_AS(Grammar::any_of({}), Error);
}

TEST_CASE("a text through its first end") {
  const Grammar free = Grammar::through("</t>");
  CHECK(accepts(free, "</t>"));
  CHECK(accepts(free, "a < b </ \xE2\x82\xAC <</t>"));
  CHECK_FALSE(accepts(free, "a</t"));
  CHECK_FALSE(accepts(free, "a</t>b"));
  CHECK_FALSE(accepts(free, "a</t></t>"));
  CHECK(next(free, "a</t").size() == 95);
  const Grammar parts[]{free, Grammar::regex("y+")};
  const Grammar whole = Grammar::sequence(parts);
  CHECK(accepts(whole, "yy</t>y"));
  CHECK_FALSE(accepts(whole, "</t>yy</t>y"));
  CHECK(next(whole, "</t>") == "y");
  CHECK_THROWS_AS(Grammar::through(""), Error);
  CHECK_THROWS_AS(Grammar::through("\xff"), Error);
}

TEST_CASE("parts of a grammar are limited together") {
  GrammarLimits limits;
  limits.states = 50;
  const Grammar parts[]{Grammar::regex("a{10}b{10}"), Grammar::choice(std::vector<std::string>{std::string(100, 'x')})};
  CHECK_THROWS_AS(Grammar::sequence(parts, limits), Error);
}
