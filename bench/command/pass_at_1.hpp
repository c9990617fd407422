// pass@1: the share of tasks whose test the generated function passes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/command/humaneval.hpp"
#include "bench/command/sandbox.hpp"

namespace slm::bench {

/// Where a completion ends. A model that is not stopped goes on after the function.
enum class Cut {
  published,  // as the script of AMD's table does: indentation evened, then all up to the first blank line
  function,   // up to the first line that begins a new statement at the margin
  none,       // it is cut already
};

std::string cut_completion(const std::string& completion, Cut cut);

struct Sample {
  std::string task_id, completion;  // what follows the task's prompt
};

/// Reads a file of {"task_id": ..., "completion": ...}, one object a line.
std::vector<Sample> read_samples(const std::filesystem::path& path);

struct PassAt1 {
  double rate = 0;  // the mean, over the attempted tasks, of the share of its samples that pass
  int attempted = 0;
  std::vector<std::string> without_sample;  // tasks
  std::vector<Verdict> verdicts;            // one for each sample, in order

  int count(Outcome outcome) const;
};

struct JudgingOptions {
  Cut cut = Cut::published;
  int jobs = 1;                            // programs that run at once
  std::function<void(double)> progress{};  // the share that is done; never called by two threads at once
};

PassAt1 pass_at_1(const Sandbox& sandbox, const std::vector<Task>& tasks, const std::vector<Sample>& samples,
                  const JudgingOptions& options);

}  // namespace slm::bench
