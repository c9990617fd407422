// The end tokens from the files of a folder.
#include <catch2/catch.hpp>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "slm/io/checkpoint.hpp"
#include "slm/io/config_json.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

using Ends = std::vector<Token>;

Json added(int id, const char* content, bool special = true) {
  return {{"id", id}, {"content", content}, {"special", special}};
}

/// A folder of a model with 101 tokens whose config.json names 7, and a tokenizer.
struct Folder : TemporaryFolder {
  Folder() {
    Json config = config_json(tiny_shape, false, 512);
    config["eos_token_id"] = 7;
    write("config.json", config.dump());
    tokenizer({added(7, "<|endoftext|>"), added(8, "<|im_end|>"), added(9, "<|end|>", false), added(10, "<tool>")});
  }

  void tokenizer(std::initializer_list<Json> tokens) const {
    write("tokenizer.json", Json{{"added_tokens", Json(tokens)}, {"model", {{"vocab", {{"a", 0}, {"b", 1}}}}}}.dump());
  }
  void eos(const Json& token) const { write("tokenizer_config.json", Json{{"eos_token", token}}.dump()); }

  ModelDescription read() const { return read_model_description(path()); }
  Ends ends() const {
    const ModelDescription model = read();
    CHECK(model.notes.empty());
    CHECK(model.end_sources.size() == model.settings.end_tokens.size());
    return model.settings.end_tokens;
  }
};

}  // namespace

TEST_CASE("a text ends after the ids of the files, the tokenizer's own end token and known control tokens") {
  const Folder folder;
  folder.tokenizer({added(12, "</s>"), added(7, "<|endoftext|>"), added(8, "<|im_end|>"), added(9, "<|end|>", false),
                    added(10, "<tool>")});
  CHECK(folder.ends() == Ends{7, 8, 12});
  folder.eos("<tool>");
  CHECK(folder.ends() == Ends{7, 10, 8, 12});
  CHECK(folder.read().end_sources == std::vector<std::string>{"config.json", "eos_token of tokenizer_config.json",
                                                              "control token <|im_end|>", "control token </s>"});
  folder.write("generation_config.json", R"({"eos_token_id": [3, 8, 3]})");
  CHECK(folder.ends() == Ends{3, 8, 10, 7, 12});
  CHECK(folder.read().end_sources.at(1) == "generation_config.json");
}

TEST_CASE("the tokenizer's own end token is found in any of its files") {
  const Folder folder;
  folder.eos("<|end|>");  // not a control token, but named
  CHECK(folder.ends() == Ends{7, 9, 8});
  folder.eos(Json{{"content", "<tool>"}, {"lstrip", false}});
  CHECK(folder.ends() == Ends{7, 10, 8});
  folder.eos("b");  // of the vocabulary
  CHECK(folder.ends() == Ends{7, 1, 8});
  folder.eos("c");  // no token
  CHECK(folder.ends() == Ends{7, 8});
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "<tool>"}})");
  folder.eos(nullptr);  // none, for any special_tokens_map.json
  CHECK(folder.ends() == Ends{7, 8});
  folder.write("tokenizer_config.json", "{}");
  CHECK(folder.ends() == Ends{7, 10, 8});
  CHECK(folder.read().end_sources.at(1) == "eos_token of special_tokens_map.json");
}

TEST_CASE("added tokens of tokenizer_config.json end texts unless tokenizer.json has them") {
  const Folder folder;
  folder.tokenizer({added(9, "<|end|>", false), added(11, "</s>", false)});
  const auto decoder = [](const char* content) { return Json{{"content", content}, {"special", true}}; };
  folder.write("tokenizer_config.json", Json{{"eos_token", "<tool>"},
                                             {"added_tokens_decoder",
                                              {{"9", decoder("<|eot_id|>")},
                                               {"10", decoder("<tool>")},
                                               {"12", decoder("</s>")},
                                               {"13", decoder("<|im_end|>")},
                                               {"x", decoder("<EOT>")}}}}
                                            .dump());
  CHECK(folder.ends() == Ends{7, 10, 13});
  std::filesystem::remove(folder.path() / "tokenizer.json");
  CHECK(folder.ends() == Ends{7});  // there is no tokenizer
  std::filesystem::copy_file(fixture("tokenizers/sentencepiece.model"), folder.path() / "tokenizer.model");
  CHECK(folder.ends() == Ends{7, 2});
  folder.eos("<s>");
  CHECK(folder.ends() == Ends{7, 1, 2});
}

TEST_CASE("tokenizer.json is read only as far as necessary, and Tokenizer reports its faults") {
  const Folder folder;
  const auto sources_with = [&](const std::string& tokenizer) {
    folder.write("tokenizer.json", tokenizer);
    return folder.ends();
  };
  const std::string list = R"("added_tokens":[{"id":8,"content":"<|im_end|>","special":true,"more":{"id":9}}])";
  folder.eos("<|im_end|>");
  CHECK(sources_with("{" + list + R"(,"model":{"vocab":{)") == Ends{7, 8});
  folder.eos("b");
  const std::string model = R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[["b",5],{"b":6}]})";
  for (const std::string& both : {list + "," + model, model + "," + list}) {
    CHECK(sources_with("{" + both + "}") == Ends{7, 1, 8});
  }
  CHECK(sources_with(R"({"model":{"other":{"b":5},"vocab":[{"b":4}]},"added_tokens":{"x":[{"id":3}]}})") == Ends{7});
  CHECK(sources_with(R"({"added_tokens":[{"id":-8,"content":"<|im_end|>","special":true},{"content":"</s>"}, 3]})") ==
        Ends{7});
  for (const char* broken : {"", "{", "{\"added_tokens\":", "version https://git-lfs.github.com/spec/v1"}) {
    CAPTURE(broken);
    folder.write("tokenizer.json", broken);
    const ModelDescription described = folder.read();
    CHECK(described.settings.end_tokens == Ends{7});
    REQUIRE(described.notes.size() == 1);
    CHECK_THAT(described.notes.front(), Catch::Contains("tokenizer.json"));
  }
}

TEST_CASE("an end token of the tokenizer outside the vocabulary is ignored with a note") {
  const Folder folder;
  folder.tokenizer({added(8, "</s>"), added(101, "<|im_end|>")});
  CHECK(folder.ends() == Ends{7, 8});
  folder.eos("<|im_end|>");
  const ModelDescription model = folder.read();
  CHECK(model.settings.end_tokens == Ends{7, 8});
  REQUIRE(model.notes.size() == 1);
  CHECK_THAT(model.notes.front(),
             Catch::Contains("101") && Catch::Contains("tokenizer_config.json") && Catch::Contains("0..100"));
}
