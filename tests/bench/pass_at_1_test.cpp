// pass@1: the end of a completion, the counts, and the published solutions.
#include "bench/command/pass_at_1.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include "slm/core/error.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

namespace {

using namespace slm::bench;
using slm::testing::error_id;

std::vector<Task> own_tasks() { return read_humaneval(slm::testing::fixture("humaneval/tasks.jsonl")); }

std::vector<Sample> solutions(const std::vector<Task>& tasks) {
  std::vector<Sample> samples;
  for (const Task& task : tasks) samples.push_back({task.id, task.canonical_solution});
  return samples;
}

TEST_CASE("the published cut evens indentation, then cuts at the first blank line") {
  const auto cut = [](const std::string& text) { return cut_completion(text, Cut::published); };
  CHECK(cut("    return 1\n\nprint(2)\n") == "    return 1");
  CHECK(cut("   return 1\n") == "    return 1\n");
  CHECK(cut("\n\n  a\n   b\n     c\n\n\nd") == "  a\n    b\n      c");
  CHECK(cut("  a\n \n  b") == "  a\n  \n  b");  // a line of spaces is not blank
  CHECK(cut("") == "");
  CHECK(cut("\n\n\n") == "");
  CHECK(cut(" ") == "  ");
  CHECK(cut("\ta\n\t b") == "\ta\n\t b");  // tabs are unchanged
}

TEST_CASE("the function's end is the next statement at the left margin") {
  const auto cut = [](const std::string& text) { return cut_completion(text, Cut::function); };
  CHECK(cut("    a = 1\n\n    return a\n\n\ndef other():\n    pass\n") == "    a = 1\n\n    return a\n\n\n");
  CHECK(cut("    return [\n]\nprint(1)") == "    return [\n]\n");
  CHECK(cut("    return 1\n# more") == "    return 1\n");
  CHECK(cut("    return 1") == "    return 1");
  CHECK(cut("") == "");
  CHECK(cut_completion("    return 1\n\nprint(2)\n", Cut::none) == "    return 1\n\nprint(2)\n");
}

TEST_CASE("the error of a broken file of samples states the position") {
  const slm::testing::TemporaryFolder folder;
  const auto id_of = [&](const std::string& content) {
    return error_id([&] { read_samples(folder.write("samples", content)); });
  };
  CHECK(id_of("{\"task_id\": \"a\", \"completion\": \"  x\"}\n") == "no error");
  CHECK(id_of("") == "bench.no-samples");
  CHECK(id_of("{\"task_id\": \"a\"}\n") == "bench.missing-field");
  CHECK(id_of("{\"task_id\": \"a\", \"completion\": [\"x\"]}\n") == "bench.wrong-type");
  CHECK(id_of("{\"task_id\": \"a\", \"compl") == "json.malformed");
}

/// Runs several programs at the same time; null if this system has no sandbox.
const Sandbox* sandbox() {
  static const auto made = []() -> std::unique_ptr<Sandbox> {
    try {
      return std::make_unique<Sandbox>(SandboxOptions{.processor_seconds = 20, .seconds = 60});
    } catch (const slm::Error& error) {
      WARN("SKIPPED: " << error.what());
      return nullptr;
    }
  }();
  return made.get();
}

TEST_CASE("correct solutions pass; wrong or missing ones do not") {
  if (sandbox() == nullptr) return;
  const std::vector<Task> tasks = own_tasks();
  REQUIRE(tasks.size() == 3);
  std::vector<Sample> samples = solutions(tasks);
  double last = 0;
  const JudgingOptions options{.cut = Cut::function, .jobs = 2, .progress = [&last](double share) { last = share; }};
  PassAt1 result = pass_at_1(*sandbox(), tasks, samples, options);
  CHECK(result.rate == 1);
  CHECK(result.attempted == 3);
  CHECK(result.without_sample.empty());
  CHECK(result.count(Outcome::passed) == 3);
  CHECK(last == 1);

  samples = {{"own/0", "    return low\n"}, {"own/0", tasks[0].canonical_solution}, {"own/2", "    return runs\n"}};
  result = pass_at_1(*sandbox(), tasks, samples, options);
  CHECK(std::abs(result.rate - 0.25) < 1e-12);  // one half, and zero
  CHECK(result.attempted == 2);
  CHECK(result.without_sample == std::vector<std::string>{"own/1"});
  CHECK(result.verdicts[0].outcome == Outcome::failed);
  CHECK(result.verdicts[0].detail == "AssertionError: assert candidate(7, 0, 5) == 5");
  CHECK(result.verdicts[1].outcome == Outcome::passed);
  CHECK(result.verdicts[2].outcome == Outcome::failed);

  // the published cut ends the second solution at its first blank line
  result = pass_at_1(*sandbox(), tasks, solutions(tasks), {.cut = Cut::published});
  CHECK(result.verdicts[0].outcome == Outcome::passed);
  CHECK(result.verdicts[1].outcome == Outcome::failed);

  samples.push_back({"own/7", ""});
  CHECK(error_id([&] { pass_at_1(*sandbox(), tasks, samples, options); }) == "bench.unknown-task");
}

TEST_CASE("all canonical solutions of HumanEval pass, and bare prompts do not", "[long]") {
  const auto path = slm::testing::test_data("humaneval/HumanEval.jsonl.gz");
  SLM_SKIP_WITHOUT(path, "HumanEval");
  if (sandbox() == nullptr) return;
  const std::vector<Task> tasks = read_humaneval(path);
  const PassAt1 result = pass_at_1(*sandbox(), tasks, solutions(tasks), {.cut = Cut::none, .jobs = 2});
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    INFO(tasks[i].id << ": " << result.verdicts[i].detail);
    CHECK(result.verdicts[i].outcome == Outcome::passed);
  }
  CHECK(result.rate == 1);

  std::vector<Sample> bare;
  for (std::size_t i = 0; i < 20; ++i) bare.push_back({tasks[i].id, ""});
  CHECK(pass_at_1(*sandbox(), tasks, bare, {.jobs = 2}).count(Outcome::passed) == 0);
}

}  // namespace
