// Tokenizer on the eight tiny tokenizer.json: every encoding and decoding as Hugging Face's own library gives it.
#include "slm/text/tokenizer.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/paths.hpp"
#include "tests/support/temporary.hpp"

using slm::Token;
using slm::Tokenizer;
using Ids = std::vector<Token>;

namespace {

Tokenizer tiny(const std::string& name) {
  return Tokenizer::from(slm::testing::fixture("tokenizers/" + name + ".json"));
}

}  // namespace

TEST_CASE("tiny tokenizers: all strings, with and without special tokens, there and back") {
  const auto golden = nlohmann::json::parse(std::ifstream(slm::testing::fixture("tokenizers/expected.json")));
  REQUIRE(golden.at("files").size() == 8);
  for (const auto& [file, results] : golden.at("files").items()) {
    const Tokenizer tokenizer = Tokenizer::from(slm::testing::fixture("tokenizers/" + file));
    REQUIRE(results.size() == 25);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string text = golden.at("strings")[i];
      const Ids ids = results[i].at("ids"), ids_special = results[i].at("ids_special");
      INFO(file << ": " << text);
      CHECK(tokenizer.encode(text, false) == ids);
      CHECK(tokenizer.encode(text) == ids_special);
      CHECK(tokenizer.decode(ids, false) == results[i].at("decoded").get<std::string>());
      CHECK(tokenizer.decode(ids_special) == results[i].at("decoded_skip").get<std::string>());
    }
  }
}

TEST_CASE("tokenizer: ids that are no token decode to nothing") {
  const Tokenizer tokenizer = tiny("llama2_legacy");
  const Ids ids = tokenizer.encode("The pump", false);
  Ids odd{-1, -2147483647 - 1, 2147483647, tokenizer.vocab(), 50000};
  CHECK(tokenizer.decode(odd).empty());
  odd.insert(odd.end(), ids.begin(), ids.end());
  CHECK(tokenizer.decode(odd) == "The pump");
  CHECK(tokenizer.decode({}).empty());
  CHECK(tokenizer.piece(-1).empty());
  CHECK(tokenizer.piece(1 << 30).empty());
  CHECK_FALSE(tokenizer.is_token(tokenizer.vocab()));
}

TEST_CASE("tokenizer: pieces and tokens are each other's inverse") {
  const Tokenizer tokenizer = tiny("phi3");
  CHECK(tokenizer.vocab() == 533);
  CHECK(tokenizer.tokens().size() == 533);
  for (Token id = 0; id < tokenizer.vocab(); ++id) {
    CHECK(tokenizer.is_token(id));
    CHECK(tokenizer.token(tokenizer.piece(id)) == id);
  }
  CHECK(tokenizer.piece(1) == "<s>");
  CHECK(tokenizer.token("<|user|>") == 530);
  CHECK_FALSE(tokenizer.token("no such token"));
  CHECK(tokenizer.is_special(530));
  CHECK_FALSE(tokenizer.is_special(2));
}

TEST_CASE("tokenizer: bytes that are not UTF-8 are encoded as U+FFFD") {
  for (const char* name : {"gpt2", "llama2_legacy", "qwen2"}) {
    const Tokenizer tokenizer = tiny(name);
    CHECK(tokenizer.encode("run \xFF\xE2\x82 x") == tokenizer.encode("run \uFFFD\uFFFD x"));
    CHECK(tokenizer.decode(tokenizer.encode(std::string_view("a\0b", 3))) == std::string("a\0b", 3));
  }
}

