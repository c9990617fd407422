// Runs a generated Python function and its test in a sandbox of bubblewrap. It has no network, no other processes, no
// threads and no environment. Processor time, elapsed time, memory and file size are limited. The only writable folder
// is small, in memory, and removed afterwards. Program and test are two processes, so that a program cannot influence
// its verdict. sandbox.py implements it; docs/benchmarks.md describes the layers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/io/json.hpp"

namespace slm::bench {

struct Program {
  std::string source;       // defines the function
  std::string entry_point;  // its name
  std::string helpers;      // further definitions for the test; they run beside the test, not beside the program
  std::string test;         // defines check(candidate), which raises for a wrong function
};

enum class Outcome { passed, failed, timed_out, out_of_memory, crashed };

constexpr std::string_view name_of(Outcome outcome) {
  constexpr std::string_view names[] = {"passed", "failed", "timed out", "out of memory", "crashed"};
  return names[static_cast<int>(outcome)];
}

struct Verdict {
  Outcome outcome;
  std::string detail;  // the last line of the error; empty when passed
  double seconds;
};

struct SandboxOptions {
  std::string python = "python3";
  int processor_seconds = 3;
  int seconds = 20;  // elapsed time, generous, so that a busy machine does not change the verdict
  std::size_t memory_bytes = std::size_t{1} << 30;  // address space of each of the two processes
  std::size_t folder_bytes = std::size_t{16} << 20;
};

class Sandbox {
 public:
  /// Finds Python and bubblewrap, and runs a trial program in the sandbox. Throws sandbox.no-python,
  /// sandbox.no-bubblewrap, sandbox.unavailable, sandbox.broken.
  explicit Sandbox(const SandboxOptions& options);

  /// Thread-safe. Throws sandbox.no-process, child.*.
  Verdict run(const Program& program) const;

  /// The active layers of the sandbox, for reports.
  const std::string& layers() const { return layers_; }
  const std::string& python_version() const { return python_version_; }

 private:
  Json ask(Json request) const;

  SandboxOptions options_;
  Json walls_;
  std::string python_version_, layers_;
};

}  // namespace slm::bench
