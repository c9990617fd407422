// tokenizer.model: models built here byte by byte, and broken ones.
#include "slm/text/sentencepiece_model.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "slm/io/json.hpp"
#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary.hpp"

using slm::Token;
using slm::Tokenizer;
using Ids = std::vector<Token>;

namespace {

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out += static_cast<char>(value);
}

std::string field(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number(std::uint64_t field_number, std::uint64_t value) {
  return varint(field_number << 3) + varint(value);
}

std::string piece(const std::string& text, float score, std::uint64_t type = 1) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string bytes = field(1, text) + varint(2 << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift);
  return field(1, bytes + number(3, type));
}

const std::string bpe = field(2, number(3, 2));

/// <unk> <s> </s> a b c ab bc abc ▁ ▁a <0x41>: "abc" merges as a+bc or ab+c, and bc scores better than ab.
std::string model() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("a", -10) + piece("b", -11) +
         piece("c", -12) + piece("ab", -3) + piece("bc", -2) + piece("abc", -4) + piece("\u2581", -9) +
         piece(
             "\u2581"
             "a",
             -5) +
         piece("<0x0A>", 0, 6) + piece("[X]", 0, 4) + field(3, field(1, "identity")) + bpe;
}

std::string id_of(const std::string& bytes) {
  try {
    Tokenizer::parse_model(bytes, "some/tokenizer.model");
  } catch (const slm::Error& error) {
    CHECK(std::string{error.what()}.find("some/tokenizer.model") != std::string::npos);
    return error.id();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("tokenizer.model: encodes by the scores of the pieces, with the Llama pipeline") {
  const Tokenizer tokenizer = Tokenizer::parse_model(model());
  CHECK(tokenizer.vocab() == 13);
  CHECK(tokenizer.encode("abc") == Ids{1, 9, 8});
  CHECK(tokenizer.encode("ab") == Ids{1, 9, 6});
  CHECK(tokenizer.encode("a", false) == Ids{10});
  CHECK(tokenizer.encode("\n", false) == Ids{9, 11});
  CHECK(tokenizer.encode("xyz", false) == Ids{9, 0});  // unknown characters fuse
  CHECK(tokenizer.encode("</s>[X]a", false) == Ids{2, 12, 10});
  CHECK(tokenizer.decode(Ids{1, 9, 8, 11, 2}) == "abc\n");
  CHECK(tokenizer.is_special(0));
  CHECK_FALSE(tokenizer.is_special(12));
}

TEST_CASE("tokenizer.model: tokenizer_config.json beside it chooses pipeline and special tokens") {
  const slm::testing::TemporaryFolder folder;
  folder.write("tokenizer.model", model());
  CHECK(Tokenizer::from(folder.path()).encode("</s>a") == Ids{1, 2, 10});
  folder.write("tokenizer_config.json", R"({"legacy": false, "add_bos_token": false, "add_eos_token": true,
    "added_tokens_decoder": {"13": {"content": "<|end|>", "special": true}}})");
  const Tokenizer tokenizer = Tokenizer::from(folder.path() / "tokenizer.model");
  CHECK(tokenizer.encode("</s>a<|end|>") == Ids{2, 3, 13, 2});
  CHECK(tokenizer.vocab() == 14);
}

TEST_CASE("tokenizer.model: white space is treated as the model's normalizer says, ids and texts are SentencePiece's") {
  std::ifstream file(slm::testing::fixture("tokenizers/sentencepiece.model"), std::ios::binary);
  const std::string trained{std::istreambuf_iterator<char>(file), {}};
  const slm::Json golden = slm::read_json_object(slm::testing::fixture("tokenizers/sentencepiece.json"));
  const auto strings = golden.at("strings").get<std::vector<std::string>>();
  REQUIRE(golden.at("models").size() == 8);
  for (const slm::Json& expected : golden.at("models")) {
    const auto flag = [&](std::uint64_t place, const char* name) {
      return number(place, expected.at(name).get<bool>());
    };
    // The last one of repeated fields counts.
    const std::string flags =
        flag(3, "add_dummy_prefix") + flag(4, "remove_extra_whitespaces") + flag(5, "escape_whitespaces");
    const Tokenizer tokenizer = Tokenizer::parse_model(trained + field(3, flags));
    for (std::size_t i = 0; i < strings.size(); ++i) {
      CAPTURE(i, strings[i], flags);
      const auto ids = expected.at("ids")[i].get<Ids>();
      CHECK(tokenizer.encode(strings[i], false) == ids);
      // Where pieces write spaces as they are, SentencePiece leaves the one it put before a text in what it decodes.
      if (!expected.at("escape_whitespaces").get<bool>()) continue;
      CHECK(tokenizer.decode(ids) == expected.at("texts")[i].get<std::string>());
    }
  }
  // Absent fields are true.
  const Tokenizer silent = Tokenizer::parse_model(trained);
  const slm::Json& all_true = golden.at("models").back();
  for (std::size_t i = 0; i < strings.size(); ++i) {
    CHECK(silent.encode(strings[i], false) == all_true.at("ids")[i].get<Ids>());
  }
}

TEST_CASE("tokenizer.model: without legacy only the first piece of a text begins with a space") {
  const slm::testing::TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"legacy": false, "add_bos_token": false})");
  const auto encode = [&](const std::string& flags, const char* text) {
    folder.write("tokenizer.model", model() + field(3, flags));
    return Tokenizer::from(folder.path()).encode(text);
  };
  CHECK(encode("", "  a</s>  a ") == Ids{10, 2, 3});
  CHECK(encode(number(4, 0), "  a</s>  a ") == Ids{9, 10, 2, 9, 10, 9});
  CHECK(encode(number(3, 0), "a  a</s>a") == Ids{3, 10, 2, 3});
}

