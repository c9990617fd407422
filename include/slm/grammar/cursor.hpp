// Cursor: a position in a pattern or a grammar.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/grammar/limits.hpp"
#include "slm/text/split/char_set.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

using split::CharSet;

/// A position in a text. Public members: the elementary tests and moves of three parsers.
class Cursor {
 public:
  Cursor(std::string_view source, std::string place) : source_(source), place_(std::move(place)) {}

  void check_text(const GrammarLimits& limits) const {
    if (source_.size() > limits.text) fail_limit(text(place_, " has more than ", limits.text, " bytes"));
    const std::size_t valid = utf8::valid_prefix(source_);
    if (valid != source_.size()) fail_at(valid, "it is not UTF-8");
  }

  bool at_end() const { return position_ == source_.size(); }
  std::size_t position() const { return position_; }
  void move_to(std::size_t position) { position_ = position; }
  std::string_view since(std::size_t begin) const { return source_.substr(begin, position_ - begin); }
  char peek() const { return at_end() ? '\0' : source_[position_]; }
  bool looking_at(std::string_view word) const { return source_.substr(position_).starts_with(word); }
  void skip(std::size_t bytes) { position_ = std::min(position_ + bytes, source_.size()); }
  bool take(char wanted) {
    if (at_end() || source_[position_] != wanted) return false;
    ++position_;
    return true;
  }
  char32_t character() {
    if (at_end()) fail("it ends too early");
    return utf8::next(source_, position_);
  }

  std::uint32_t count(const GrammarLimits& limits) {
    std::uint64_t number = 0;
    const std::size_t begin = position_;
    for (; peek() >= '0' && peek() <= '9'; ++position_) {
      number = number * 10 + static_cast<unsigned>(peek() - '0');
      if (number > limits.count) fail_at(begin, text("a count is above ", limits.count), "grammar.limit");
    }
    if (position_ == begin) fail("expected a count");
    return static_cast<std::uint32_t>(number);
  }

  /// Hexadecimal digits: exactly `digits`, or up to the closing brace.
  char32_t hex(std::size_t digits) {
    const std::size_t begin = position_;
    char32_t code = 0;
    for (std::size_t read = 0; digits == 0 ? !take('}') : read < digits; ++read) {
      const char digit = peek();
      const bool decimal = digit >= '0' && digit <= '9';
      const char lower = static_cast<char>(digit | 0x20);
      if (at_end() || (!decimal && (lower < 'a' || lower > 'f')) || code > CharSet::last_code) {
        fail_at(begin, "expected hexadecimal digits");
      }
      code = code * 16 + static_cast<char32_t>(decimal ? digit - '0' : lower - 'a' + 10);
      ++position_;
    }
    if (code > CharSet::last_code || position_ == begin + 1) {
      fail_at(begin, "expected the hexadecimal digits of a code point");
    }
    return code;
  }

  std::string_view name(char closing) {
    const std::size_t begin = position_, end = source_.find(closing, begin);
    if (end == source_.npos || end == begin) fail("a name without an end");
    position_ = end + 1;
    return source_.substr(begin, end - begin);
  }

  [[noreturn]] void fail(std::string_view sentence, std::string_view id = "grammar.syntax") const {
    fail_at(position_, sentence, id);
  }
  [[noreturn]] void fail_at(std::size_t position, std::string_view sentence,
                            std::string_view id = "grammar.syntax") const {
    throw Error(id, text(place_, ", byte ", position, ": ", sentence), "Correct it; docs/structured.md has the syntax");
  }

 private:
  std::string_view source_;
  std::string place_;
  std::size_t position_ = 0;
};

}}}
