// The files beside a model's weights that a written model takes along.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "slm/io/safetensors_writer.hpp"
#include "support/errors.hpp"
#include "support/temporary.hpp"

using namespace slm;
namespace fs = std::filesystem;

TEST_CASE("a written model has the tokenizer and all chat templates of the old one") {
  const testing::TemporaryFolder scratch;
  const fs::path from = scratch.path() / "from", to = scratch.path() / "to";
  fs::create_directories(from / "additional_chat_templates" / "folder.jinja");
  fs::create_directories(to);
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "other.txt",
                           "additional_chat_templates/tool_use.jinja", "additional_chat_templates/notes.txt"}) {
    std::ofstream(from / name) << name;
  }
  for (const fs::path& file : companions_of(from)) copy_companion(file, to);
  CHECK(fs::exists(to / "tokenizer.json"));
  CHECK(fs::exists(to / "chat_template.jinja"));
  CHECK(fs::is_regular_file(to / "additional_chat_templates" / "tool_use.jinja"));
  CHECK_FALSE(fs::exists(to / "additional_chat_templates" / "notes.txt"));
  CHECK_FALSE(fs::exists(to / "additional_chat_templates" / "folder.jinja"));
  CHECK_FALSE(fs::exists(to / "other.txt"));
  CHECK(testing::error_id([&] { copy_companion(from / "tokenizer.json", to); }).starts_with("io."));
}
