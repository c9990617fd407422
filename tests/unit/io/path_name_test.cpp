#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "slm/awq/output_folder.hpp"
#include "slm/io/path_name.hpp"
#include "slm/text/chat.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;
using slm::detail::name_of_model;
using slm::detail::name_of_path;

TEST_CASE("a path has a name with any ending") {
  for (const char* path : {"models/tiny", "models/tiny/", "models/tiny//", "models/tiny/.", "models/tiny/./", "tiny",
                           "./tiny/", "/tiny", "/tiny/", "models/other/../tiny/"}) {
    CAPTURE(path);
    CHECK(name_of_path(path) == "tiny");
  }
  const std::string here = fs::current_path().filename().string();
  for (const char* path : {".", "./", "./.", ".//"}) CHECK(name_of_path(path) == here);
  CHECK(name_of_path("..") == fs::current_path().parent_path().filename());
  for (const char* path : {"", "/", "/."}) CHECK_NOTHROW(name_of_path(path));
}

TEST_CASE("a link has its own name, and its parent is the parent of its target") {
  const TemporaryFolder scratch;
  const fs::path root = scratch.path();
  fs::create_directories(root / "store" / "v3");
  fs::create_directory_symlink(root / "store" / "v3", root / "my-model");
  scratch.write("8f3a51", "GGUF");
  fs::create_symlink(root / "8f3a51", root / "my-file.gguf");
  for (const char* end : {"", "/", "/."}) CHECK(name_of_path((root / "my-model").string() + end) == "my-model");
  CHECK(name_of_path(root / "my-model" / "..") == "store");
  CHECK(name_of_path(root / "my-file.gguf") == "my-file.gguf");
  CHECK(name_of_model(root / "my-file.gguf") == "my-file");
  CHECK(name_of_model(root / "tiny-1.1b") == "tiny-1.1b");
  CHECK(name_of_model(root / ".gguf") == ".gguf");
}

TEST_CASE("a folder of Hugging Face's cache has the name of its model") {
  const TemporaryFolder scratch;
  const auto cached = [&](const fs::path& model) {
    const fs::path snapshot = scratch.path() / model / "snapshots" / "7ae557604adf67be50417f59c2c2f167def9a775";
    fs::create_directories(snapshot);
    return snapshot;
  };
  const fs::path snapshot = cached("models--org--tiny-model");
  for (const char* end : {"", "/", "/."}) CHECK(name_of_path(snapshot.string() + end) == "tiny-model");
  CHECK(name_of_path(snapshot / ".." / "." / snapshot.filename()) == "tiny-model");
  CHECK(name_of_path(snapshot / "q8_0.gguf") == "q8_0.gguf");
  CHECK(name_of_path(cached("models--gpt2")) == "gpt2");
  CHECK(name_of_path(cached("my-models")) == snapshot.filename());
  scratch.write("models--org--tiny-model/snapshots/one.gguf", "GGUF");
  CHECK(name_of_model(snapshot.parent_path() / "one.gguf") == "one");
  fs::create_directory_symlink(snapshot, scratch.path() / "mine");
  CHECK(name_of_path(scratch.path() / "mine/") == "mine");

  const fs::path chat = cached("models--TinyLlama--TinyLlama-1.1B-Chat-v1.0");
  std::ofstream(chat / "config.json") << R"({"model_type": "llama"})";
  CHECK(ChatTemplate::from(chat).name() == "zephyr");
}

TEST_CASE("a folder can be created beside a path that ends in a slash") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "made/";
  const quantize::OutputFolder output(folder, Json::object());
  CHECK(fs::exists(scratch.path() / "made.partial"));
  const std::vector<float> ones(4, 1.0f);
  const Tensor tensor{"one", DType::f32, {4}, reinterpret_cast<const std::byte*>(ones.data()), 16};
  output.write("part", std::span{&tensor, 1});
  output.finish({"part"}, Json::object(), {});
  CHECK(fs::exists(folder / "model.safetensors"));
  CHECK(fs::exists(folder / "config.json"));
}
