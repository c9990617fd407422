// Runs a Python function that a model wrote, and asks a test about it, where neither can reach anything else.
//
// Program and test are two processes. The program knows nothing but its own text and the arguments it is called with;
// the judge runs the test and calls the program through a pipe, with plain values only. So nothing a program does to
// its own interpreter (leaving early, printing a verdict, replacing builtins, an object that equals everything) makes
// it pass.
//
// Both run with no network, no other processes or threads, no privileges, an empty environment, no open files, limits
// of processor time, time, memory and file size, and nothing to write to but a small folder in memory that vanishes
// with them. docs/benchmarks.md tells which layer does what.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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
  /// Where the system grants no namespaces (most containers): be content with Landlock and seccomp. The program then
  /// sees which files exist, and has no folder to write to.
  bool accept_weaker = false;
  bool try_namespaces = true;  // false: as if the system granted none
};

class Sandbox {
 public:
  /// Finds Python, and runs a program in the sandbox to see that it holds here. Throws when a layer is missing.
  explicit Sandbox(const SandboxOptions& options);

  /// May be called by several threads at once.
  Verdict run(const Program& program) const;

  /// The layers in force, for reports.
  const std::string& layers() const { return layers_; }
  const std::string& python_version() const { return python_version_; }

 private:
  struct Run;
  Run run_in(const Program& program, int errors) const;
  void find_python();
  void see_that_it_works() const;

  SandboxOptions options_;
  std::string python_, python_version_, layers_;
  std::vector<std::string> readable_;  // the files Python needs: folders, and single files
  int landlock_ = 0;                   // the kernel's version of Landlock; 0: none
  bool namespaces_ = false;
};

}  // namespace slm::bench
