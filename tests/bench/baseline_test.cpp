// Baseline's child process: valid answers are accepted; all others are errors with a reason.
#include "bench/command/baseline/baseline.hpp"

#include <signal.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "bench/command/baseline/weights_digest.hpp"
#include "slm/core/error.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm::bench;
using slm::testing::error_id;

const std::string source_dir = slm::testing::source_path(".").string();

/// A Python script as the engine. The two snippets of code may change the dictionaries `about` and `answer`.
struct Fake : slm::testing::TemporaryFolder {
  std::string meet, reply;
  double seconds = 20;
  std::string python = "python3";

  std::string script() const {
    return write("engine.py", R"(
import json, os, signal, subprocess, sys, time
request = json.loads(sys.stdin.readline())
about = {"engine": "fake", "version": "1.2", "threads": request["threads"], "dtype": "float32",
         "speculation": "none of your business", "notes": ["says so"],
         "weights": {"target": "sha256:target", "draft": "sha256:draft"}}
)" + meet + R"(
print(json.dumps(about), flush=True)
for line in sys.stdin:
    task = json.loads(line)
    answer = {"new_ids": [7, 8, 9], "seconds": {"total": 0.5, "prompt": 0.25}}
    if task["kind"] == "speculative":
        answer.update(drafted=4, accepted=1, rounds=2)
)" + reply + R"(
    print(json.dumps(answer), flush=True)
)")
        .string();
  }

  Baseline start() const {
    return Baseline(script(), {.target = {path(), "sha256:target", 100},
                               .draft = MeasuredModel{path(), "sha256:draft", 100},
                               .threads = 3,
                               .context = 64,
                               .folder = path(),
                               .python = python,
                               .seconds = seconds});
  }

  /// The id and message of a task's error.
  std::pair<std::string, std::string> fault(const std::string& kind = "speculative") const {
    BaselineTask task{.prompt = {1, 2}, .end_tokens = {}, .sampling = {.max_new_tokens = 4}, .draft_length = {}};
    if (kind == "speculative") task.draft_length = "heuristic";
    try {
      start().run(task);
    } catch (const slm::Error& error) {
      return {error.id(), error.what()};
    }
    return {"no error", ""};
  }
};

TEST_CASE("a valid answer of an engine is accepted") {
  Fake fake;
  fake.reply =
      "    assert task['ids'] == [1, 2] and task['max_new_tokens'] == 4 and task['end_tokens'] == [5]\n"
      "    assert task['kind'] == 'plain' or task['draft_length'] == '3'\n"
      "    assert os.environ['OMP_NUM_THREADS'] == '3'\n"
      "    print('on standard error', file=sys.stderr)\n";
  Baseline baseline = fake.start();
  CHECK(baseline.engine().name == "fake");
  CHECK(baseline.engine().version == "1.2");
  CHECK(baseline.engine().dtype == "float32");
  CHECK(baseline.engine().threads == 3);
  CHECK(baseline.engine().speculation == "none of your business");
  CHECK(baseline.engine().notes == std::vector<std::string>{"says so"});

  BaselineTask task{.prompt = {1, 2}, .end_tokens = {5}, .sampling = {.max_new_tokens = 4}, .draft_length = {}};
  for (int i = 0; i < 3; ++i) {
    const BaselineAnswer plain = baseline.run(task);
    CHECK(plain.new_ids == std::vector<slm::Token>{7, 8, 9});
    CHECK(plain.total == 0.5);
    CHECK(plain.prompt == 0.25);
    CHECK(plain.rounds == 0);
  }
  task.draft_length = "3";
  const BaselineAnswer fast = baseline.run(task);
  CHECK(fast.drafted == 4);
  CHECK(fast.accepted == 1);
  CHECK(fast.rounds == 2);
}

