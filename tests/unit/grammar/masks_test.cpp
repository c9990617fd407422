// Masks: against every token tried by itself, along random texts, behind forks and truncation, and with real
// vocabularies.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/sha256.hpp"
#include "slm/grammar.hpp"
#include "slm/text/byte_level.hpp"
#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/structure.hpp"

using slm::Constraint;
using slm::Grammar;
using slm::TokenTrie;
using slm::testing::allows;
using slm::testing::mask_of;
using slm::testing::OrderedJson;

namespace {

std::vector<Grammar> grammars() {
  const auto schema = [](const char* text) { return Grammar::json_schema(text); };
  return {
      Grammar::regex(".*"),
      Grammar::regex("(?s).{0,40}"),
      Grammar::regex("[^a]*b?"),
      Grammar::regex("(ab|a)*[0-9]{1,3}é?"),
      Grammar::regex("```[a-z]*\\n[^`]*\\n```"),
      Grammar::choice(std::vector<std::string>{"yes", "no", "no way", "{\"a\"", "日本"}),
      Grammar::gbnf("root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\" | \"\\\"\" [^\"]* \"\\\"\""),
      Grammar::gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | [ab]{2,5}"),
      Grammar::json(),
      schema("true"),
      schema(R"({"type": "string", "minLength": 3, "maxLength": 9})"),
      schema(R"({"type": "string", "pattern": "b+"})"),
      schema(R"({"type": "string", "pattern": "^[^a]*$", "maxLength": 5})"),
      schema(R"({"properties": {"a": {"type": "integer"}, "name": {"type": "string"}, "n": {}}, "type": "object"})"),
      schema(R"({"type": "object", "patternProperties": {"^x": {"type": "null"}}, "minProperties": 1})"),
      schema(R"({"type": "array", "items": {"enum": ["a", "ab", 1, 12, null]}, "minItems": 2, "maxItems": 4})"),
      schema(R"({"type": "number", "minimum": -3.5, "exclusiveMaximum": 120})"),
      schema(R"({"type": "integer", "multipleOf": 7, "minimum": 10, "maximum": 99})"),
  };
}

/// Single bytes, pieces of JSON, and random texts; some twice.
std::vector<std::string> vocabulary(std::mt19937& random) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece : {"{\"",  "\":", "\": ",  "\",", "\", \"",   "\"}", "},", "null", "true",
                            "name", "\\n", "\\u00", "  ",  "\n  ",     "}",   "{",  "]}",   "[1,",
                            "ab",   "bb",  "日本",  "語",  "\xE6\x97", "é",   "no", "```",  "\"a\":1"}) {
    tokens.emplace_back(piece);
  }
  constexpr std::string_view letters = "ab\"{}[]:, 01-.\\nx\xC3\xA9+`y";
  for (int i = 0; i < 300; ++i) {
    std::string token;
    for (std::size_t length = 1 + random() % 6; length > 0; --length) token += letters[random() % letters.size()];
    tokens.push_back(token);
  }
  tokens.emplace_back();  // special
  tokens.emplace_back();  // end
  return tokens;
}

/// Rule by rule: what a mask must be.
std::vector<std::uint64_t> tried(const Constraint& constraint, const TokenTrie& tokens) {
  std::vector<std::uint64_t> bits((tokens.size() + 63) / 64);
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    const auto id = static_cast<slm::Token>(token);
    const std::string& bytes = tokens.bytes(id);
    bool allowed = tokens.is_end(id) && constraint.may_end();
    if (!bytes.empty()) {
      Constraint fork = constraint;
      allowed = fork.advance(bytes) == bytes.size();
    }
    if (allowed) bits[token / 64] |= std::uint64_t{1} << token % 64;
  }
  return bits;
}

std::vector<std::size_t> allowed_tokens(const std::vector<std::uint64_t>& bits, const TokenTrie& tokens) {
  std::vector<std::size_t> allowed;
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    if (allows(bits, token) && !tokens.is_end(static_cast<slm::Token>(token))) allowed.push_back(token);
  }
  return allowed;
}

}  // namespace

TEST_CASE("a mask holds exactly the tokens that can be taken") {
  std::mt19937 random(1);
  for (const Grammar& grammar : grammars()) {
    const std::vector<std::string> texts = vocabulary(random);
    const slm::Token end = static_cast<slm::Token>(texts.size() - 1);
    const TokenTrie tokens(texts, {&end, 1});
    for (int walk = 0; walk < 4; ++walk) {
      Constraint constraint(grammar);
      std::string text;
      for (int step = 0; step < 25; ++step) {
        CAPTURE(text);
        const auto bits = mask_of(constraint, tokens);
        REQUIRE(bits == tried(constraint, tokens));
        CHECK(constraint.may_end() == allows(bits, static_cast<std::size_t>(end)));
        const auto allowed = allowed_tokens(bits, tokens);
        CHECK(constraint.must_end() == (constraint.may_end() && allowed.empty()));
        if (allowed.empty()) {
          CHECK(constraint.may_end());
          break;
        }
        const std::string forced = constraint.forced();
        const std::string& token = texts[allowed[random() % allowed.size()]];
        CHECK(token.substr(0, forced.size()) == forced.substr(0, token.size()));
        REQUIRE(constraint.advance(token) == token.size());
        text += token;
        CHECK(constraint.length() == text.size());
      }
    }
  }
}

