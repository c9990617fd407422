// Published pre-tokenizers written into a GGUF file: what is read back makes the same ids.
#include <catch2/catch.hpp>
#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "slm/io/write_file.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/tokenizer_difference.hpp"
#include "slm/text/tokenizer_gguf_writer.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using Json = nlohmann::json;

namespace {

Json read_fixture(const std::string& name) { return Json::parse(std::ifstream(fixture(name))); }

/// The difference between a tokenizer.json and the GGUF file made of it; the id of the Error if it is rejected.
std::string difference(const Json& tokenizer) {
  const TemporaryFolder folder;
  write_text_file(folder.path() / "tokenizer.json", tokenizer.dump());
  const Tokenizer expected = Tokenizer::from(folder.path());
  GgufWriter writer;
  const std::string id = error_id([&] {
    tokenizer_file::write_tokenizer(writer, folder.path(), static_cast<std::size_t>(expected.vocab()), "llama", {});
  });
  if (id != "no error") return id;
  const auto file = folder.path() / "out.gguf";
  writer.write(file, [](std::size_t) { return std::span<const std::byte>{}; });
  return tokenizer_file::TokenizerComparison(expected, Tokenizer::from(file)).difference().value_or("none");
}

}  // namespace

TEST_CASE("published pre-tokenizers have a name in GGUF, and the file made of one has the same tokenizer") {
  // The names of these keep words that are tokens whole.
  const std::set<std::string> ignoring{"llama3", "chatglm", "tekken", "youtu", "minicpm5"};
  for (const Json& entry : read_fixture("splits/splits.json")) {
    const std::string name = entry.at("name");
    CAPTURE(name);
    Json tokenizer = read_fixture("tokenizers/gpt2.json");
    if (name == "gemma4") {
      tokenizer = read_fixture("tokenizers/llama2_legacy.json");
      tokenizer["decoder"]["decoders"].erase(3);  // Strip
    }
    tokenizer["normalizer"] = entry.at("normalizer");
    tokenizer["pre_tokenizer"] = entry.at("pipeline");
    for (const bool ignores : {false, true}) {
      CAPTURE(ignores);
      tokenizer["model"]["ignore_merges"] = ignores;
      const std::string found = difference(tokenizer);
      const bool both = name == "llama3" || name == "chatglm" || name == "o200k";
      const bool named = !name.starts_with("bert") && (both || ignores == ignoring.contains(name));
      CHECK(found == (named ? "none" : "tokenizer.not-for-gguf"));
    }
  }
}

TEST_CASE("a pre-tokenizer that no name of GGUF stands for is refused") {
  Json tokenizer = read_fixture("tokenizers/gpt2.json");
  const auto with = [&](const char* steps) {
    tokenizer["pre_tokenizer"] = Json::parse(steps);
    return difference(tokenizer);
  };
  CHECK(with(R"({"type": "ByteLevel", "add_prefix_space": false})") == "none");
  CHECK(with(R"({"type": "ByteLevel", "add_prefix_space": true})") == "tokenizer.not-for-gguf");
  CHECK(with(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": false},
            {"type": "ByteLevel", "add_prefix_space": false}]})") == "tokenizer.not-for-gguf");
  CHECK(with(R"({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "a+"}, "behavior": "Isolated"},
            {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})") == "tokenizer.not-for-gguf");
}
