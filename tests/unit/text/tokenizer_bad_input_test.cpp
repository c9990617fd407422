// Broken and hostile tokenizer files: each fault is its own Error naming the file; nothing else escapes.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary.hpp"

using slm::Tokenizer;

namespace {

std::string id_of(const std::string& json) {
  try {
    Tokenizer::parse(json, "some/tokenizer.json");
  } catch (const slm::Error& error) {
    CHECK(std::string{error.what()}.find("some/tokenizer.json") != std::string::npos);
    return error.id();
  }
  return "accepted";
}

/// A tokenizer whose model has these fields, and with further parts.
std::string with_model(const std::string& model, const std::string& parts = "") {
  return R"({"model": {"type": "BPE", )" + model + "}" + parts + "}";
}

std::string with(const std::string& parts) {
  return with_model(R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])", ", " + parts);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("bad tokenizer.json: not JSON, not an object, missing and mistyped fields") {
  CHECK(id_of("") == "json.malformed");
  CHECK(id_of("{\"model\": ") == "json.malformed");
  CHECK(id_of("{\"model\": 1e999}") == "json.malformed");
  CHECK(id_of("{\"\xFF\": 1}") == "json.malformed");
  CHECK(id_of("[]") == "json.not-an-object");
  CHECK(id_of("null") == "json.not-an-object");
  CHECK(id_of("{}") == "tokenizer.missing-field");
  CHECK(id_of(R"({"model": null})") == "tokenizer.missing-field");
  CHECK(id_of(R"({"model": []})") == "tokenizer.wrong-type");
  CHECK(id_of(R"({"model": {"type": 3}})") == "tokenizer.wrong-type");
  CHECK(id_of(R"({"model": {"type": "Unigram"}})") == "tokenizer.unsupported");
  CHECK(id_of(with_model(R"("merges": [])")) == "tokenizer.missing-field");
  CHECK(id_of(with_model(R"("vocab": {"a": 0})")) == "tokenizer.missing-field");
  CHECK(id_of(with_model(R"("vocab": [], "merges": [])")) == "tokenizer.wrong-type");
  CHECK(id_of(with_model(R"("vocab": {}, "merges": [])")) == "tokenizer.empty-vocabulary");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": {})")) == "tokenizer.wrong-type");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": [], "byte_fallback": "yes")")) == "tokenizer.wrong-type");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": [], "dropout": 0.1)")) == "tokenizer.unsupported");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>")")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "?")")) == "tokenizer.missing-unknown-token");
  CHECK(id_of(with_model(R"("vocab": {"a": 0}, "merges": [])")) == "accepted");
}

TEST_CASE("bad tokenizer.json: ids") {
  const auto id = [](const std::string& value) {
    return with_model("\"vocab\": {\"a\": " + value + ", \"b\": 1}, \"merges\": []");
  };
  CHECK(id_of(id("0")) == "accepted");
  CHECK(id_of(id("900000")) == "accepted");
  CHECK(id_of(id("-1")) == "tokenizer.bad-id");
  CHECK(id_of(id("1000002")) == "tokenizer.bad-id");
  CHECK(id_of(id("9223372036854775807")) == "tokenizer.bad-id");
  CHECK(id_of(id("18446744073709551615")) == "tokenizer.bad-id");
  CHECK(id_of(id("-9223372036854775808")) == "tokenizer.bad-id");
  CHECK(id_of(id("0.5")) == "tokenizer.wrong-type");
  CHECK(id_of(id("\"0\"")) == "tokenizer.wrong-type");
  CHECK(id_of(id("null")) == "tokenizer.wrong-type");
  CHECK(id_of(id("1")) == "tokenizer.duplicate-id");
}

TEST_CASE("bad tokenizer.json: merges") {
  const auto merges = [](const std::string& list) {
    return with_model(R"("vocab": {"a": 0, "b": 1, "ab": 2, "": 3}, "merges": [)" + list + "]");
  };
  CHECK(id_of(merges(R"("a b")")) == "accepted");
  CHECK(id_of(merges(R"(["a", "b"], "a b")")) == "accepted");
  CHECK(id_of(merges(R"("a c")")) == "tokenizer.missing-merge-token");
  CHECK(id_of(merges(R"("b a")")) == "tokenizer.missing-merge-token");
  CHECK(id_of(merges(R"("a ")")) == "tokenizer.cyclic-merge");
  CHECK(id_of(merges(R"(["", ""])")) == "tokenizer.cyclic-merge");
  CHECK(id_of(merges(R"("ab")")) == "tokenizer.bad-merge");
  CHECK(id_of(merges(R"("a b c")")) == "tokenizer.bad-merge");
  CHECK(id_of(merges(R"(["a"])")) == "tokenizer.bad-merge");
  CHECK(id_of(merges(R"(["a", 1])")) == "tokenizer.bad-merge");
  CHECK(id_of(merges("7")) == "tokenizer.bad-merge");
}

