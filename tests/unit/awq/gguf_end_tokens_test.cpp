// The end tokens of a folder and of the GGUF file made from it.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "slm/awq/gguf_output.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

using Ends = std::set<Token>;

/// A folder whose config.json has these end tokens. tokenizer: a file of the fixtures; empty: none.
struct Model {
  Model(const std::string& tokenizer, const Json& ends, const Json& eos_token = nullptr) {
    fs::create_directories(folder());
    write_random_checkpoint<float>(folder(), shape, 7);
    Json config = read_json_object(folder() / "config.json");
    config["eos_token_id"] = ends;
    write_text_file(folder() / "config.json", config.dump());
    if (tokenizer.empty()) return;
    fs::copy_file(fixture("tokenizers/" + tokenizer), folder() / "tokenizer.json");
    write_text_file(folder() / "tokenizer_config.json", Json{{"eos_token", eos_token}}.dump());
  }

  fs::path folder() const { return place.path() / "model"; }
  fs::path file() const { return place.path() / "model.gguf"; }
  static std::vector<Token> ends_of(const fs::path& model) { return Checkpoint(model).settings().end_tokens; }

  /// The end tokens of the folder and of the file, which must be equal; the first one, too.
  Ends ends() const {
    quantize::write_gguf(folder(), file(), {.type = DType::f32});
    const std::vector<Token> before = ends_of(folder()), after = ends_of(file());
    REQUIRE_FALSE(before.empty());
    CHECK(after.front() == before.front());
    CHECK(Ends(after.begin(), after.end()) == Ends(before.begin(), before.end()));
    return {before.begin(), before.end()};
  }

  static constexpr ModelConfig shape{
      .layers = 1, .hidden = 32, .ffn = 32, .heads = 1, .kv_heads = 1, .head_dim = 32, .vocab = 700};
  TemporaryFolder place;
};

}  // namespace

TEST_CASE("a GGUF file ends its texts at the end tokens of its original folder") {
  // In qwen2.json 476 is <|endoftext|>, 478 <|im_end|> and 479 <tool_call>, which is not a control token.
  CHECK(Model("qwen2.json", 476).ends() == Ends{476, 478});
  CHECK(Model("qwen2.json", 476, "<|im_end|>").ends() == Ends{476, 478});
  CHECK(Model("qwen2.json", 476, "<tool_call>").ends() == Ends{476, 478, 479});
  CHECK(Model("qwen2.json", {478, 476, 3}, "<tool_call>").ends() == Ends{3, 476, 478, 479});
  CHECK(Model("qwen2.json", {3, 4, 5}).ends() == Ends{3, 4, 5, 476, 478});
  CHECK(Model("qwen2.json", -1).ends() == Ends{476, 478});
  CHECK(Model("llama3.json", 478).ends() == Ends{478, 479});
  CHECK(Model("llama2_legacy.json", 5).ends() == Ends{2, 5});
  CHECK(Model("", {9, 8}).ends() == Ends{8, 9});
}

TEST_CASE("a folder with more end tokens than GGUF supports is rejected") {
  for (const char* tokenizer : {"qwen2.json", ""}) {
    const Model model(tokenizer, {3, 4, 5, 6});
    CHECK(error_id([&] { quantize::write_gguf(model.folder(), model.file(), {.type = DType::f32}); }) ==
          "quantize.not-for-gguf");
    CHECK_FALSE(fs::exists(model.file()));
  }
}
