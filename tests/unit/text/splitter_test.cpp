// The word splitters against 800 random strings split by the regular expressions themselves.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/text/splitter.hpp"
#include "tests/support/paths.hpp"

namespace {

using Words = std::vector<std::string>;

Words gpt2(std::string_view text) {
  Words words;
  slm::split_gpt2(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words llama3(std::string_view text, std::size_t most_digits) {
  Words words;
  slm::split_llama3(text, most_digits, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

Words digits(std::string_view text, bool individual) {
  Words words;
  slm::split_digits(text, individual, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace

TEST_CASE("splitters agree with the regular expressions on random strings") {
  const auto golden = nlohmann::json::parse(std::ifstream(slm::testing::fixture("tokenizers/golden_splits.json")));
  const auto& strings = golden.at("s");
  REQUIRE(strings.size() == 800);
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string text = strings[i];
    INFO("string " << i << ": " << text);
    CHECK(gpt2(text) == golden.at("gpt2")[i].get<Words>());
    CHECK(llama3(text, 3) == golden.at("llama3")[i].get<Words>());
    CHECK(llama3(text, 1) == golden.at("qwen2")[i].get<Words>());
  }
}

TEST_CASE("splitters: what the regular expressions are known for") {
  CHECK(gpt2("").empty());
  CHECK(gpt2("I'm you'LL") == Words{"I", "'m", " you", "'", "LL"});
  CHECK(llama3("I'm you'LL", 3) == Words{"I", "'m", " you", "'LL"});
  CHECK(gpt2("a   b") == Words{"a", "  ", " b"});
  CHECK(gpt2("a   ") == Words{"a", "   "});
  CHECK(llama3("12345", 3) == Words{"123", "45"});
  CHECK(llama3("12345", 1) == Words{"1", "2", "3", "4", "5"});
  CHECK(llama3("a\n\n  b", 3) == Words{"a", "\n\n", " ", " b"});
  CHECK(llama3("x!!\n\ny", 3) == Words{"x", "!!\n\n", "y"});
  CHECK(llama3("'\u017F", 3) == Words{"'\u017F"});  // the long s is an s when case is ignored
  CHECK(gpt2("e\u0301") == Words{"e", "\u0301"});   // a combining mark is no letter
}

TEST_CASE("splitters: digits") {
  CHECK(digits("a12b", true) == Words{"a", "1", "2", "b"});
  CHECK(digits("a12b", false) == Words{"a", "12", "b"});
  CHECK(digits("\u00BD\u0663x", true) == Words{"\u00BD", "\u0663", "x"});
  CHECK(digits("", true).empty());
}
