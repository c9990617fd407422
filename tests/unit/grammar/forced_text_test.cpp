// ForcedText with real tokenizers: it drafts the tokens into which the tokenizer cuts the forced text.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "slm/decode/forced_text.hpp"
#include "slm/grammar.hpp"
#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/structure.hpp"

using Json = nlohmann::json;  // OrderedJson takes quadratic time for a vocabulary
using slm::testing::OrderedJson;

namespace {

/// The tokenizer of Qwen2 from vocab.json and merges.txt.
slm::Tokenizer qwen2(const std::filesystem::path& folder) {
  Json merges = Json::array();
  std::ifstream file(folder / "merges.lf.txt");
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  const std::string words =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  const Json split{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json json{
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model", {{"type", "BPE"}, {"vocab", Json::parse(std::ifstream(folder / "vocab.json"))}, {"merges", merges}}}};
  return slm::Tokenizer::parse(json.dump());
}

std::vector<slm::Token> drafted(const slm::ConstraintRef& constraint, const std::vector<slm::Token>& text) {
  slm::ForcedText source;
  source.start({.prompt = {}, .constraint = constraint});
  std::vector<slm::Token> out;
  std::vector<float> chances;
  source.propose(text, 64, out, chances);
  return out;
}

/// The tokens of a text that continues another one: no space is added at its beginning.
std::vector<slm::Token> tokens_of(const slm::Tokenizer& tokenizer, const slm::TokenTrie& tokens,
                                  const std::string& text) {
  const std::string whole = "\n" + text;
  const slm::TextPart part{whole, true};
  std::vector<slm::Token> made = tokenizer.encode(std::span(&part, 1), false);
  std::size_t first = made.size(), bytes = 0;
  while (first > 0 && bytes < text.size()) bytes += tokens.bytes(made[--first]).size();
  REQUIRE(bytes == text.size());
  made.erase(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(first));
  return made;
}

/// At least the tokens of the fixtures: those leave out more of the last tokens.
void check_forced(const std::string& file, const slm::Tokenizer& tokenizer) {
  const slm::TokenTrie tokens(tokenizer);
  const OrderedJson fixtures = slm::testing::structure(file);
  for (const OrderedJson& row : fixtures["rows"]) {
    const std::string prefix = row["prefix"], forced = row["forced"];
    if (forced.empty()) continue;
    const auto constraint = slm::constrain(slm::testing::grammar_of(row), tokens);
    const std::vector<slm::Token> found = drafted(constraint, tokens_of(tokenizer, tokens, prefix));
    CAPTURE(row["grammar"].dump(), prefix, forced, found);
    std::string bytes;
    for (const slm::Token token : found) bytes += tokens.bytes(token);
    CHECK(forced.starts_with(bytes));
    const auto least = row["forced_tokens"].get<std::vector<slm::Token>>();
    REQUIRE(found.size() >= least.size());
    CHECK(std::equal(least.begin(), least.end(), found.begin()));
  }
}

}  // namespace

TEST_CASE("forced text in a byte-level vocabulary") {
  const auto folder = slm::testing::test_data("tokenizers/qwen2");
  SLM_SKIP_WITHOUT(folder, "the vocabulary of Qwen2");
  check_forced("masks.json", qwen2(folder));
}

TEST_CASE("forced text in a SentencePiece vocabulary") {
  const auto folder = slm::testing::test_data("tokenizers/mistral");
  SLM_SKIP_WITHOUT(folder, "the tokenizer of Mistral");
  check_forced("masks-mistral.json", slm::Tokenizer::from(folder));
}
