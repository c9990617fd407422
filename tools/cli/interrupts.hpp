// Ctrl-C while the program reads standard input.
#pragma once

#include <csignal>
#include <memory>
#include <string>

namespace cli {

/// Number of interrupts since the last question. A signal handler counts them.
extern volatile std::sig_atomic_t interrupts;

/// While it lives, Ctrl-C is counted instead of ending the program.
class InterruptGuard {
 public:
  /// Throws cli.no-pipe.
  InterruptGuard();
  ~InterruptGuard();

  /// Clears pending wake-ups.
  void drain() const;

  enum class Input { bytes, end, interrupt };
  /// Waits for standard input and appends what it has; an interrupt ends the wait. Throws cli.input-failed.
  Input read(std::string& held) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace cli
