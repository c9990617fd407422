// SIGINT and SIGTERM request the run's end. A second signal ends the program.
#pragma once

#include <csignal>

namespace slm::bench::speculative {

class InterruptGuard {
 public:
  InterruptGuard() {
    asked_ = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { asked_ = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &interrupt_before_);
    sigaction(SIGTERM, &action, &terminate_before_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard() {
    sigaction(SIGINT, &interrupt_before_, nullptr);
    sigaction(SIGTERM, &terminate_before_, nullptr);
  }

  static bool asked() { return asked_ != 0; }

 private:
  static inline volatile std::sig_atomic_t asked_ = 0;
  struct sigaction interrupt_before_ = {}, terminate_before_ = {};
};

}  // namespace slm::bench::speculative
