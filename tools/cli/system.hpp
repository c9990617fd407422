// Functions of the operating system for the program: arguments, terminals, and signals that end it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace cli {

/// Call once, first. Returns the arguments as UTF-8. Writing to a closed pipe then fails like any other write, and
/// standard streams carry bytes as they are.
std::vector<std::string> begin_process(int count, char** arguments);

/// Whether the stream, such as stdin, is a terminal.
bool is_terminal(std::FILE* stream);

/// Opens a file of any kind to read bytes; null: it cannot be opened.
std::FILE* open_to_read(const std::filesystem::path& path);

/// The file of this program; empty: unknown.
std::filesystem::path program_path();

/// The name of this machine.
std::string host_name();

/// Anonymous memory of the program in bytes; 0: unknown. Pages of mapped files do not count, since the system can
/// reclaim them.
std::size_t anonymous_bytes();

/// Holds back the signals that ask the program to end, of this thread and of those that it starts, while it lives: wait
/// for them here.
class EndSignals {
 public:
  EndSignals();
  ~EndSignals();
  void wait() const;
  /// Whether a signal arrives within this time.
  bool comes_within(std::chrono::milliseconds time) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cli