TEST_CASE("bad tokenizer.json: added tokens") {
  const auto added = [](const std::string& list) { return with("\"added_tokens\": " + list); };
  CHECK(id_of(added(R"([{"id": 3, "content": "<s>"}])")) == "accepted");
  CHECK(id_of(added(R"([{"id": 7, "content": "a"}])")) == "accepted");  // keeps the vocabulary's id
  CHECK(id_of(added("{}")) == "tokenizer.wrong-type");
  CHECK(id_of(added("[3]")) == "tokenizer.wrong-type");
  CHECK(id_of(added(R"([{"id": 3}])")) == "tokenizer.missing-field");
  CHECK(id_of(added(R"([{"content": "x"}])")) == "tokenizer.missing-field");
  CHECK(id_of(added(R"([{"id": 1, "content": "x"}])")) == "tokenizer.duplicate-id");
  CHECK(id_of(added(R"([{"id": 3, "content": "x"}, {"id": 3, "content": "y"}])")) == "tokenizer.duplicate-id");
  CHECK(id_of(added(R"([{"id": 3, "content": "x"}, {"id": 4, "content": "x"}])")) == "tokenizer.duplicate-token");
  CHECK(id_of(added(R"([{"id": -3, "content": "x"}])")) == "tokenizer.bad-id");
  CHECK(id_of(added(R"([{"id": 99999999, "content": "x"}])")) == "tokenizer.bad-id");
  CHECK(id_of(added(R"([{"id": 3, "content": "x", "lstrip": 1}])")) == "tokenizer.wrong-type");
}

TEST_CASE("bad tokenizer.json: unknown parts of the pipeline are named, not ignored") {
  CHECK(id_of(with(R"("normalizer": {"type": "Lowercase"})")) == "tokenizer.unsupported");
  CHECK(id_of(with(R"("normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": "x"})")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"})")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("normalizer": "NFC")")) == "tokenizer.wrong-type");
  CHECK(id_of(with(R"("pre_tokenizer": {"type": "UnicodeScripts"})")) == "tokenizer.unsupported");
  const auto split = [](const std::string& pattern, const std::string& behavior) {
    return id_of(with("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": " + pattern + ", \"behavior\": \"" +
                      behavior + "\"}"));
  };
  CHECK(split(R"({"Regex": "\\w+"})", "Isolated") == "accepted");
  CHECK(split(R"({"Regex": "a("})", "Isolated") == "tokenizer.split-pattern");
  CHECK(split(R"({"Regex": "a"})", "Kept") == "tokenizer.unsupported");
  CHECK(split(R"({"Glob": "a"})", "Isolated") == "tokenizer.missing-field");
  CHECK(split(R"({"String": ""})", "Isolated") == "tokenizer.unsupported");
  CHECK(
      id_of(with(
          R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Metaspace"}, {"type": "Metaspace"}]})")) ==
      "tokenizer.unsupported");
  CHECK(id_of(with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": ""})")) == "tokenizer.unsupported");
  CHECK(id_of(with(R"("pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "last"})")) == "tokenizer.unsupported");
  CHECK(
      id_of(with(
          R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})")) ==
      "tokenizer.unsupported");
  CHECK(id_of(with(R"("decoder": {"type": "CTC"})")) == "tokenizer.unsupported");
  CHECK(id_of(with(R"("decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0})")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]})")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("post_processor": {"type": "BertProcessing"})")) == "tokenizer.unsupported");
  const auto single = [](const std::string& list) {
    return with(
        R"("post_processor": {"type": "TemplateProcessing", "special_tokens": {"s": {"ids": [1]}, "t": {"ids": [77]}}, "single": )" +
        list + "}");
  };
  CHECK(id_of(single(R"([{"SpecialToken": {"id": "s"}}, {"Sequence": {"id": "A"}}])")) == "accepted");
  CHECK(id_of(single(R"([{"SpecialToken": {"id": "s"}}])")) == "tokenizer.unsupported");
  CHECK(id_of(single(R"([{"Sequence": {}}, {"Sequence": {}}])")) == "tokenizer.unsupported");
  CHECK(id_of(single(R"([{"SpecialToken": {"id": "x"}}, {"Sequence": {}}])")) == "tokenizer.missing-special-token");
  CHECK(id_of(single(R"([{"SpecialToken": {"id": "t"}}, {"Sequence": {}}])")) == "tokenizer.bad-id");
  CHECK(id_of(single(R"([7])")) == "tokenizer.wrong-type");
}

TEST_CASE("bad tokenizer.json: what would cost memory or time without bound") {
  std::string steps, digits;
  for (int i = 0; i < 20; ++i) steps += R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"},)";
  for (int i = 0; i < 100; ++i) digits += R"({"type": "Digits", "individual_digits": true},)";
  const auto growing =
      Tokenizer::parse(with(R"("normalizer": {"type": "Sequence", "normalizers": [)" + steps + R"({"type": "NFC"}]})"));
  CHECK_THROWS_WITH(growing.encode("a"), Catch::Matchers::Contains("[tokenizer.runaway-replacement]"));
  const auto decoding =
      Tokenizer::parse(with(R"("decoder": {"type": "Sequence", "decoders": [)" + steps + R"({"type": "Fuse"}]})"));
  CHECK_THROWS_WITH(decoding.decode(std::vector<slm::Token>{0}),
                    Catch::Matchers::Contains("[tokenizer.runaway-replacement]"));
  CHECK(id_of(with(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" + digits +
                   R"({"type": "ByteLevel"}]})")) == "tokenizer.unsupported");
  CHECK(id_of(with(R"("normalizer": {"type": "Prepend", "prepend": ")" + std::string(65, 'x') + "\"}")) ==
        "tokenizer.unsupported");
  CHECK(id_of(with(R"("added_tokens": [{"id": 3, "content": ")" + std::string(1025, 'x') + "\"}]")) ==
        "tokenizer.long-token");
  CHECK(id_of(with(R"("added_tokens": [{"id": 3, "content": ")" + std::string(1024, 'x') + "\"}]")) == "accepted");
}

