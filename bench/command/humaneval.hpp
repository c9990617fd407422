// HumanEval: Python functions to complete, each with a test. https://github.com/openai/human-eval, MIT; not included
// here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace slm::bench {

struct Task {
  std::string id;                  // "HumanEval/12"
  std::string prompt;              // imports, helpers, signature and docstring
  std::string entry_point;         // the function's name
  std::string canonical_solution;  // its body
  std::string test;                // defines check(candidate), which raises for a wrong function
};

/// Reads HumanEval.jsonl, HumanEval.jsonl.gz or a file of the same format. Tasks keep the file's order.
std::vector<Task> read_humaneval(const std::filesystem::path& path);

}  // namespace slm::bench
