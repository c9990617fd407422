// Tokenizers through `quantize`: the written tokenizer gives the same tokens, or the model is rejected.
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "slm/awq/gguf_output.hpp"
#include "slm/awq/quantize.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/tokenizer_difference.hpp"
#include "support/errors.hpp"
#include "support/gguf_tokenizer.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

void check_same_ids(const fs::path& expected, const fs::path& found) {
  const Tokenizer one = Tokenizer::from(expected), other = Tokenizer::from(found);
  const Json known = read_json_object(fixture("tokenizers/expected.json"));
  for (const auto& string : known.at("strings")) {
    INFO(string);
    const std::vector<Token> ids = one.encode(string.get<std::string>());
    CHECK(other.encode(string.get<std::string>()) == ids);
    CHECK(other.decode(ids) == one.decode(ids));
    CHECK(other.decode(ids, false) == one.decode(ids, false));
  }
}

/// A folder with a model, and with a tokenizer whose file is rewritten for each trial.
struct Trial {
  explicit Trial(const char* name) : json(read_json_object(fixture(std::string{"tokenizers/"} + name))) {}

  void add(const char* content, const Json& about = Json::object()) {
    json["added_tokens"].push_back(Json{{"id", 600 + json["added_tokens"].size()}, {"content", content}});
    json["added_tokens"].back().update({{"normalized", false}, {"special", false}});
    json["added_tokens"].back().update(about);
  }

  /// The id of the error that rejects the tokenizer; none if the GGUF file's is equal.
  std::string fault() const {
    const TemporaryFolder folder;
    write_text_file(folder.path() / "tokenizer.json", json.dump());
    write_random_checkpoint<float>(folder.path(), shape, 7);
    const fs::path out = folder.path() / "out.gguf";
    const std::string id = error_id([&] { quantize::write_gguf(folder.path(), out, {.type = DType::q8_0}); });
    CHECK(fs::exists(out) == (id == "no error"));
    if (fs::exists(out)) check_same_ids(folder.path(), out);
    return id;
  }

  static constexpr ModelConfig shape{
      .layers = 1, .hidden = 32, .ffn = 32, .heads = 1, .kv_heads = 1, .head_dim = 32, .vocab = 700};

  Json json;
};

std::string fault_with(const char* name, const char* content, const Json& about = Json::object()) {
  Trial trial(name);
  trial.add(content, about);
  return trial.fault();
}

/// llama2_legacy without a space before each piece of text.
Json replacing_spaces_alone() {
  Json json = read_json_object(fixture("tokenizers/llama2_legacy.json"));
  json["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
  json["decoder"]["decoders"].erase(3);  // Strip
  return json;
}

}  // namespace

TEST_CASE("every tokenizer is the same in every output format of quantize, or is rejected by name") {
  std::vector<fs::path> tokenizers{demo_pair("target") / "tokenizer.json"};
  for (const auto& entry : fs::directory_iterator(fixture("tokenizers"))) {
    const bool is_json = entry.path().extension() == ".json";
    if (entry.path().extension() == ".model" || (is_json && read_json_object(entry.path()).contains("model")))
      tokenizers.push_back(entry.path());
  }
  REQUIRE(tokenizers.size() >= 10);
  const std::set<std::string> refused{"llama2_metaspace.json", "phi3.json", "sentencepiece.model"};
  for (const fs::path& tokenizer : tokenizers) {
    CAPTURE(tokenizer);
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model";
    fs::create_directories(model);
    fs::copy_file(tokenizer, model / ("tokenizer" + tokenizer.extension().string()));
    ModelConfig shape = Trial::shape;
    shape.vocab = Tokenizer::from(model).vocab() + 3;
    write_random_checkpoint<float>(model, shape, 7);
    for (const DType type :
         {DType::f32, DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
      CAPTURE(name_of(type));
      const fs::path out = folder.path() / (std::string{name_of(type)} + ".gguf");
      const std::string id = error_id([&] { quantize::write_gguf(model, out, {.type = type}); });
      CHECK(id == (refused.contains(tokenizer.filename().string()) ? "tokenizer.not-for-gguf" : "no error"));
      if (id == "no error") check_same_ids(model, out);
    }
    for (const quantize::Output format : {quantize::Output::awq, quantize::Output::compressed_tensors}) {
      const fs::path out = folder.path() / (format == quantize::Output::awq ? "awq" : "compressed");
      quantize::Options options;
      options.search = false;
      options.output = format;
      quantize::quantize(model, out, {}, options);
      check_same_ids(model, out);
    }
  }
}

TEST_CASE("an added token that merges also produce, or need, stays both in a GGUF file") {
  // Readers search "▁the" literally, while merges form it from " the", and "▁they" from it.
  for (const auto& [name, content] : std::vector<std::pair<const char*, const char*>>{{"gpt2.json", "the"},
                                                                                      {"gpt2.json", "Ġthe"},
                                                                                      {"gpt2.json", "t"},
                                                                                      {"gpt2.json", "Ä"},
                                                                                      {"llama3.json", "Ġthe"},
                                                                                      {"qwen2.json", "in"},
                                                                                      {"llama2_legacy.json", "the"},
                                                                                      {"llama2_legacy.json", "▁the"},
                                                                                      {"llama2_legacy.json", "▁"}}) {
    for (const bool special : {false, true}) {
      CAPTURE(name, content, special);
      CHECK(fault_with(name, content, {{"special", special}}) == "no error");
    }
  }
}

TEST_CASE("an added token is reached even if its merge has the score of a missing merge") {
  Trial trial("llama2_legacy.json");
  Json& model = trial.json["model"];
  model["vocab"] = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"▁", 3}, {"x", 4}, {"y", 5}, {"▁x", 6}};
  model["merges"] = Json::array();
  for (int i = 0; i < 999; ++i) {  // merges with priority: pairs that no text has anything beside
    model["vocab"][text("x", i, "q")] = 2 * i + 7;
    model["vocab"][text("x", i, "qx")] = 2 * i + 8;
    model["merges"].push_back({text("x", i, "q"), "x"});
  }
  model["merges"].push_back({"▁", "x"});
  trial.add("▁x");
  GgufWriter writer;
  const TemporaryFolder folder;
  write_text_file(folder.path() / "tokenizer.json", trial.json.dump());
  tokenizer_file::write_tokenizer(writer, folder.path(), 2100, "llama", {});
  writer.write(folder.path() / "out.gguf", [](std::size_t) { return std::span<const std::byte>{}; });
  CHECK(Tokenizer::from(folder.path() / "out.gguf").encode("x", false) == std::vector<Token>{6});
}