TEST_CASE("bad tokenizer.json: nesting a million deep is refused before a value is built") {
  const std::string open(1000000, '['), close(1000000, ']');
  CHECK(id_of(open) == "json.too-deep");
  CHECK(id_of(open + close) == "json.too-deep");
  CHECK(id_of("{\"model\": " + open + close + "}") == "json.too-deep");
  std::string steps = R"({"type": "NFC"})";
  for (int depth = 0; depth < 20; ++depth) steps = R"({"type": "Sequence", "normalizers": [)" + steps + "]}";
  CHECK(id_of(with("\"normalizer\": " + steps)) == "tokenizer.unsupported");
}

TEST_CASE("bad tokenizer files: cut and altered bytes give an Error or a working tokenizer") {
  std::mt19937 random(7);
  const std::string good = content_of(slm::testing::fixture("tokenizers/llama3.json"));
  int accepted = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bad = good.substr(0, round % 2 == 0 ? random() % good.size() : good.size());
    for (int i = 0; i < 3 && !bad.empty(); ++i) bad[random() % bad.size()] = static_cast<char>(random());
    try {
      const Tokenizer tokenizer = Tokenizer::parse(bad);
      tokenizer.decode(tokenizer.encode("The pump 123\n"));
      ++accepted;
    } catch (const slm::Error&) {
    }
  }
  CHECK(accepted < 150);
}

TEST_CASE("tokenizer files: absent, empty, a folder without any") {
  const slm::testing::TemporaryFolder folder;
  const auto id = [](const std::filesystem::path& path) {
    try {
      Tokenizer::from(path);
    } catch (const slm::Error& error) {
      CHECK(std::string{error.what()}.find(path.string()) != std::string::npos);
      return error.id();
    }
    return std::string{"accepted"};
  };
  CHECK(id(folder.path()) == "tokenizer.not-found");
  CHECK(id(folder.path() / "none.json") == "io.unreadable");
  CHECK(id(folder.write("tokenizer.json", "")) == "io.unreadable");
  CHECK(id(folder.write("tokenizer.json", "{")) == "json.malformed");
  folder.write("tokenizer.json", with_model(R"("vocab": {"a": 0}, "merges": [])"));
  CHECK(id(folder.path()) == "accepted");
  const auto config = [&](const std::string& content) {
    folder.write("tokenizer_config.json", content);
    try {
      Tokenizer::from(folder.path());
    } catch (const slm::Error& error) {
      CHECK(std::string{error.what()}.find("tokenizer_config.json") != std::string::npos);
      return error.id();
    }
    return std::string{"accepted"};
  };
  CHECK(config("{}") == "accepted");
  CHECK(config("[") == "json.malformed");
  CHECK(config(R"({"legacy": 3})") == "tokenizer.wrong-type");
  CHECK(config(R"({"added_tokens_decoder": []})") == "tokenizer.wrong-type");
  CHECK(config(R"({"added_tokens_decoder": {"x": {"content": "y"}}})") == "tokenizer.bad-id");
  CHECK(config(R"({"added_tokens_decoder": {"99999999999999999999": {"content": "y"}}})") == "tokenizer.bad-id");
  CHECK(config(R"({"added_tokens_decoder": {"1": {"content": "y"}, "01": {"content": "z"}}})") ==
        "accepted");  // the first counts
}