TEST_CASE("an engine with other weights or another number of threads is rejected") {
  Fake fake;
  fake.meet = "about['weights']['draft'] = 'sha256:other'";
  auto [id, message] = fake.fault();
  CHECK(id == "baseline.other-weights");
  CHECK(message.find("sha256:other against sha256:draft") != message.npos);

  fake.meet = "about['weights']['target'] = 'sha256:other'";
  CHECK(fake.fault("plain").first == "baseline.other-weights");
  fake.meet = "del about['weights']['target']";
  CHECK(fake.fault("plain").first == "baseline.bad-answer");
  fake.meet = "about['threads'] = 4";
  CHECK(fake.fault("plain").first == "baseline.other-threads");
}

TEST_CASE("the error of an engine that ends contains its exit code and last output") {
  Fake fake;
  fake.meet = "print('one', file=sys.stderr); print('out\\x1b[31m of luck', file=sys.stderr); sys.exit(3)";
  auto [id, message] = fake.fault();
  CHECK(id == "child.ended");
  CHECK(message.find("exit code 3") != message.npos);
  CHECK(message.find(": out [31m of luck") != message.npos);

  fake.meet = "";
  fake.reply = "    os.kill(os.getpid(), signal.SIGSEGV)\n";
  CHECK(fake.fault().second.find("signal 11") != std::string::npos);
}

TEST_CASE("an engine that hangs is ended with its children") {
  Fake fake;
  fake.seconds = 2;
  fake.reply =
      "    sleeper = subprocess.Popen(['sleep', '1000'])\n"
      "    open('" +
      (fake.path() / "sleeper").string() +
      "', 'w').write(str(sleeper.pid))\n"
      "    signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)\n";
  CHECK(fake.fault().first == "child.timeout");
  int sleeper = 0;
  std::ifstream(fake.path() / "sleeper") >> sleeper;
  REQUIRE(sleeper > 1);
  // The new parent may reap it later; a dead process has an empty command line.
  const auto alive = [&] {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(sleeper) + "/cmdline"), line);
    return line.starts_with("sleep");
  };
  for (int i = 0; i < 100 && alive(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds{20});
  CHECK_FALSE(alive());
}

TEST_CASE("waiting for an engine that does not read respects the time limit") {
  Fake fake;
  fake.seconds = 2;
  fake.meet = "print(json.dumps(about), flush=True)\ntime.sleep(1000)";
  Baseline baseline = fake.start();
  const BaselineTask task{
      .prompt = std::vector<slm::Token>(4'000'000, 12345), .end_tokens = {}, .sampling = {}, .draft_length = {}};
  CHECK(error_id([&] { baseline.run(task); }) == "child.timeout");
}

TEST_CASE("invalid output is rejected") {
  Fake fake;
  for (const char* said :
       {"print('Loading weights: 100%')", "print('[1, 2]')", "print('')", "print('{\"engine\": 1}')",
        "os.write(1, b'\\xff\\xfe\\x00\\n')", "print('{' * 100000)", "about['version'] = None",
        "about['engine'] = 'slm'", "about['notes'] = [[]]", "about['speculation'] = 5", "about['weights'] = 'mine'"}) {
    CAPTURE(said);
    fake.meet = said;
    CHECK(fake.fault().first == "baseline.bad-answer");
  }
  fake.meet = "os.write(1, b'x' * (17 << 20)); time.sleep(1000)";
  CHECK(fake.fault().first == "child.long-line");
}

TEST_CASE("impossible figures are rejected") {
  Fake fake;
  for (const char* changed :
       {"answer['new_ids'] = []", "answer['new_ids'] = [1] * 5", "answer['new_ids'] = [100]",
        "answer['new_ids'] = [-1]", "answer['new_ids'] = [1.5]", "answer['new_ids'] = None", "del answer['seconds']",
        "answer['seconds']['total'] = -1", "answer['seconds']['total'] = float('inf')",
        "answer['seconds']['total'] = '1'", "answer['seconds']['prompt'] = 0.75", "answer['drafted'] = 0",
        "answer['accepted'] = 0", "answer['rounds'] = 1", "del answer['rounds']", "answer['rounds'] = 1e99"}) {
    CAPTURE(changed);
    fake.reply = std::string("    ") + changed + "\n";
    CHECK(fake.fault().first == "baseline.bad-answer");
  }
}