TEST_CASE("a truncated constraint and a fork are as new ones") {
  std::mt19937 random(2);
  for (const Grammar& grammar : grammars()) {
    const std::vector<std::string> texts = vocabulary(random);
    const TokenTrie tokens(texts, {});
    Constraint constraint(grammar);
    std::string text;
    for (int step = 0; step < 60; ++step) {
      const auto allowed = allowed_tokens(mask_of(constraint, tokens), tokens);
      const bool back = allowed.empty() || random() % 4 == 0;
      if (back) {
        text.resize(random() % (text.size() + 1));
        constraint.truncate(text.size());
      } else {
        const Constraint before = constraint;
        const std::string& token = texts[allowed[random() % allowed.size()]];
        constraint.advance(token);
        CHECK(before.length() == text.size());
        text += token;
        if (random() % 8 == 0) {
          constraint = before;
          text.resize(before.length());
        }
      }
      Constraint fresh(grammar);
      REQUIRE(fresh.advance(text) == text.size());
      REQUIRE(mask_of(constraint, tokens) == mask_of(fresh, tokens));
    }
    CHECK_THROWS_AS(constraint.truncate(text.size() + 1), slm::Error);
  }
}

TEST_CASE("a mask may be wider than the vocabulary, not narrower") {
  const std::vector<std::string> texts{"a", "b"};
  const TokenTrie tokens(texts, {});
  const Constraint constraint(Grammar::regex("a"));
  std::vector<std::uint64_t> bits(3, ~std::uint64_t{0});
  constraint.mask(tokens, bits);
  CHECK(bits == std::vector<std::uint64_t>{1, 0, 0});
  CHECK_THROWS_AS(constraint.mask(tokens, {}), slm::Error);
}

TEST_CASE("one constraint serves vocabularies in turn") {
  const std::vector<std::string> one{"a", "aa"}, other{"b", "a", "ba"};
  const TokenTrie first(one, {}), second(other, {});
  const Constraint constraint(Grammar::regex("a+"));
  for (int i = 0; i < 3; ++i) {
    CHECK(mask_of(constraint, first) == std::vector<std::uint64_t>{3});
    CHECK(mask_of(constraint, second) == std::vector<std::uint64_t>{2});
  }
}

namespace {

std::string digest_of(const std::vector<std::uint64_t>& bits, const TokenTrie& tokens) {
  slm::detail::Sha256 digest;
  for (const std::size_t token : allowed_tokens(bits, tokens)) {
    const char bytes[] = {static_cast<char>(token), static_cast<char>(token >> 8), static_cast<char>(token >> 16),
                          static_cast<char>(token >> 24)};
    digest.update(std::string_view{bytes, sizeof bytes});
  }
  return digest.finish().substr(0, 16);
}

std::string bytes_of(const std::string& piece) {
  std::string bytes;
  slm::byte_level::append_bytes(bytes, piece);
  return bytes;
}

void check_masks(const std::string& file, const TokenTrie& tokens) {
  const OrderedJson fixtures = slm::testing::structure(file);
  for (const OrderedJson& row : fixtures["rows"]) {
    Constraint constraint(slm::testing::grammar_of(row));
    const std::string prefix = row["prefix"];
    CAPTURE(row["grammar"].dump(), prefix);
    CHECK(constraint.advance(prefix) == prefix.size());
    CHECK(digest_of(mask_of(constraint, tokens), tokens) == row["digest"].get<std::string>());
    CHECK(constraint.may_end() == row["may_end"]);
    CHECK(constraint.forced() == row["forced"].get<std::string>());
  }
}

}  // namespace

TEST_CASE("masks of a SentencePiece vocabulary") {
  const auto folder = slm::testing::test_data("tokenizers/mistral");
  SLM_SKIP_WITHOUT(folder, "the tokenizer of Mistral");
  check_masks("masks-mistral.json", TokenTrie(slm::Tokenizer::from(folder), {}));
}

TEST_CASE("masks and drafts of a byte-level vocabulary") {
  const auto path = slm::testing::test_data("tokenizers/qwen2/vocab.json");
  SLM_SKIP_WITHOUT(path, "the vocabulary of Qwen2");
  const auto listed = nlohmann::json::parse(std::ifstream(path));
  const auto fixtures = slm::testing::structure("speculation.json");
  const auto ends = fixtures["end_tokens"].get<std::vector<slm::Token>>();
  std::vector<std::string> texts(listed.size());
  for (const auto& [piece, id] : listed.items()) texts[id.get<std::size_t>()] = bytes_of(piece);
  const TokenTrie tokens(texts, ends);
  check_masks("masks.json", tokens);
  for (const OrderedJson& row : fixtures["rows"]) {
    Constraint constraint(slm::testing::grammar_of(row));
    for (const slm::Token token : row["tokens"]) constraint.advance(tokens.bytes(token));
    std::size_t allowed = 0;
    CAPTURE(row["grammar"].dump(), row["draft_is"].dump());
    for (std::size_t i = 0; i < row["rows"].size(); ++i) {
      CHECK(digest_of(mask_of(constraint, tokens), tokens) == row["rows"][i]["digest"].get<std::string>());
      CHECK(constraint.may_end() == row["rows"][i]["may_end"]);
      if (i == row["draft"].size()) break;
      const slm::Token token = row["draft"][i];
      if (tokens.is_end(token)) {
        allowed += constraint.may_end() ? 1 : 0;
        break;
      }
      const std::size_t before = constraint.length();
      const std::string& bytes = tokens.bytes(token);
      if (bytes.empty() || constraint.advance(bytes) < bytes.size()) {
        constraint.truncate(before);
        break;
      }
      ++allowed;
    }
    CHECK(allowed == row["allowed"].get<std::size_t>());
  }
}
