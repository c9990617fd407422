// Bpe against the textbook loop: look at every pair, merge the lowest rank, leftmost first, again and again.
#include "slm/text/bpe.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using slm::Bpe;
using slm::MergeTable;
using slm::Token;
using slm::Vocabulary;

namespace {

struct Model {
  Vocabulary vocabulary;
  std::map<std::pair<Token, Token>, std::pair<std::size_t, Token>> merges;  // rank, merged
  Bpe bpe;

  std::vector<Token> encode(std::string_view word) const {
    std::vector<Token> out;
    Bpe::Scratch scratch;
    bpe.encode(vocabulary, word, out, scratch);
    return out;
  }

  std::vector<Token> naive(std::string_view word) const {
    std::vector<Token> symbols;
    for (const char letter : word) symbols.push_back(vocabulary.find({&letter, 1}).value_or(0));
    for (;;) {
      std::size_t best = std::string::npos, at = 0;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = merges.find({symbols[i], symbols[i + 1]});
        if (found != merges.end() && found->second.first < best) best = found->second.first, at = i;
      }
      if (best == std::string::npos) return symbols;
      symbols[at] = merges.at({symbols[at], symbols[at + 1]}).second;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }
};

/// Letters and random merges of what is there already. `shuffled`: ranks do not follow the order of making, as in
/// models whose merges were written by hand.
Model random_model(std::mt19937& random, const std::string& letters, std::size_t merges, bool shuffled,
                   Bpe::Options options = {}) {
  Model model;
  Token next = 0;
  std::vector<std::string> pieces;
  const auto add = [&](const std::string& piece) {
    if (model.vocabulary.add(piece, next)) pieces.push_back(piece), ++next;
  };
  for (const char letter : letters) add(std::string(1, letter));
  std::vector<std::pair<std::string, std::string>> pairs;
  while (pairs.size() < merges) {
    const auto& left = pieces[random() % pieces.size()];
    const auto& right = pieces[random() % pieces.size()];
    if (left.size() + right.size() > 9) continue;
    pairs.emplace_back(left, right);
    add(pairs.back().first + pairs.back().second);
  }
  if (shuffled) std::shuffle(pairs.begin(), pairs.end(), random);
  MergeTable table;
  for (std::uint32_t rank = 0; rank < pairs.size(); ++rank) {
    const Token left = *model.vocabulary.find(pairs[rank].first);
    const Token right = *model.vocabulary.find(pairs[rank].second);
    const Token merged = *model.vocabulary.find(pairs[rank].first + pairs[rank].second);
    table.add(left, right, {rank, merged});
    model.merges.emplace(std::pair{left, right}, std::pair{std::size_t{rank}, merged});
  }
  model.bpe = Bpe(model.vocabulary, std::move(table), options);
  return model;
}

std::string random_word(std::mt19937& random, const std::string& letters, std::size_t longest) {
  std::string word;
  for (std::size_t left = random() % (longest + 1); left > 0; --left) word += letters[random() % letters.size()];
  return word;
}

}  // namespace

TEST_CASE("BPE agrees with the textbook loop on random models and words") {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const std::string letters = std::string("abcdef").substr(0, 1 + random() % 6);
    Bpe::Options options;
    options.unknown = 0;  // z is in no token and counts as the first letter, which may merge
    const Model model = random_model(random, letters, 5 + random() % 60, round % 2 == 0, options);
    for (int i = 0; i < 60; ++i) {
      const std::string word = random_word(random, letters + letters + letters + "z", 60);
      INFO("round " << round << ", word " << word);
      REQUIRE(model.encode(word) == model.naive(word));
    }
  }
}

TEST_CASE("BPE: a word that is a token stays one only with ignore_merges") {
  std::mt19937 random(2);
  for (const bool ignore : {false, true}) {
    Bpe::Options options;
    options.ignore_merges = ignore;
    Model model = random_model(random, "ab", 0, false, options);
    REQUIRE(model.vocabulary.add("abba", 7));
    CHECK(model.encode("abba") == (ignore ? std::vector<Token>{7} : std::vector<Token>{0, 1, 1, 0}));
    CHECK(model.encode("ab") == std::vector<Token>{0, 1});
  }
}

TEST_CASE("BPE: characters that are in no token") {
  Vocabulary vocabulary;
  vocabulary.add("a", 0);
  vocabulary.add("?", 1);
  vocabulary.add("<0xC3>", 2);
  vocabulary.add("<0xA9>", 3);
  const auto encode = [&](std::string_view word, Bpe::Options options) {
    std::vector<Token> out;
    Bpe::Scratch scratch;
    Bpe(vocabulary, MergeTable(), options).encode(vocabulary, word, out, scratch);
    return out;
  };
  Bpe::Options unknown, fused, bytes;
  unknown.unknown = fused.unknown = bytes.unknown = 1;
  fused.fuse_unknown = true;
  bytes.byte_fallback = true;
  CHECK(encode("ax\u00E9ya", {}) == std::vector<Token>{0, 0});  // dropped
  CHECK(encode("axya", unknown) == std::vector<Token>{0, 1, 1, 0});
  CHECK(encode("axya", fused) == std::vector<Token>{0, 1, 0});
  CHECK(encode("a\u00E9", bytes) == std::vector<Token>{0, 2, 3});
  CHECK(encode("a\u00E8", bytes) == std::vector<Token>{0, 1});  // <0xA8> is missing
  CHECK(encode("x\u00E9y", bytes) ==
        std::vector<Token>{2, 3, 1, 1});  // upstream's order: bytes overtake what is unknown
  CHECK(encode("", unknown).empty());
}

TEST_CASE("MergeTable: the first rank of a pair counts") {
  MergeTable table;
  for (Token left = 0; left < 300; ++left) {
    for (Token right = 0; right < 30; ++right) table.add(left, right, {static_cast<std::uint32_t>(left), right});
  }
  table.add(5, 5, {0, 99});
  CHECK(table.find(5, 5)->rank == 5);
  CHECK(table.find(299, 29)->merged == 29);
  CHECK(table.find(300, 0) == nullptr);
  CHECK(table.find(0, 30) == nullptr);
}

TEST_CASE("Vocabulary: texts and ids are unique, absent ones are nothing") {
  Vocabulary vocabulary;
  CHECK(vocabulary.add("a", 5));
  CHECK_FALSE(vocabulary.add("a", 6));
  CHECK_FALSE(vocabulary.add("b", 5));
  CHECK(vocabulary.add("", 0));
  CHECK(vocabulary.find("") == 0);
  CHECK_FALSE(vocabulary.find("b"));
  CHECK(vocabulary.text(5) == "a");
  CHECK(vocabulary.text(-1).empty());
  CHECK(vocabulary.text(1000000).empty());
  CHECK_FALSE(vocabulary.contains(3));
  CHECK(vocabulary.id_end() == 6);
  for (Token id = 10; id < 5000; ++id) REQUIRE(vocabulary.add(std::to_string(id), id));
  for (Token id = 10; id < 5000; ++id) REQUIRE(vocabulary.find(std::to_string(id)) == id);
}
