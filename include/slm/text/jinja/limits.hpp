// Limits of a template, and how it fails.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 {

/// A chat template that does not compile, or fails while it renders. what() names line, column and construct.
class TemplateError : public Error {
 public:
  enum class Kind { syntax, runtime, raised, limit };

  TemplateError(Kind kind, std::string_view id, const std::string& sentence, std::string_view next_step, int line,
                int column, std::string reason)
      : Error(id, sentence, next_step), kind_(kind), line_(line), column_(column), reason_(std::move(reason)) {}

  Kind kind() const { return kind_; }
  int line() const { return line_; }      // of the template, from 1
  int column() const { return column_; }  // in characters, from 1

  /// The fault; for Kind::raised the message that the template passed to raise_exception.
  const std::string& reason() const { return reason_; }

 private:
  Kind kind_;
  int line_, column_;
  std::string reason_;
};

namespace jinja {

/// Bounds of one template and of one rendering. A step is the evaluation of one part of the template. Work that grows
/// with the size of values takes more: one step for 16 copied bytes or two list items, four for a new string. The
/// defaults end a template that has little data within 50 ms, and the largest budget of steps within 0.5 s.
struct Limits {
  std::size_t source = std::size_t{128} << 10;  // bytes of the template
  std::size_t nodes = 200'000;                  // parts of its syntax tree
  std::size_t text = std::size_t{64} << 20;     // bytes of the output and of each string
  std::size_t memory = std::size_t{256} << 20;  // bytes of all values that a rendering holds
  std::uint64_t steps = 1'000'000;              // of evaluation, about 20 ns each,
  std::uint64_t steps_per_byte = 128;           // more for each byte of the variables, as conversations may be long,
  std::uint64_t most_steps = 20'000'000;        // upper bound of both together
  int nesting = 200;                            // of expressions and blocks in the source, and of values
  int calls = 200;                              // of macros and recursive loops inside each other
  int frames = 1000;                            // of expressions and blocks under evaluation, over all calls
  std::size_t stack = 640 * 1024;               // bytes of the thread's stack, for builds with large frames
  std::int64_t range = 100'000;                 // items of a range
  std::int64_t width = 10'000;                  // of a formatted value, and its precision
  std::chrono::milliseconds time{2000};
};

/// A failure before its place in the template is known.
struct Fault {
  TemplateError::Kind kind;
  std::string message;
};

/// Measures how much of the thread's stack is in use since it was made.
class StackGuard {
 public:
  explicit StackGuard(const Limits& limits) : most_(limits.stack) {}

  bool is_used_up() const {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    return (here > begin_ ? here - begin_ : begin_ - here) > most_;
  }

 private:
  std::uintptr_t begin_ = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  std::size_t most_;
};

[[noreturn]] inline void fail(std::string message) { throw Fault{TemplateError::Kind::runtime, std::move(message)}; }
[[noreturn]] inline void fail_limit(std::string message) {
  throw Fault{TemplateError::Kind::limit, std::move(message)};
}

}
}}
