#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "slm/io/checkpoint.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using slm::testing::error_id;
using slm::testing::TemporaryFolder;

namespace {

/// A file of this header and `data_bytes` bytes of data.
std::string file_of(const std::string& header, std::size_t data_bytes, std::uint64_t length) {
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}
std::string file_of(const std::string& header, std::size_t data_bytes) {
  return file_of(header, data_bytes, header.size());
}

Tensors parse(const std::string& file) {
  return parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "a.safetensors");
}

/// The id of the parser's Error; empty if the file is accepted.
std::string fault(const std::string& file) {
  try {
    parse(file);
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("a.safetensors"));
    return error.id();
  }
}

}  // namespace

TEST_CASE("tensors are found at the header's positions, with padding and metadata") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F16","shape":[0,5],"data_offsets":[4,4]}}   )";
  const std::string file = file_of(header, 16);
  const Tensors tensors = parse(file);
  REQUIRE(tensors.size() == 3);
  CHECK(tensors.at("b").shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors.at("b").bytes == reinterpret_cast<const std::byte*>(file.data()) + 8 + header.size() + 4);
  CHECK(tensors.at("a").elements() == 1);
  CHECK(tensors.at("e").elements() == 0);
}

TEST_CASE("every kind of damaged header is rejected with a separate error") {
  const auto entry = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  CHECK(fault("") == "safetensors.too-short");
  CHECK(fault("1234567") == "safetensors.too-short");
  CHECK(fault(file_of("{}", 0, std::uint64_t{1} << 63)) == "safetensors.header-length");
  CHECK(fault(file_of("{}", 0, ~std::uint64_t{0})) == "safetensors.header-length");
  CHECK(fault(file_of("{}", 0, 3)) == "safetensors.header-length");
  CHECK(fault(file_of("{\"w\":", 0)) == "json.malformed");
  CHECK(fault(file_of("[]", 0)) == "json.not-an-object");
  CHECK(fault(file_of("\xff\xfe{}", 0)) == "json.malformed");
  CHECK(fault(file_of(std::string(100000, '['), 0)) == "json.too-deep");
  CHECK(fault(file_of(R"({"w":1})", 0)) == "safetensors.bad-entry");
  CHECK(
      fault(file_of(
          R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4)) == "json.duplicate-name");
  CHECK(fault(file_of(entry(R"("dtype":"F99","shape":[1],"data_offsets":[0,4])"), 4)) == "safetensors.unknown-dtype");
  CHECK(fault(file_of(entry(R"("shape":[1],"data_offsets":[0,4])"), 4)) == "safetensors.unknown-dtype");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4)) == "safetensors.bad-shape");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4)) == "safetensors.bad-shape");
  CHECK(fault(file_of(entry(R"("dtype":"F32","data_offsets":[0,4])"), 4)) == "safetensors.bad-shape");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4])"), 4)) ==
        "safetensors.bad-shape");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,5])"), 5)) == "safetensors.bad-offsets");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4)) == "safetensors.bad-offsets");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 2)) ==
        "safetensors.bad-shape");  // truncated
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615])"),
                      8)) == "safetensors.bad-offsets");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), 4)) == "safetensors.bad-offsets");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), 8)) == "safetensors.hole");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 8)) == "safetensors.hole");
  CHECK(
      fault(file_of(
          R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12)) == "safetensors.overlap");
  CHECK(fault(file_of(entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), 4)).empty());
}

TEST_CASE("written files are read back, and data start at a multiple of eight") {
  const TemporaryFolder folder;
  const float values[] = {1, -2, 3};
  const Tensor tensor{.name = "layer.weight",
                      .dtype = DType::f32,
                      .shape = {3, 1},
                      .bytes = reinterpret_cast<const std::byte*>(values),
                      .size_bytes = 12};
  const auto path = folder.path() / "w.safetensors";
  write_safetensors(path, std::span(&tensor, 1));
  const Safetensors read(path);
  const Tensor& found = read.tensors.at("layer.weight");
  CHECK(found.shape == tensor.shape);
  CHECK(std::memcmp(found.bytes, values, 12) == 0);
  CHECK((found.bytes - read.file.bytes().data()) % 8 == 0);
  CHECK_FALSE(std::filesystem::exists(path.string() + ".partial"));
}

TEST_CASE("a failed write is an error without partial files") {
  const TemporaryFolder folder;
  const Tensor tensor{.name = "w", .dtype = DType::u8, .shape = {0}, .bytes = nullptr, .size_bytes = 0};
  CHECK_THROWS_WITH(write_safetensors(folder.path() / "no" / "such" / "w.safetensors", std::span(&tensor, 1)),
                    Catch::Contains("io.unwritable"));
  // A full disk: the temporary name links to /dev/full, where every write fails.
  const auto path = folder.path() / "full.safetensors";
  std::filesystem::create_symlink("/dev/full", path.string() + ".partial");
  CHECK_THROWS_WITH(write_safetensors(path, std::span(&tensor, 1)), Catch::Contains("free space"));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("files that cannot be mapped are named") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(MappedFile(folder.path() / "absent"),
                    Catch::Contains("absent") && Catch::Contains("io.unreadable"));
  CHECK_THROWS_WITH(MappedFile(folder.path()), Catch::Contains("not a regular file"));
  CHECK_THROWS_WITH(MappedFile(folder.write("empty", "")), Catch::Contains("it is empty"));
}

TEST_CASE("only regular files are read: a pipe or a device is rejected immediately, for every file of a model") {
  const TemporaryFolder folder;
  slm::testing::write_random_checkpoint<float>(folder.path(), slm::testing::tiny_shape, 1);
  folder.write("generation_config.json", "{}");
  folder.write("quant_config.json", "{}");
  folder.write("tokenizer.json", R"({"model": {"vocab": {"a": 0}, "merges": []}})");
  folder.write("tokenizer_config.json", "{}");
  const auto read_all = [&] {
    Checkpoint{folder.path()};
    read_vocabulary(folder.path());
    Tokenizer::from(folder.path());
  };
  CHECK(error_id(read_all) == "no error");
  for (const char* name : {"config.json", "generation_config.json", "quant_config.json", "model.safetensors",
                           "tokenizer.json", "tokenizer_config.json"}) {
    CAPTURE(name);
    const auto path = folder.path() / name, kept = folder.path() / "kept";
    std::filesystem::rename(path, kept);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK(error_id(read_all) == "io.unreadable");
    std::filesystem::remove(path);
    std::filesystem::create_symlink("/dev/zero", path);
    CHECK(error_id(read_all) == "io.unreadable");
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    CHECK(error_id(read_all) == "io.unreadable");
    std::filesystem::remove(path);
    std::filesystem::create_symlink(name, path);  // to itself
    CHECK(error_id(read_all) == "io.unreadable");
    std::filesystem::remove(path);
    std::filesystem::rename(kept, path);
  }
  CHECK(error_id(read_all) == "no error");
}

TEST_CASE("a path that is too long is an Error") {
  const std::filesystem::path longest(std::string(5000, 'a'));
  CHECK(error_id([&] { Checkpoint{longest}; }) == "io.unreadable");
  CHECK(error_id([&] { MappedFile{longest}; }) == "io.unreadable");
  CHECK(error_id([&] { read_vocabulary(longest); }) == "io.unreadable");
  CHECK(error_id([&] { Tokenizer::from(longest); }) == "io.unreadable");
  CHECK(error_id([&] { write_text_file(longest, "x"); }) == "io.unwritable");
  CHECK_FALSE(file_exists("/absent/file"));
  CHECK_FALSE(file_exists("/dev/null/file"));
}
