// Real vocabularies against encodings and decodings of Hugging Face's library. Skips missing files.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/text/byte_level.hpp"
#include "slm/text/tokenizer.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary.hpp"

using slm::Token;
using slm::Tokenizer;
using Ids = std::vector<Token>;
using Json = nlohmann::json;

namespace {

Json read_json(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

const Json& golden() {
  static const Json parsed = read_json(slm::testing::fixture("tokenizers/golden_tokenizers.json"));
  return parsed;
}

/// All golden strings of one vocabulary; `begin`: the token before a text, if any.
void check_golden(const Tokenizer& tokenizer, const std::string& name) {
  const Json& strings = golden().at("strings");
  const Json& expected = golden().at("encodings").at(name);
  REQUIRE(strings.size() == 29);
  REQUIRE(expected.size() == strings.size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string text = strings[i];
    const Ids ids = expected[i].at("ids");
    INFO(name << ": " << text);
    CHECK(tokenizer.encode(text, false) == ids);
    CHECK(tokenizer.encode(text).size() == ids.size() + expected[i].at("withBos").get<std::size_t>());
    CHECK(tokenizer.decode(ids, false) == expected[i].at("dec").get<std::string>());
  }
}

int base64_value(char symbol) {
  static const std::string symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return static_cast<int>(symbols.find(symbol));
}

std::string from_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char symbol : text) {
    if (symbol == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(base64_value(symbol));
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

/// The tokenizer.json of Llama-3, made from its tiktoken vocabulary as Hugging Face's converter does: every pair of
/// tokens that forms a token is a merge, in the order of the tokens, then of left and right part.
std::string llama3_json(const std::filesystem::path& tiktoken) {
  std::ifstream file(tiktoken);
  std::map<std::string, Token> ranks;
  std::vector<std::string> tokens;
  std::string bytes;
  for (Token rank; file >> bytes >> rank;) {
    tokens.push_back(from_base64(bytes));
    ranks.emplace(tokens.back(), rank);
  }
  const auto characters = [](std::string_view token) {
    std::string out;
    slm::byte_level::append_characters(out, token);
    return out;
  };
  Json json = read_json(slm::testing::fixture("tokenizers/llama3.json"));
  Json vocab = Json::object(), merges = Json::array(), added = Json::array();
  for (const std::string& token : tokens) {
    vocab[characters(token)] = ranks.at(token);
    std::vector<std::pair<Token, Token>> pairs;
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut)), right = ranks.find(token.substr(cut));
      if (left != ranks.end() && right != ranks.end()) pairs.emplace_back(left->second, right->second);
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [left, right] : pairs) {
      merges.push_back(
          {characters(tokens[static_cast<std::size_t>(left)]), characters(tokens[static_cast<std::size_t>(right)])});
    }
  }
  std::vector<std::string> special{"<|begin_of_text|>",
                                   "<|end_of_text|>",
                                   "<|reserved_special_token_0|>",
                                   "<|reserved_special_token_1|>",
                                   "<|reserved_special_token_2|>",
                                   "<|reserved_special_token_3|>",
                                   "<|start_header_id|>",
                                   "<|end_header_id|>",
                                   "<|reserved_special_token_4|>",
                                   "<|eot_id|>"};
  for (int i = 5; special.size() < 256; ++i) special.push_back("<|reserved_special_token_" + std::to_string(i) + "|>");
  for (const std::string& content : special) {
    added.push_back(
        {{"id", tokens.size() + added.size()}, {"content", content}, {"special", true}, {"normalized", false}});
  }
  json["model"]["vocab"] = std::move(vocab);
  json["model"]["merges"] = std::move(merges);
  json["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"] = {tokens.size()};
  json["added_tokens"] = std::move(added);
  return json.dump();
}

const std::string sample =
    "Tom's 2 cats naïvely   ate\n\n\tfish & chips — 日本語 🙂, didn't they? <0x0A>def f(x):\n    return x**2\n";

}  // namespace

TEST_CASE("real vocabularies: tokenizer.json files match the golden encodings") {
  const std::map<std::string, std::string> files{{"mistral_v03", "mistral/tokenizer.json"},
                                                 {"olmo_dolma_v1_5", "olmo/allenai_gpt-neox-olmo-dolma-v1_5.json"},
                                                 {"neox20b", "gpt-neox-20b/20B_tokenizer.json"},
                                                 {"gpt2", "gpt2/tokenizer.json"}};
  for (const auto& [name, file] : files) {
    const auto path = slm::testing::test_data("tokenizers/" + file);
    if (path.empty()) {
      WARN("SKIPPED: the vocabulary " << file << " is not here (set SLM_TEST_DATA)");
      continue;
    }
    check_golden(Tokenizer::from(path), name);
  }
}