TEST_CASE("bad tokenizer.model") {
  CHECK(id_of(model()) == "accepted");
  CHECK(id_of("") == "tokenizer.empty-vocabulary");
  CHECK(id_of(bpe) == "tokenizer.empty-vocabulary");
  CHECK(id_of("IQ== 0\nIg== 1\n") == "tokenizer.tiktoken-model");
  CHECK(id_of(model() + field(2, number(3, 1))) == "tokenizer.unsupported");  // unigram
  CHECK(id_of(piece("<s>", 0, 3)) == "tokenizer.unsupported");                // unigram by default
  CHECK(id_of(model() + field(3, field(2, "map"))) == "tokenizer.unsupported");
  CHECK(id_of(model() + field(2, number(24, 1))) == "tokenizer.unsupported");  // spaces as suffixes
  CHECK(id_of(model() + field(3, field(4, "yes"))) == "tokenizer.broken-model");
  CHECK(id_of(model() + piece("a", 0)) == "tokenizer.duplicate-token");
  CHECK(id_of(piece("a", 0) + bpe) == "tokenizer.missing-special-token");
  CHECK(id_of(model() + piece("\xFF", 0)) == "tokenizer.broken-model");
  CHECK(id_of(model() + piece(std::string(600, 'a'), 0)) == "tokenizer.broken-model");
  CHECK(id_of(model() + piece("x", std::bit_cast<float>(0x7FC00000u))) == "tokenizer.broken-model");
  CHECK(id_of(model() + "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01") ==
        "tokenizer.broken-model");                                              // length 2^64 - 1
  CHECK(id_of(model() + std::string(11, '\xFF')) == "tokenizer.broken-model");  // endless number
  CHECK(id_of(model() + "\x0B") == "tokenizer.broken-model");                   // a group
  CHECK(id_of(model() + number(1, 5)) == "tokenizer.broken-model");             // a piece that is a number
  CHECK(id_of(model() + field(1, number(1, 5))) == "tokenizer.broken-model");
  CHECK(id_of("{\"model\": {}}") == "tokenizer.broken-model");
}

TEST_CASE("tokenizer.model: cut and altered bytes give an Error or a working tokenizer") {
  std::mt19937 random(8);
  const std::string good = model();
  for (std::size_t length = 0; length < good.size(); ++length) {
    INFO(length);
    const std::string id = id_of(good.substr(0, length));
    CHECK(id != "accepted");
  }
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 2; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    try {
      const Tokenizer tokenizer = Tokenizer::parse_model(bad);
      tokenizer.decode(tokenizer.encode("abc ab\n"));
    } catch (const slm::Error&) {
    }
  }
}
