// Allowed differences of GGUF files of one model: names, number types, ids of no token.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "slm/io/checkpoint.hpp"
#include "slm/io/gguf_file.hpp"
#include "support/gguf_builder.hpp"
#include "support/gguf_model.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

TEST_CASE("ids of a GGUF model outside its vocabulary are ignored with a note, for any purpose") {
  SmallModel model;
  model.more = [](GgufBuilder& file) {
    for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask", "fim_pre"}) {
      file.u32(text("tokenizer.ggml.", name, "_token_id"), ~0u);
    }
    file.number("tokenizer.ggml.fim_suf_token_id", gguf_i32, -1).u32("tokenizer.ggml.fim_mid_token_id", 10);
    file.number("tokenizer.ggml.fim_pad_token_id", 10, ~std::uint64_t{0}).f32("tokenizer.ggml.fim_rep_token_id", 1e9f);
    file.u32("tokenizer.ggml.cls_token_id", 9).string("tokenizer.ggml.fim_sep_token_id", "odd");
  };
  const TemporaryFolder folder;
  const Checkpoint checkpoint(folder.write("m.gguf", model.build().build()));
  CHECK(checkpoint.settings().end_tokens.empty());
  const std::vector<std::string>& notes = checkpoint.notes();
  CHECK(notes.size() == 13);
  const auto noted = [&](const std::string& what) {
    return std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
      return note.find(what) != note.npos && note.find("m.gguf") != note.npos;
    });
  };
  CHECK(noted("'tokenizer.ggml.eos_token_id' is u32 4294967295, outside the vocabulary 0..9: dropped"));
  CHECK(noted("'tokenizer.ggml.fim_suf_token_id' is i32 -1,"));
  CHECK(noted("'tokenizer.ggml.fim_mid_token_id' is u32 10,"));
  CHECK(noted("'tokenizer.ggml.fim_pad_token_id' is u64 18446744073709551615,"));
  CHECK_FALSE(noted("cls"));
}

TEST_CASE("a GGUF model does not depend on the number types of its metadata") {
  const TemporaryFolder folder;
  const auto opened = [&]<class Whole, class Real>(std::uint32_t whole, Whole, std::uint32_t real, Real) {
    SmallModel model;
    model.without = "block_count";
    model.more = [=](GgufBuilder& file) {
      std::vector<Whole> types(10, Whole{1});
      types[3] = Whole{3};
      file.strings("tokenizer.ggml.tokens",
                   std::vector<std::string>{"a", "b", "c", "</s>", "d", "e", "f", "g", "h", "i"});
      file.numbers("tokenizer.ggml.token_type", whole, types).number("llama.block_count", whole, Whole{1});
      file.number("llama.rope.freq_base", real, Real{20000}).number("llama.rope.scaling.factor", real, Real{4});
    };
    return Checkpoint(folder.write("m.gguf", model.build().build()));
  };
  const Checkpoint expected = opened(5, std::int32_t{}, 6, float{});
  REQUIRE(expected.settings().rope_theta == 20000);
  const auto same = [&](const Checkpoint& found) {
    CHECK(found.config() == expected.config());
    CHECK(found.settings().rope_theta == 20000);
    CHECK(found.settings().rope_scaling.factor == 4);
    CHECK(found.settings().end_tokens == std::vector<Token>{3});
  };
  same(opened(0, std::uint8_t{}, 2, std::uint16_t{}));
  same(opened(4, std::uint32_t{}, 5, std::int32_t{}));
  same(opened(10, std::uint64_t{}, 11, std::int64_t{}));
  same(opened(6, float{}, 12, double{}));
}

TEST_CASE("a folder with one GGUF model and no safetensors is that model") {
  const TemporaryFolder folder;
  const std::string file = SmallModel{}.build().strings("x", std::vector<std::string>{}).build();
  folder.write("config.json", "{}");
  folder.write("model-Q4_K_M.gguf", file);
  CHECK(Checkpoint(folder.path()).config().hidden == 8);
  folder.write("model-Q8_0.gguf", file);
  CHECK_THROWS_WITH(Checkpoint(folder.path()), Catch::Contains("'model-Q4_K_M.gguf', 'model-Q8_0.gguf'") &&
                                                   Catch::Contains("checkpoint.several-gguf"));
  CHECK(gguf_of(folder.path() / "model-Q8_0.gguf") == folder.path() / "model-Q8_0.gguf");
  folder.write("model.safetensors", "");
  CHECK_FALSE(gguf_of(folder.path()));
  const TemporaryFolder split;
  for (const char* name : {"split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf"}) {
    fs::copy(fixture(std::string{"gguf/"} + name), split.path());
  }
  CHECK(Checkpoint(split.path()).config().hidden == 64);
  CHECK_FALSE(gguf_of(split.path() / "absent"));
}

TEST_CASE("a GGUF file is identified by its first four bytes, with any name") {
  const std::string content = SmallModel{}.build().build();
  for (const char* name :
       {"sha256-0a1b2c", "MODEL.GGUF", "model.gguf.part", "model.bin", "tokenizer.json", ".hidden"}) {
    CAPTURE(name);
    const TemporaryFolder folder;
    const fs::path file = folder.write(name, content);
    CHECK(gguf_of(file) == file);
    CHECK(Checkpoint(file).config().hidden == 8);
    folder.write("README.md", "GGU");
    folder.write("empty", "");
    fs::create_directory(folder.path() / "more.gguf");
    CHECK(gguf_of(folder.path()) == file);
    CHECK(Checkpoint(folder.path()).config().hidden == 8);
  }
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link", blob = folder.write("blob", content);
  fs::create_symlink(blob, link);
  CHECK(gguf_of(link) == link);
  CHECK_THROWS_WITH(gguf_of(folder.path()), Catch::Contains("checkpoint.several-gguf"));
  const auto refused = [&](const std::string& what, const char* id) {
    const fs::path file = folder.write("other.gguf", what);
    CHECK_FALSE(gguf_of(file));
    CHECK_THROWS_WITH(Checkpoint(file), Catch::Contains("other.gguf") && Catch::Contains(id));
  };
  refused("PK and more", "gguf.bad-magic");
  refused("tjgg and more", "gguf.bad-magic");
  refused("", "io.unreadable");
  refused("version https://git-lfs.github.com/spec/v1", "io.lfs-pointer");
  CHECK_FALSE(gguf_of(folder.path() / "absent.gguf"));
  CHECK_THROWS_WITH(Checkpoint(folder.path() / "absent.gguf"), Catch::Contains("checkpoint.no-folder"));
}
