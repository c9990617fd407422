// Files and folders of the operating system, by names that are not ASCII.
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "slm/core/os/folder.hpp"
#include "slm/core/os/path.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/write_file.hpp"
#include "tests/support/temporary.hpp"

namespace {

using slm::path_of;

TEST_CASE("files have the names of UTF-8 texts") {
  const slm::testing::TemporaryFolder temporary;
  const std::string name = "größe-模型.txt";
  const auto folder = temporary.path() / path_of("модель");
  std::filesystem::create_directories(folder);
  const auto file = folder / path_of(name);
  slm::write_text_file(file, "old");
  slm::write_text_file(file, std::string(70000, 'x') + "end");  // replaces the file, and has more than one page

  std::error_code failure;
  CHECK(slm::names_in(folder, failure) == std::vector<std::string>{name});
  CHECK(!failure);
  CHECK(file.filename().string() == name);
  CHECK(slm::first_bytes(file, 3) == "xxx");
  for (const bool mapped : {true, false}) {
    slm::set_file_mapping(mapped);
    const slm::MappedFile content(file);
    CHECK(content.bytes().size() == 70003);
    CHECK(content.text().ends_with("xend"));
    content.check_unchanged();
  }
  slm::set_file_mapping(true);
  slm::remove_tree(folder);
  CHECK(!slm::file_exists(folder));
}

TEST_CASE("a missing folder is a failure") {
  const slm::testing::TemporaryFolder temporary;
  std::error_code failure;
  CHECK(slm::names_in(temporary.path() / "missing", failure).empty());
  CHECK(failure);
}

}  // namespace
