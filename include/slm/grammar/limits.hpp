// Limits of grammars: every text, pattern and schema comes from outside.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

struct GrammarLimits {
  std::size_t text = std::size_t{1} << 20;     // bytes of a schema, pattern or grammar
  int nesting = 256;                           // levels of JSON values and of groups
  std::uint32_t count = 1'000'000;             // largest number in {m,n}, maxItems, maxLength
  std::size_t states = 400'000;                // expressions of one automaton
  std::size_t memory = std::size_t{64} << 20;  // bytes of one automaton with its cached masks
  std::size_t alternatives = 10'000;           // terms of one expression
  double compile_seconds = 1;
  double mask_seconds = 0.05;
};

namespace grammar {

[[noreturn]] inline void fail_limit(std::string_view what) {
  throw Error("grammar.limit", text("the grammar exceeds a limit: ", what),
              "Simplify it, or raise the limit in GrammarLimits");
}

/// A point in time by which work must end. The clock is read at every 256th call.
class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(double seconds)
      : limited_(true), end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(seconds))) {}

  void check() {
    if (limited_ && (++calls_ & 255) == 0 && Clock::now() > end_) fail_limit("time");
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;

  bool limited_ = false;
  unsigned calls_ = 0;
  Clock::time_point end_;
};

}  // namespace grammar

}}
