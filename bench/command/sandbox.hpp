// Runs a Python function that a model wrote, and asks a test about it, where neither can reach anything else: between
// the walls of bubblewrap, with no network, no other processes or threads, no environment, limits of processor time,
// time, memory and file size, and nothing to write to but a small folder in memory that vanishes with them. Program
// and test are two processes, so that a program passes by being right only. sandbox.py does it; docs/benchmarks.md
// tells what keeps what.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/io/json.hpp"

namespace slm::bench {

struct Program {
  std::string source;       // defines the function
  std::string entry_point;  // its name
  std::string helpers;      // what the test may use besides: it runs beside the test, not beside the program
  std::string test;         // defines check(candidate), which raises when the function is wrong
};

enum class Outcome { passed, failed, timed_out, out_of_memory, crashed };

constexpr std::string_view name_of(Outcome outcome) {
  constexpr std::string_view names[] = {"passed", "failed", "timed out", "out of memory", "crashed"};
  return names[static_cast<int>(outcome)];
}

struct Verdict {
  Outcome outcome;
  std::string detail;  // the last line of the error; nothing when passed
  double seconds;
};

struct SandboxOptions {
  std::string python = "python3";
  int processor_seconds = 3;
  int seconds = 20;                                 // by the clock, so that a busy machine does not decide
  std::size_t memory_bytes = std::size_t{1} << 30;  // address space of each of the two processes
  std::size_t folder_bytes = std::size_t{16} << 20;
};

class Sandbox {
 public:
  /// Finds Python and bubblewrap, and runs a program in the sandbox to see that it holds here. Throws
  /// sandbox.no-python, sandbox.no-bubblewrap, sandbox.unavailable, sandbox.broken.
  explicit Sandbox(const SandboxOptions& options);

  /// May be called by several threads at once. Throws sandbox.no-process, child.*.
  Verdict run(const Program& program) const;

  /// What keeps programs in, for reports.
  const std::string& layers() const { return layers_; }
  const std::string& python_version() const { return python_version_; }

 private:
  Json ask(Json request) const;

  SandboxOptions options_;
  Json walls_;
  std::string python_version_, layers_;
};

}  // namespace slm::bench