TEST_CASE("an added token matched after normalization is written if no text shows the difference") {
  const Json normalized{{"normalized", true}}, special{{"normalized", true}, {"special", true}};
  const auto refused = "tokenizer.not-for-gguf";
  // A space precedes each piece of text: in the folder none follows the token.
  CHECK(fault_with("llama2_legacy.json", "<TOOL>", normalized) == refused);
  CHECK(fault_with("llama2_legacy.json", "<TOOL>", special) == refused);
  CHECK(fault_with("llama2_legacy.json", "<TOOL>") == "no error");
  // Nothing is normalized.
  CHECK(fault_with("gpt2.json", "<TOOL>", normalized) == "no error");
  CHECK(fault_with("llama3.json", "é", special) == "no error");
  // But raw tokens are split off first.
  CHECK(fault_with("gpt2.json", "x<|endoftext|>", normalized) == refused);
  CHECK(fault_with("gpt2.json", "<|endoftext|>x", normalized) == refused);
  CHECK(fault_with("gpt2.json", "x<|endo", normalized) == refused);
  CHECK(fault_with("gpt2.json", "<|endo", normalized) == "no error");
  CHECK(fault_with("gpt2.json", "text|>", normalized) == "no error");
  // NFC composes ≯ from > and a mark, maps the kelvin sign to K, and composes é from e and its mark.
  CHECK(fault_with("qwen2.json", "[[x]]", normalized) == "no error");
  CHECK(fault_with("qwen2.json", "|||EMAIL|||", normalized) == "no error");
  for (const char* content : {"<TOOL>", "tool", "[K]", "[;]", "[`]", "[=", "é!", "[e\u0301]", "\u0301!"}) {
    CAPTURE(content);
    CHECK(fault_with("qwen2.json", content, normalized) == refused);
  }
  // Spaces become ▁.
  for (const auto& [content, id] : std::map<std::string, std::string>{
           {"<TOOL>", "no error"}, {"a b", refused}, {"a▁b", refused}, {"<s", "no error"}, {"a<s", refused}}) {
    CAPTURE(content);
    Trial trial("llama2_legacy.json");
    trial.json = replacing_spaces_alone();
    trial.add(content.c_str(), normalized);
    CHECK(trial.fault() == id);
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    CHECK(fault_with("gpt2.json", "<TOOL>", {{flag, true}}) == refused);
  }
}

TEST_CASE("a tokenizer that differs in its GGUF file is rejected, and no file remains") {
  const auto refused = "tokenizer.not-for-gguf";
  Trial unknown("llama2_legacy.json");  // <unk> is not a text, but readers search for it
  for (auto token = unknown.json["added_tokens"].begin();; ++token) {
    if ((*token)["content"] != "<unk>") continue;
    unknown.json["added_tokens"].erase(token);
    break;
  }
  CHECK(unknown.fault() == refused);
  Trial unmerged("llama2_legacy.json");  // readers merge whatever forms a token
  unmerged.json["model"]["vocab"]["Cb"] = 650;
  CHECK(unmerged.fault() == refused);
  Trial decoded("llama2_legacy.json");  // the first space stays
  decoded.json["decoder"]["decoders"].erase(3);
  CHECK(decoded.fault() == refused);
}

TEST_CASE("a comparison of tokenizers finds differences") {
  const auto changed = [](const std::function<void(Json&)>& change) {
    Json json = read_json_object(fixture("tokenizers/gpt2.json"));
    const Tokenizer expected = Tokenizer::parse(json.dump());
    change(json);
    return tokenizer_file::TokenizerComparison(expected, Tokenizer::parse(json.dump())).difference().value_or("none");
  };
  CHECK(changed([](Json&) {}) == "none");
  CHECK_THAT(changed([](Json& json) { json["added_tokens"][0]["special"] = false; }),
             Catch::StartsWith("token 476 is the special '<|endoftext|>', and then '<|endoftext|>'"));
  CHECK_THAT(changed([](Json& json) { json["added_tokens"] = Json::array(); }), Catch::Contains("and then none"));
  CHECK_THAT(changed([](Json& json) { json["added_tokens"][0]["rstrip"] = true; }), Catch::Contains("other tokens"));
  CHECK_THAT(changed([](Json& json) { std::reverse(json["model"]["merges"].begin(), json["model"]["merges"].end()); }),
             Catch::Contains("other tokens"));
  CHECK_THAT(changed([](Json& json) { json["decoder"] = nullptr; }), Catch::Contains("another text"));
}
