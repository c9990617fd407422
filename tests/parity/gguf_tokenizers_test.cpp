// Real vocabularies as GGUF metadata against their original files. Skips missing files.
#include <catch2/catch.hpp>
#include <cstddef>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "slm/io/gguf.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"
#include "support/gguf_tokenizer.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using Ids = std::vector<Token>;
using nlohmann::json;

namespace {

json read_json(const std::filesystem::path& path) { return json::parse(std::ifstream(path)); }

Tokenizer read(const GgufBuilder& builder) {
  const std::string file = builder.build();
  return Tokenizer::parse(parse_gguf({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "gguf").fields);
}

/// The strings collected by the tests of tokenizers.
std::vector<std::string> hostile_strings() {
  std::vector<std::string> all = read_json(fixture("tokenizers/golden_tokenizers.json")).at("strings");
  const json expected = read_json(fixture("tokenizers/expected.json"));
  for (const auto& text : expected.at("strings")) all.push_back(text);
  all.push_back(
      "Tom's 2 cats naïvely   ate\n\n\tfish & chips — 日本語 🙂, didn't they? <0x0A>def f(x):\n    return "
      "x**2\n");
  all.push_back(std::string(300, ' ') + "\t\t\n \n" + std::string(100, 'a') + "e\u0301\u0041\u030a\u1100\u1161");
  for (char32_t code : {0x10FFFF, 0xE000, 0xFFFD, 0x200D, 0xFEFF, 0x85, 0x0, 0x7F, 0x1F468}) {
    std::string text = "a";
    utf8::append(text, code);
    all.push_back(text + "b 12\u0663");
  }
  if (const auto more = test_data("smollm2/strings.json"); !more.empty()) {
    for (const auto& entry : read_json(more)) {
      if (entry.is_string()) all.push_back(entry);
      if (entry.is_object() && entry.contains("text")) all.push_back(entry.at("text"));
    }
  }
  return all;
}

void check_same(const Tokenizer& found, const Tokenizer& expected) {
  for (const std::string& text : hostile_strings()) {
    INFO(text);
    const Ids ids = expected.encode(text, false);
    CHECK(found.encode(text, false) == ids);
    CHECK(found.decode(ids, false) == expected.decode(ids, false));
    CHECK(found.decode(ids) == expected.decode(ids));
  }
}

}  // namespace

TEST_CASE("GGUF: real byte-level vocabularies give the ids of their tokenizer.json") {
  struct Case {
    const char *file, *pre;
  };
  for (const auto [file, pre] : {Case{"gpt2/tokenizer.json", "gpt-2"}, Case{"gpt-neox-20b/20B_tokenizer.json", "mpt"},
                                 Case{"olmo/allenai_gpt-neox-olmo-dolma-v1_5.json", "olmo"},
                                 Case{"olmo/allenai_eleuther-ai-gpt-neox-20b-pii-special.json", "olmo"}}) {
    const auto path = test_data(std::string{"tokenizers/"} + file);
    SLM_SKIP_WITHOUT(path, "a real tokenizer.json");
    INFO(file);
    check_same(read(gguf_vocabulary(read_json(path)).file("gpt2", pre)), Tokenizer::from(path));
  }
}

TEST_CASE("GGUF: real SentencePiece vocabularies give the ids of their tokenizer.model") {
  for (const char* file : {"llama2/tokenizer.model", "codellama-python/tokenizer.model"}) {
    const auto path = test_data(std::string{"tokenizers/"} + file);
    SLM_SKIP_WITHOUT(path, "a real tokenizer.model");
    INFO(file);
    const MappedFile mapped(path);
    const std::string_view bytes{reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
    const GgufVocabulary vocabulary = gguf_vocabulary(tokenizer_file::read_sentencepiece(bytes, path.string()));
    const Tokenizer found = read(vocabulary.file("llama", "default").u32("tokenizer.ggml.bos_token_id", 1));
    check_same(found, Tokenizer::parse_model(bytes));
    CHECK(found.encode("x") == Tokenizer::parse_model(bytes).encode("x"));
  }
}

TEST_CASE("GGUF: Phi-3's vocabulary gives the ids of its tokenizer.json") {
  const auto path = test_data("tokenizers/phi3/tokenizer.json");
  SLM_SKIP_WITHOUT(path, "Phi-3's tokenizer");
  const json tokenizer = with_swallowing_tokens(read_json(path));
  const GgufBuilder file = gguf_vocabulary(tokenizer).file("llama", "default", "phi3");
  check_same(read(GgufBuilder(file).u32("tokenizer.ggml.bos_token_id", 1)), Tokenizer::parse(tokenizer.dump()));
}

TEST_CASE("GGUF: SmolLM2's own file gives the ids and texts of the tokenizers package") {
  const auto path = built_model("SmolLM2-135M-Instruct.Q4_1.gguf");
  const auto golden = test_data("smollm2/golden_strings.json");
  SLM_SKIP_WITHOUT(path, "build/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  SLM_SKIP_WITHOUT(golden, "SmolLM2's golden strings");
  const Tokenizer tokenizer = Tokenizer::from(path);
  CHECK(tokenizer.vocab() == 49152);
  const json cases = read_json(golden).at("cases");
  CHECK(cases.size() == 65);
  for (const json& entry : cases) {
    std::string text = entry.value("text", "");
    if (entry.contains("hex")) {
      const std::string hex = entry.at("hex");
      for (std::size_t i = 0; i < hex.size(); i += 2) {
        text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      }
    }
    INFO(entry.dump());
    const Ids ids = entry.at("ids");
    CHECK(tokenizer.encode(text) == ids);
    CHECK(tokenizer.decode(ids, false) == entry.at("decoded").get<std::string>());
    CHECK(tokenizer.decode(ids) == entry.at("without_special").get<std::string>());
  }
}