TEST_CASE("real vocabularies: Llama-2 from tokenizer.model") {
  const auto folder = slm::testing::test_data("tokenizers/llama2");
  SLM_SKIP_WITHOUT(folder, "Llama-2's tokenizer.model");
  check_golden(Tokenizer::from(folder), "llama2_legacy");
  const Tokenizer tokenizer = Tokenizer::from(folder / "tokenizer.model");
  CHECK(tokenizer.vocab() == 32000);
  CHECK(tokenizer.piece(29871) == "▁");
  CHECK(tokenizer.encode("x") == Ids{1, 921});
}

TEST_CASE("real vocabularies: Llama-2 without the legacy pipeline") {
  const auto path = slm::testing::test_data("tokenizers/llama2/tokenizer.model");
  SLM_SKIP_WITHOUT(path, "Llama-2's tokenizer.model");
  const slm::testing::TemporaryFolder folder;
  std::filesystem::copy_file(path, folder.path() / "tokenizer.model");
  folder.write("tokenizer_config.json", R"({"legacy": false})");
  check_golden(Tokenizer::from(folder.path()), "llama2_metaspace");
}

TEST_CASE("real vocabularies: Llama-3 from its tiktoken vocabulary") {
  const auto path = slm::testing::test_data("tokenizers/llama3/tokenizer.model");
  SLM_SKIP_WITHOUT(path, "Llama-3's tokenizer.model");
  const Tokenizer tokenizer = Tokenizer::parse(llama3_json(path));
  CHECK(tokenizer.vocab() == 128256);
  check_golden(tokenizer, "llama3");
  CHECK_THROWS_WITH(Tokenizer::from(path), Catch::Matchers::Contains("[tokenizer.tiktoken-model]"));
}

TEST_CASE("real vocabularies: CodeLlama's tokenizer.model and tokenizer.json are the same tokenizer") {
  const auto folder = slm::testing::test_data("tokenizers/codellama-python");
  SLM_SKIP_WITHOUT(folder, "CodeLlama's tokenizer");
  const Tokenizer from_json = Tokenizer::from(folder / "tokenizer.json");
  const Tokenizer from_model = Tokenizer::from(folder / "tokenizer.model");
  CHECK(from_json.vocab() == 32004);
  CHECK(from_json.tokens() == from_model.tokens());
  CHECK(from_json.encode(sample) == from_model.encode(sample));
  for (const auto& text : golden().at("strings")) {
    CHECK(from_json.encode(text.get<std::string>()) == from_model.encode(text.get<std::string>()));
  }
}

TEST_CASE("real vocabularies: Mistral's own test encodings") {
  const auto folder = slm::testing::test_data("tokenizers/mistral");
  SLM_SKIP_WITHOUT(folder, "Mistral's tokenizer");
  const Tokenizer tokenizer = Tokenizer::from(folder);
  const Json encodings = read_json(folder / "encodings.json");
  for (const auto& entry : encodings.at("entries")) {
    const std::string text = entry.at("text");
    INFO(text);
    CHECK(tokenizer.encode(text, false) == entry.at("ids").get<Ids>());
    CHECK(tokenizer.encode(text) == entry.at("ids_special").get<Ids>());
    CHECK(tokenizer.decode(entry.at("ids").get<Ids>(), false) == entry.at("decode").get<std::string>());
  }
}

TEST_CASE("real vocabularies: every available tokenizer.json loads, and text survives a round trip") {
  for (const char* file :
       {"codellama-python/tokenizer.json", "gpt-neox-20b/20B_tokenizer.json", "gpt2/tokenizer.json",
        "mistral/tokenizer.json", "olmo/allenai_dolma2.json", "olmo/allenai_eleuther-ai-gpt-neox-20b-pii-special.json",
        "olmo/allenai_gpt-neox-olmo-dolma-v1_5.json", "phi3/tokenizer.json"}) {
    const auto path = slm::testing::test_data(std::string{"tokenizers/"} + file);
    if (path.empty()) continue;
    INFO(file);
    const Tokenizer tokenizer = Tokenizer::from(path);
    CHECK(tokenizer.decode(tokenizer.encode(sample)) == sample);
  }
}
