// pass@1: the share of tasks whose test passes with the generated function.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/command/humaneval.hpp"
#include "bench/command/sandbox.hpp"

namespace slm::bench {

/// The rule that ends a completion. A model without a stop string continues after the function.
enum class Cut {
  published,  // as AMD's published script: even indentation, then cut at the first blank line
  function,   // up to the first line that begins a new statement at the margin
  none,       // no cut
};

std::string cut_completion(const std::string& completion, Cut cut);

struct Sample {
  std::string task_id, completion;  // what follows the task's prompt
};

/// Reads a file of {"task_id": ..., "completion": ...} objects, one per line.
std::vector<Sample> read_samples(const std::filesystem::path& path);

struct PassAt1 {
  double rate = 0;  // mean over the attempted tasks of the share of passing samples
  int attempted = 0;
  std::vector<std::string> without_sample;  // tasks
  std::vector<Verdict> verdicts;            // one for each sample, in order

  int count(Outcome outcome) const;
};

struct JudgingOptions {
  Cut cut = Cut::published;
  int jobs = 1;                            // programs that run at the same time
  std::function<void(double)> progress{};  // the finished share, 0 to 1; calls are serialized
};

PassAt1 pass_at_1(const Sandbox& sandbox, const std::vector<Task>& tasks, const std::vector<Sample>& samples,
                  const JudgingOptions& options);

}  // namespace slm::bench
