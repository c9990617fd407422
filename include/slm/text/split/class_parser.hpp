// Reads escapes and classes of a split pattern: \p{L}, [^\s\p{L}], [\p{L}&&[^\p{Han}]].
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/split/syntax.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace split {

/// The text of a pattern while it is read.
class Cursor {
 public:
  explicit Cursor(const PatternErrors& errors) : errors_(errors), text_(errors.pattern) {}

  std::size_t position() const { return position_; }
  bool done() const { return position_ == text_.size(); }
  bool sees(std::string_view expected) const { return text_.substr(position_).starts_with(expected); }
  std::string_view rest() const { return text_.substr(position_); }

  bool take(std::string_view expected) {
    if (!sees(expected)) return false;
    position_ += expected.size();
    return true;
  }

  char32_t next(std::string_view wanted) {
    if (done()) errors_.at(position_, text("the pattern ends, expected ", wanted));
    return utf8::next(text_, position_);
  }

  void skip(std::size_t bytes) { position_ += bytes; }

  [[noreturn]] void fail(std::string_view what) const { errors_.at(position_, what); }
  [[noreturn]] void fail_at(std::size_t position, std::string_view what) const { errors_.at(position, what); }

 private:
  const PatternErrors& errors_;
  std::string_view text_;
  std::size_t position_ = 0;
};

/// The meaning of an escape or of an element of a class: one character, or a set.
struct ClassItem {
  std::optional<char32_t> code;
  CharSet set;
};

class ClassParser {
 public:
  explicit ClassParser(Cursor& cursor) : cursor_(cursor) {}

  /// An escape that stands for characters; the cursor is behind the backslash.
  ClassItem escape(bool in_class) {
    const std::size_t begin = cursor_.position() - 1;
    const char32_t letter = cursor_.next("a character behind the backslash");
    switch (letter) {
      case 'n': return character('\n');
      case 'r': return character('\r');
      case 't': return character('\t');
      case 'f': return character('\f');
      case 'v': return character('\v');
      case 'a': return character('\a');
      case 'e': return character(0x1B);
      case 's': return set(space_set(), false);
      case 'S': return set(space_set(), true);
      case 'd': return set(category_set("Nd"), false);
      case 'D': return set(category_set("Nd"), true);
      case 'w': return set(in_class ? word_set() : plain_word_set(), false);
      case 'W': return set(in_class ? word_set() : plain_word_set(), true);
      case 'h': return set(hex_set(), false);
      case 'H': return set(hex_set(), true);
      case 'p': return property(false);
      case 'P': return property(true);
      case 'x': return character(cursor_.take("{") ? hex(1, 8, "}") : hex(1, 2, ""));
      case 'u': return character(hex(4, 4, ""));
      default: break;
    }
    if (in_class && letter == 'b') return character('\b');
    const bool is_name = letter == '_' || (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                         (letter >= 'A' && letter <= 'Z');
    if (is_name) cursor_.fail_at(begin, "this escape is not supported");
    return character(letter);
  }

  /// A class; the cursor is behind its '['. Case folds in the whole of it, before it is negated; not in its parts.
  CharSet parse(bool ignore_case, int depth) {
    const std::size_t begin = cursor_.position() - 1;
    if (depth > deepest_nesting) cursor_.fail_at(begin, text("nested more than ", deepest_nesting, " deep"));
    const bool negative = cursor_.take("^");
    std::optional<CharSet> common;  // of the operands of && before this one
    CharSet operand;
    std::vector<CharSet::Range> ranges;
    const auto end_operand = [&] {
      operand = operand.united(CharSet(std::exchange(ranges, {})));
      common = common ? common->intersected(operand) : operand;
      operand = CharSet();
    };
    for (bool first = true;; first = false) {
      if (cursor_.done()) cursor_.fail_at(begin, "this class has no end");
      if (first && cursor_.sees("]") && cursor_.rest().find(']', 1) == std::string_view::npos) {
        cursor_.fail_at(begin, "this class is empty");
      }
      if (!first && cursor_.take("]")) break;
      if (cursor_.take("&&")) {
        end_operand();
        continue;
      }
      const std::size_t place = cursor_.position();
      const ClassItem item = this->item(depth);
      const bool range = cursor_.sees("-") && !cursor_.sees("-]");
      if (!item.code) {
        if (range) cursor_.fail("a range must begin with a character");
        operand = operand.united(item.set);
      } else if (range) {
        cursor_.take("-");
        const ClassItem last = this->item(depth);
        if (!last.code) cursor_.fail_at(place, "a range must end with a character");
        if (*last.code < *item.code) cursor_.fail_at(place, "this range is empty");
        ranges.push_back({*item.code, *last.code});
      } else {
        ranges.push_back({*item.code, *item.code});
      }
    }
    end_operand();
    if (ignore_case) common = folded_set(*common);
    return negative ? common->complement() : *common;
  }

 private:
  static ClassItem character(char32_t code) { return {code, {}}; }
  static ClassItem set(CharSet set, bool negative) {
    return {std::nullopt, negative ? set.complement() : std::move(set)};
  }

  ClassItem item(int depth) {
    if (cursor_.sees("[:")) return posix();
    if (cursor_.take("[")) return set(parse(false, depth + 1), false);
    if (cursor_.take("\\")) return escape(true);
    return character(cursor_.next("the end of the class"));
  }

  /// [:space:] and the like.
  ClassItem posix() {
    const std::size_t begin = cursor_.position();
    cursor_.take("[:");
    const bool negative = cursor_.take("^");
    if (cursor_.take("space:]")) return set(space_set(), negative);
    if (cursor_.take("digit:]")) return set(category_set("Nd"), negative);
    if (cursor_.take("word:]")) return set(word_set(), negative);
    if (cursor_.take("punct:]")) return set(punctuation_set(), negative);
    if (cursor_.take("xdigit:]")) return set(hex_set(), negative);
    cursor_.fail_at(begin, "this POSIX class is not supported");
  }

  /// {name} or {^name}, or one letter.
  ClassItem property(bool negative) {
    const std::size_t begin = cursor_.position() - 2;
    std::string_view name = cursor_.rest().substr(0, 1);
    if (cursor_.take("{")) {
      if (cursor_.take("^")) negative = !negative;
      name = cursor_.rest().substr(0, cursor_.rest().find('}'));
      if (name.size() == cursor_.rest().size()) cursor_.fail_at(begin, "this property has no end");
      cursor_.skip(name.size());
      cursor_.take("}");
    } else {
      cursor_.skip(name.size());
    }
    const auto found = property_set(name);
    if (!found) cursor_.fail_at(begin, "this property is no general category and no script");
    return set(*found, negative);
  }

  char32_t hex(int least, int most, std::string_view end) {
    const std::size_t begin = cursor_.position();
    char32_t code = 0;
    int digits = 0;
    for (; digits < most && !cursor_.done(); ++digits) {
      const char byte = cursor_.rest()[0];
      const bool decimal = byte >= '0' && byte <= '9', lower = byte >= 'a' && byte <= 'f';
      if (!decimal && !lower && !(byte >= 'A' && byte <= 'F')) break;
      code = code * 16 + static_cast<char32_t>(decimal ? byte - '0' : lower ? byte - 'a' + 10 : byte - 'A' + 10);
      cursor_.skip(1);
    }
    const bool is_byte = most == 2 && code >= 0x80;  // a byte of UTF-8, not a character
    if (digits < least || !cursor_.take(end) || code > CharSet::last_code || is_byte) {
      cursor_.fail_at(begin, "expected the hexadecimal number of a character");
    }
    return code;
  }

  Cursor& cursor_;
};

}}}
