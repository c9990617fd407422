// Published pre-tokenizers: the pieces that Hugging Face's tokenizers cut, the names that GGUF has for them, and the
// time that hostile texts take.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "slm/text/byte_level.hpp"
#include "slm/text/gguf_pre_tokenizers.hpp"
#include "slm/text/pipeline_json.hpp"
#include "slm/text/pre_tokenizer.hpp"
#include "tests/support/paths.hpp"

using slm::PreTokenizer;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

namespace {

Json read_json(const char* name) { return Json::parse(std::ifstream(slm::testing::fixture(name))); }

PreTokenizer pre_tokenizer_of(const Json& pipeline) {
  PreTokenizer made;
  const std::string file = "test";
  slm::tokenizer_file::read_pre_tokenizer(made, slm::tokenizer_file::JsonNode(pipeline, file, "pre_tokenizer"));
  return made;
}

/// The pieces; where bytes became characters, they are bytes again.
Words pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Words words;
  PreTokenizer::Scratch scratch;
  const auto& steps = pre_tokenizer.steps();
  const bool bytes = std::any_of(steps.begin(), steps.end(), [](const PreTokenizer::Step& step) {
    return std::holds_alternative<PreTokenizer::ByteLevel>(step);
  });
  pre_tokenizer(text, true, scratch, [&](std::string_view word) {
    words.emplace_back(bytes ? "" : word);
    if (bytes) slm::byte_level::append_bytes(words.back(), word);
  });
  return words;
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(static_cast<unsigned char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Words expected_pieces(const Json& example) {
  if (!example.contains("pieces_hex")) return example.at("pieces");
  Words words;
  for (const std::string digits : example.at("pieces_hex")) words.push_back(from_hex(digits));
  return words;
}

}  // namespace

TEST_CASE("published pre-tokenizers cut every string as Hugging Face's tokenizers do") {
  const Json published = read_json("splits/splits.json");
  REQUIRE(published.size() == 33);
  for (const Json& entry : published) {
    const PreTokenizer pre_tokenizer = pre_tokenizer_of(entry.at("pipeline"));
    REQUIRE(entry.at("cases").size() == 94);
    slm::Normalizer normalizer;
    const std::string file = "test";
    if (!entry.at("normalizer").is_null()) {
      slm::tokenizer_file::read_normalizer(normalizer,
                                           slm::tokenizer_file::JsonNode(entry.at("normalizer"), file, "normalizer"));
    }
    for (const Json& example : entry.at("cases")) {
      const std::string text = example.at("text");
      INFO(entry.at("name") << ": " << text);
      CHECK(pieces(pre_tokenizer, text) == expected_pieces(example));
      if (!example.contains("after_normalizer")) continue;
      CHECK(pieces(pre_tokenizer, normalizer(text)) == example.at("after_normalizer").get<Words>());
    }
  }
}

TEST_CASE("every name of tokenizer.ggml.pre stands for the published pre-tokenizer") {
  using slm::tokenizer_file::find_gguf_pre_tokenizer;
  using Normal = slm::tokenizer_file::GgufPreTokenizer::Normal;
  const Json table = read_json("splits/table.json");
  std::set<std::string> names;
  for (const Json& entry : table) {
    const std::string name = entry.at("gguf_name");
    INFO(name);
    const auto* known = find_gguf_pre_tokenizer(name);
    if (name == "default") {  // stands for no model's own
      CHECK(known == nullptr);
      continue;
    }
    names.insert(name);
    REQUIRE(known != nullptr);
    const Json& normalizer = entry.at("normalizer");
    const std::string type = normalizer.is_null() ? "" : normalizer.at("type").get<std::string>();
    const bool neox = name == "mpt" || name == "olmo";  // the table's group is of GPT-2, their own files have NFC
    CHECK(known->normal == (type == "Replace" ? Normal::marked : type == "NFC" || neox ? Normal::nfc : Normal::none));
    if (type == "Replace") {
      CHECK(known->splits.empty());  // the normalizer leaves nothing to split
      continue;
    }
    CHECK(slm::tokenizer_file::are_splits(pre_tokenizer_of(entry.at("pipeline")).steps(), known->splits));
    PreTokenizer made;
    slm::tokenizer_file::add_splits(made, known->splits, "test");
    CHECK(slm::tokenizer_file::are_splits(made.steps(), known->splits));
  }
  CHECK(names.size() == std::size(slm::tokenizer_file::gguf_pre_tokenizers));
}

TEST_CASE("a megabyte of hostile text takes less than a second with every published pre-tokenizer") {
  // Texts that a matcher reads many times if it starts again at every position, or tries every branch.
  std::string text;
  for (const char* unit :
       {" ",  "\n ",    " \n",    "1",        "a",           "A",       "aA", "'",      "'s",     ".",
        "a ", "\u4E00", "\u0301", "a\u0301 ", "<sentinel:1", "IMGIMGA", "\t", "\u3000", "\u00BD", "!a"}) {
    const std::size_t end = text.size() + 52430;
    while (text.size() < end) text += unit;
    text += "x";
  }
  REQUIRE(text.size() > 1 << 20);
  std::set<std::string> patterns;
  const auto seconds = [](auto&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const Json& entry : read_json("splits/splits.json")) {
    const PreTokenizer pre_tokenizer = pre_tokenizer_of(entry.at("pipeline"));
    for (const auto& step : pre_tokenizer.steps()) {
      const auto* splitter = std::get_if<slm::split::Splitter>(&step);
      if (splitter == nullptr || !patterns.insert(splitter->matcher->pattern()).second) continue;
      slm::split::Matcher::Places places;
      std::size_t read = 0;
      const double taken =
          seconds([&] { (*splitter)(text, places, [&](std::string_view piece) { read += piece.size(); }); });
      INFO(splitter->matcher->pattern() << ": " << taken << " s");
      CHECK(read > 0);
      CHECK(taken < 1);
    }
  }
  CHECK(patterns.size() > 35);
  for (const char* pattern : {"a.*z|a", "(?:a*)*b|a", "(?=a*b)|a", "(?:a|a)*c|.", "(?:.*\\n)*x|.", "\\s+$|\\s"}) {
    const slm::split::Splitter splitter{slm::split::Matcher::compile(pattern, "test")};
    slm::split::Matcher::Places places;
    INFO(pattern);
    CHECK(seconds([&] { splitter(text, places, [](std::string_view) {}); }) < 1);
  }
}

TEST_CASE("pre-tokenizers of other kinds, in any order") {
  const auto cut = [](const char* pipeline, const char* text) {
    return pieces(pre_tokenizer_of(Json::parse(pipeline)), text);
  };
  CHECK(cut(R"({"type": "Digits"})", "a12b\u00BD") == Words{"a", "12", "b", "\u00BD"});
  CHECK(cut(R"({"type": "Digits", "individual_digits": true})", "a12") == Words{"a", "1", "2"});
  CHECK(cut(R"({"type": "Punctuation"})", "a..$b\u2026") == Words{"a", ".", ".", "$", "b", "\u2026"});
  CHECK(cut(R"({"type": "Punctuation", "behavior": "MergedWithPrevious"})", "a..b") == Words{"a.", ".", "b"});
  CHECK(cut(R"({"type": "Whitespace"})", "a_1..  b\u200D\u24B6") == Words{"a_1", "..", "b\u200D\u24B6"});
  CHECK(cut(R"({"type": "WhitespaceSplit"})", " a.b\u3000c ") == Words{"a.b", "c"});
  CHECK(cut(R"({"type": "BertPreTokenizer"})", " a.b c") == Words{"a", ".", "b", "c"});
  CHECK(cut(R"({"type": "Split", "pattern": {"String": "[a]"}, "behavior": "Removed"})", "b[a]c") == Words{"b", "c"});
  CHECK(cut(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace",
            "prepend_scheme": "first"}, {"type": "Digits", "individual_digits": true}]})",
            "a1 b") == Words{"\u2581a", "1", "b"});
  // Metaspace puts its mark before the user's text; a piece that lost its first character does not begin it.
  CHECK(cut(R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace",
            "prepend_scheme": "first"}]})",
            " a") == Words{"a"});
}