TEST_CASE("the error of an engine that cannot run contains its reason") {
  Fake fake;
  fake.meet = "about = {'error': \"ModuleNotFoundError: No module named 'fake'\"}";
  auto [id, message] = fake.fault();
  CHECK(id == "baseline.refused");
  CHECK(message.find("No module named 'fake'") != message.npos);
  fake.meet = "about = {'error': 5}";
  CHECK(fake.fault().first == "baseline.refused");
}

TEST_CASE("an engine that cannot be started is named") {
  Fake fake;
  fake.python = "/nowhere/python3";
  CHECK(fake.fault().first == "child.cannot-start");
  fake.python = "true";
  CHECK(fake.fault().first == "child.ended");
  for (const char* name : {"vllm", "nowhere.py", "", "/etc/passwd"}) {
    CAPTURE(name);
    CHECK(error_id([&] { Baseline(name, {.target = {}, .draft = {}, .folder = fake.path()}); }) == "baseline.unknown");
  }
}

TEST_CASE("two texts differ at their first different token") {
  CHECK_FALSE(first_differing_token({1, 2, 3}, {1, 2, 3}).has_value());
  CHECK(first_differing_token({1, 2, 3}, {1, 4, 3}) == 1u);
  CHECK(first_differing_token({1, 2}, {1, 2, 3}) == 2u);
  CHECK(first_differing_token({}, {1}) == 0u);
}

std::string sha256(std::string_view text, std::size_t piece = 1 << 20) {
  Sha256 hash;
  for (std::size_t i = 0; i < text.size(); i += piece) hash.update(text.substr(i, piece));
  return hash.finish();
}

TEST_CASE("SHA-256 gives the standard's examples for any chunks") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  for (const std::size_t piece : {1, 3, 63, 64, 65, 1000, 1 << 20}) {
    CHECK(sha256(million, piece) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  for (const std::size_t length : {55, 56, 63, 64, 119, 120}) {  // around the padding
    CHECK(sha256(std::string(length, 'x'), 7) == sha256(std::string(length, 'x')));
  }
}

std::string python_digest(const std::filesystem::path& folder) {
  const std::string command = "python3 '" + source_dir + "/bench/peers/peer.py' '" + folder.string() + "'";
  FILE* output = ::popen(command.c_str(), "r");
  std::array<char, 200> line{};
  const bool read = std::fgets(line.data(), line.size(), output) != nullptr;
  ::pclose(output);
  const std::string found = read ? line.data() : "";
  return found.substr(0, found.find('\n'));
}

TEST_CASE("the digest of weights is the same in C++ and in Python") {
  slm::testing::TemporaryFolder folder;
  const auto digest = [](const std::filesystem::path& model) { return weights_digest(slm::Checkpoint(model)); };
  slm::testing::write_random_checkpoint<float>(folder.path() / "one", slm::testing::tiny_shape, 1);
  slm::testing::write_random_checkpoint<float>(folder.path() / "same", slm::testing::tiny_shape, 1);
  slm::testing::write_random_checkpoint<float>(folder.path() / "other", slm::testing::tiny_shape, 2);
  slm::testing::write_random_checkpoint<slm::bfloat16_t>(folder.path() / "bf16", slm::testing::tiny_shape, 1);
  CHECK(digest(folder.path() / "one") == digest(folder.path() / "same"));
  CHECK(digest(folder.path() / "one") != digest(folder.path() / "other"));
  CHECK(digest(folder.path() / "one") != digest(folder.path() / "bf16"));
  for (const std::filesystem::path& model :
       {folder.path() / "one", folder.path() / "bf16", std::filesystem::path(source_dir) / "examples/demo_pair/target",
        std::filesystem::path(source_dir) / "tests/fixtures/models/llama-sharded-bf16"}) {
    CAPTURE(model);
    CHECK(python_digest(model) == digest(model));
  }
}

}  // namespace
