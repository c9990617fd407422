// The reader of HumanEval: its results, and its errors for damaged files.
#include "bench/command/humaneval.hpp"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <random>

#include "bench/command/json_lines.hpp"
#include "slm/core/error.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm::bench;
using slm::testing::error_id;

std::string line_of(const std::string& id, const std::string& entry_point = "twice") {
  return slm::Json{{"task_id", id},
                   {"prompt", "def twice(x):\n    \"\"\" Twice \xC3\xA9. \"\"\"\n"},
                   {"entry_point", entry_point},
                   {"canonical_solution", "    return 2 * x\n"},
                   {"test", "def check(candidate):\n    assert candidate(2) == 4\n"}}
             .dump() +
         "\n";
}

std::string gzipped(const std::string& content) {
  std::string out(compressBound(content.size()) + 64, '\0');
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct Folder : slm::testing::TemporaryFolder {
  std::string id_of(const std::string& content) const {
    return error_id([&] { read_humaneval(write("tasks", content)); });
  }
};

TEST_CASE("tasks have the file's order, plain or gzipped") {
  Folder folder;
  const std::string content = line_of("HumanEval/1") + "\r\n\n" + line_of("HumanEval/0");
  for (const std::string& bytes :
       {content, gzipped(content), gzipped(line_of("HumanEval/1")) + gzipped(line_of("HumanEval/0"))}) {
    const std::vector<Task> tasks = read_humaneval(folder.write("tasks", bytes));
    REQUIRE(tasks.size() == 2);
    CHECK(tasks[0].id == "HumanEval/1");
    CHECK(tasks[1].id == "HumanEval/0");
    CHECK(tasks[0].entry_point == "twice");
    CHECK(tasks[0].prompt == "def twice(x):\n    \"\"\" Twice \xC3\xA9. \"\"\"\n");
    CHECK(tasks[0].canonical_solution == "    return 2 * x\n");
    CHECK(tasks[0].test == "def check(candidate):\n    assert candidate(2) == 4\n");
  }
}

TEST_CASE("the error of a broken file states the position") {
  Folder folder;
  const std::string good = line_of("a/0");
  CHECK(folder.id_of("") == "bench.no-tasks");
  CHECK(folder.id_of("\n \n") == "bench.no-tasks");
  CHECK(folder.id_of(good + good) == "bench.duplicate-task");
  CHECK(folder.id_of(good + "{\"task_id\": \"a/1\"}\n") == "bench.missing-field");
  CHECK(folder.id_of("{\"task_id\": 7}\n") == "bench.wrong-type");
  CHECK(folder.id_of("[1]\n") == "json.not-an-object");
  CHECK(folder.id_of(good.substr(0, good.size() / 2)) == "json.malformed");
  CHECK(folder.id_of(good + "<html>") == "json.malformed");
  CHECK(folder.id_of("{\"task_id\": \"\xFF\"}") == "json.malformed");
  CHECK(folder.id_of("{\"task_id\": \"a\", \"task_id\": \"b\"}") == "json.duplicate-name");
  CHECK(folder.id_of(line_of("a/0", "two words")) == "bench.bad-entry-point");
  CHECK(folder.id_of(line_of("a/0", "")) == "bench.bad-entry-point");
  CHECK(folder.id_of("{\"task_id\": \"" + std::string(1 << 20, 'x') + "\"}") == "bench.too-large");
  CHECK(folder.id_of(std::string(100000, '[')) == "json.too-deep");
  CHECK(error_id([&] { read_humaneval(folder.path()); }) == "bench.unreadable-lines");
  CHECK(error_id([&] { read_humaneval(folder.path() / "absent"); }) == "bench.unreadable-lines");
  CHECK(error_id([&] { read_humaneval("/dev/zero"); }) == "bench.unreadable-lines");
  const auto path = folder.write("tasks", good + "\n" + line_of("a/1") + "{\n");
  CHECK_THROWS_WITH(read_humaneval(path), Catch::Contains("tasks:4"));
}

TEST_CASE("a damaged archive or a decompression bomb is an error") {
  Folder folder;
  const std::string archive = gzipped(line_of("a/0"));
  CHECK(folder.id_of(archive.substr(0, archive.size() - 5)) == "bench.unreadable-lines");
  std::string flipped = archive;
  flipped[flipped.size() - 6] ^= 1;  // the checksum
  CHECK(folder.id_of(flipped) == "bench.unreadable-lines");
  CHECK(folder.id_of(gzipped(std::string(std::size_t{65} << 20, '\n'))) == "bench.too-large");
}

TEST_CASE("damaged files cause errors only") {
  Folder folder;
  std::mt19937 random(7);
  const std::string plain = line_of("a/0") + line_of("a/1");
  for (const std::string& sound : {plain, gzipped(plain)}) {
    for (int round = 0; round < 500; ++round) {
      std::string bytes = sound;
      for (unsigned change = random() % 4 + 1; change > 0 && !bytes.empty(); --change) {
        const std::size_t place = random() % bytes.size();
        switch (random() % 4) {
          case 0: bytes[place] = static_cast<char>(random()); break;
          case 1: bytes.resize(place); break;
          case 2: bytes.insert(place, bytes.substr(random() % bytes.size(), random() % 40)); break;
          default: bytes.erase(place, random() % 8);
        }
      }
      const auto path = folder.write("tasks", bytes);
      try {
        for (const Task& task : read_humaneval(path)) REQUIRE(!task.entry_point.empty());
      } catch (const slm::Error& error) {
        REQUIRE(!error.id().empty());
      }
    }
  }
}

TEST_CASE("the published file has 164 tasks") {
  const auto path = slm::testing::test_data("humaneval/HumanEval.jsonl.gz");
  SLM_SKIP_WITHOUT(path, "HumanEval");
  const std::vector<Task> tasks = read_humaneval(path);
  REQUIRE(tasks.size() == 164);
  CHECK(tasks.front().id == "HumanEval/0");
  CHECK(tasks.front().entry_point == "has_close_elements");
  CHECK(tasks.back().id == "HumanEval/163");
}

}  // namespace
