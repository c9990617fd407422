// Limits of grammars: every text, pattern and schema comes from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slm/core/error.hpp"
#include "slm/core/os/thread_time.hpp"

namespace slm { inline namespace v0_1 {

struct GrammarLimits {
  std::size_t text = std::size_t{1} << 20;     // bytes of a schema, pattern or grammar
  int nesting = 256;                           // levels of JSON values and of groups
  std::uint32_t count = 1'000'000;             // largest number in {m,n}, maxItems, maxLength
  std::size_t states = 400'000;                // expressions of one automaton
  std::size_t memory = std::size_t{64} << 20;  // bytes of one automaton; cached masks: half as much
  std::size_t alternatives = 10'000;           // terms of one expression
  double compile_seconds = 1;                  // of processor time
  double mask_seconds = 0.05;                  // of one mask, and of 64 bytes of a text
};

namespace grammar {

[[noreturn]] inline void fail_limit(std::string_view what) {
  throw Error("grammar.limit", text("the grammar exceeds a limit: ", what),
              "Simplify it, or raise the limit in GrammarLimits");
}

/// A limit of the thread's processor time, from the first check on. The clock is read at every 256th check.
class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(double seconds) : limited_(true), seconds_(seconds) {}

  void check() {
    if (!limited_ || (calls_++ & 255) != 0) return;
    const double now = detail::thread_seconds();
    if (calls_ == 1) end_ = now + seconds_;
    if (now > end_) fail_limit("time");
  }

 private:
  bool limited_ = false;
  std::uint64_t calls_ = 0;
  double seconds_ = 0, end_ = 0;
};

}  // namespace grammar

}}