TEST_CASE("tokenizer: byte tokens decode as a whole run or one U+FFFD for each byte") {
  const Tokenizer tokenizer = tiny("llama2_legacy");
  const auto byte = [&](const char* name) { return tokenizer.token(name).value(); };
  const Token a = tokenizer.token("a").value(), s = tokenizer.token("<s>").value();
  const Ids smile{byte("<0xF0>"), byte("<0x9F>"), byte("<0x99>"), byte("<0x82>")};
  CHECK(tokenizer.decode(smile) == "\U0001F642");
  Ids broken = smile;
  broken.push_back(byte("<0xFF>"));
  CHECK(tokenizer.decode(broken) == "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
  broken.insert(broken.begin() + 4, a);
  CHECK(tokenizer.decode(broken) == "\U0001F642a\uFFFD");
  const Ids interrupted{smile[0], smile[1], s, smile[2], smile[3]};
  CHECK(tokenizer.decode(interrupted) == "\U0001F642");  // a skipped token does not end the run
  CHECK(tokenizer.decode(interrupted, false) == "\uFFFD\uFFFD<s>\uFFFD\uFFFD");
  CHECK(tokenizer.decode(Ids{byte("<0x20>"), byte("<0x20>")}) == " ");  // one leading space goes
}

TEST_CASE("tokenizer: a token's bytes are those that it adds inside a text") {
  for (const char* name : {"gpt2", "llama2_legacy", "llama2_metaspace", "llama3", "neox", "phi3", "qwen2", "smollm"}) {
    const Tokenizer tokenizer = tiny(name);
    const std::string text = "a caf\u00E9 \U0001F642 b";
    std::string joined;
    for (const Token token : tokenizer.encode(text, false)) joined += tokenizer.bytes(token);
    CHECK(joined.substr(joined.front() == ' ' ? 1 : 0) == text);
  }
  const Tokenizer tokenizer = tiny("llama2_legacy");
  CHECK(tokenizer.bytes(tokenizer.token("<0xF0>").value()) == "\xF0");
  CHECK(tokenizer.bytes(-1).empty());
}

TEST_CASE("tokenizer: copies are cheap and threads may share one") {
  const Tokenizer tokenizer = tiny("llama3");
  const Ids expected = tokenizer.encode("The pump runs 2024 times.");
  std::vector<int> good(4, 0);
  std::vector<std::thread> threads;
  for (int& count : good) {
    threads.emplace_back([&count, &expected, copy = tokenizer] {
      for (int i = 0; i < 200; ++i) count += copy.encode("The pump runs 2024 times.") == expected;
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(good == std::vector<int>(4, 200));
}

TEST_CASE("tokenizer: the added tokens of tokenizer_config.json that tokenizer.json lacks are merged in") {
  const slm::testing::TemporaryFolder folder;
  std::filesystem::copy_file(slm::testing::fixture("tokenizers/gpt2.json"), folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", R"({"added_tokens_decoder": {
    "476": {"content": "<|something else|>", "special": true},
    "900": {"content": "<|endoftext|>", "special": true},
    "480": {"content": "<|tool|>", "lstrip": true, "rstrip": false, "normalized": false, "single_word": false, "special": false}}})");
  const Tokenizer tokenizer = Tokenizer::from(folder.path());
  CHECK(tokenizer.vocab() == 481);
  CHECK(tokenizer.piece(476) == "<|endoftext|>");
  CHECK(tokenizer.encode("x  <|tool|>x") == Ids{tokenizer.token("x").value(), 480, tokenizer.token("x").value()});
  CHECK(Tokenizer::from(slm::testing::fixture("tokenizers/gpt2.json")).vocab() == 477);
}

TEST_CASE("tokenizer: pipelines beside those of the fixtures") {
  const auto with = [](const std::string& parts) {
    return Tokenizer::parse(R"({"model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, "b": 2, "▁a": 3, "ab": 4, "?": 5},
      "merges": ["▁ a", "a b"], "unk_token": "?"}, )" +
                            parts + "}");
  };
  const auto always =
      with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}, "decoder": {"type": "Metaspace"})");
  CHECK(always.encode("a ab") == Ids{3, 3, 2});
  CHECK(always.decode(Ids{3, 3, 2}) == "a ab");
  const auto never = with(R"("pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never"}, "decoder": null)");
  CHECK(never.encode("a ab") == Ids{1, 3, 2});
  CHECK(never.decode(Ids{1, 3}) ==
        "a \u2581"
        "a");  // without a decoder tokens are joined by spaces
  const auto around = with(R"("added_tokens": [{"id": 6, "content": "<s>", "special": true}],
    "post_processor": {"type": "Sequence", "processors": [
      {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "end"}}],
       "special_tokens": {"end": {"id": "end", "ids": [5, 6]}}},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [6]}}}]})");
  CHECK(around.encode("ab") == Ids{6, 4, 5, 6});
  CHECK(around.encode("ab", false) == Ids{4});
}
