// Quantization with each allocation failing in turn, in any thread: it ends in bad_alloc or Error, and a later run
// writes the same as one without a failure.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "slm/quantize.hpp"
#include "support/allocations.hpp"
#include "support/temporary.hpp"
#include "support/tiny_models.hpp"

using namespace slm;
using namespace slm::testing;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> contents(const fs::path& path) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    files[file.filename().string()] = {std::istreambuf_iterator<char>(stream), {}};
  };
  if (!fs::is_directory(path)) return add(path), files;
  for (const auto& entry : fs::directory_iterator(path)) add(entry.path());
  return files;
}

/// Runs write(output) with every stride-th allocation failing in turn. If it returns, the output is complete. A run
/// after a failed one writes the same, which is checked after every tenth.
template <class Write>
void check_writes(const fs::path& folder, Write write, Failing whose, long stride = 1) {
  const fs::path output = folder / "output.gguf";
  write(output);
  const auto expected = contents(output);
  int wrong = 0, failed = 0;
  fail_each_allocation(
      [&](Failure& failure) {
        fs::remove_all(output);
        if (!failure.spares([&] { write(output); })) {
          wrong += fs::exists(output) && contents(output) != expected;
          if (failed++ % 10 != 0) return;
          fs::remove_all(output);
          write(output);
        }
        wrong += contents(output) != expected;
        fs::remove_all(output.string() + ".partial");
      },
      whose, stride);
  CHECK(wrong == 0);
  if (whose == Failing::here) CHECK(failed > 5);  // a busy processor may leave all work to this thread
  fs::remove_all(output);
  fs::remove_all(output.string() + ".partial");
}

}  // namespace

TEST_CASE("AWQ is written atomically, for any failing allocation") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1);
  quantize::Options options;
  options.search = false;
  options.int8_head = true;
  const backend::Cpu device(1);
  const auto write = [&](const fs::path& output) { quantize::quantize(model, output, {}, options, device); };
  check_writes(folder.path(), write, Failing::here);
}

TEST_CASE("AWQ with a search is written atomically, for any failing allocation in any thread") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1);
  const fs::path text = folder.write("text.txt", "thequickbrownfoxjumpsoverthelazydog");
  quantize::Options options;
  options.calibration = {.samples = 2, .sequence_length = 12};
  const backend::Cpu device(2);
  const auto write = [&](const fs::path& output) { quantize::quantize(model, output, text, options, device); };
  check_writes(folder.path(), write, Failing::here, 100);  // of 6400: most are those of one loop over candidates
  check_writes(folder.path(), write, Failing::elsewhere);
}

TEST_CASE("GGUF is written atomically, for any failing allocation in any thread") {
  const TemporaryFolder folder;
  const fs::path model = write_least_model(folder.path() / "model", 1);
  const fs::path bare = write_least_model(folder.path() / "bare", 1);
  fs::remove(bare / "tokenizer.json");  // which is compared with the folder's by many texts
  const fs::path text = folder.write("text.txt", "thequickbrownfoxjumpsoverthelazydog");
  quantize::GgufOptions options;
  options.type = DType::q8_0;
  check_writes(
      folder.path(), [&](const fs::path& output) { quantize::write_gguf(bare, output, options); }, Failing::here);
  const auto write = [&](const fs::path& output) { quantize::write_gguf(model, output, options); };
  options.type = DType::q4_0;
  options.threads = 2;
  options.calibration_text = text;
  options.calibration = {.samples = 2, .sequence_length = 12};
  check_writes(folder.path(), write, Failing::here, 2500);
  check_writes(folder.path(), write, Failing::elsewhere, 10);
}
