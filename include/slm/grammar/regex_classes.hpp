// Parts of regular expressions that stand for one character: literals, escapes, classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/cursor.hpp"
#include "slm/text/split/char_set.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

using split::CharSet;

class RegexClasses {
 public:
  explicit RegexClasses(Cursor& cursor) : cursor_(cursor) {}

  /// A literal, an escape or a class.
  CharSet item() {
    if (cursor_.take('[')) return bracket();
    if (cursor_.take('\\')) return escape(false);
    return single(cursor_.character());
  }

 private:
  static CharSet single(char32_t code) { return CharSet({{code, code}}); }
  static CharSet digits() { return CharSet({{'0', '9'}}); }
  static CharSet word() { return CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }

  CharSet bracket() {
    const std::size_t begin = cursor_.position() - 1;
    const bool negative = cursor_.take('^');
    std::vector<CharSet::Range> ranges;
    const auto add = [&ranges](const CharSet& set) {
      ranges.insert(ranges.end(), set.ranges().begin(), set.ranges().end());
    };
    while (!cursor_.take(']')) {
      if (cursor_.at_end()) cursor_.fail_at(begin, "'[' without ']'");
      const std::size_t at = cursor_.position();
      const CharSet first = member();
      if (cursor_.peek() != '-' || cursor_.looking_at("-]") || !is_single(first)) {
        add(first);
        continue;
      }
      cursor_.skip(1);
      if (cursor_.at_end()) cursor_.fail_at(begin, "'[' without ']'");
      const CharSet last = member();
      if (!is_single(last)) {
        add(first), add(single('-')), add(last);
        continue;
      }
      const char32_t low = first.ranges()[0].first, high = last.ranges()[0].first;
      if (low > high) cursor_.fail_at(at, "a range goes from a higher to a lower character");
      ranges.push_back({low, high});
    }
    const CharSet set(std::move(ranges));
    return negative ? set.complement() : set;
  }

  static bool is_single(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  CharSet member() {
    if (cursor_.looking_at("[:")) cursor_.fail("classes such as [:alpha:] are not supported", "grammar.unsupported");
    if (cursor_.take('\\')) return escape(true);
    return single(cursor_.character());
  }

  CharSet escape(bool in_class) {
    const std::size_t begin = cursor_.position() - 1;
    const char32_t code = cursor_.character();
    switch (code) {
      case 'd': return digits();
      case 'D': return digits().complement();
      case 'w': return word();
      case 'W': return word().complement();
      case 's': return split::space_set();
      case 'S': return split::space_set().complement();
      case 't': return single('\t');
      case 'n': return single('\n');
      case 'r': return single('\r');
      case 'f': return single('\f');
      case 'v': return single('\v');
      case 'x': return single(cursor_.hex(cursor_.take('{') ? 0 : 2));
      case 'u': return single(unicode(begin));
      case 'p': return property(begin);
      case 'P': return property(begin).complement();
      case 'b':
        if (in_class) return single('\b');
        [[fallthrough]];
      case 'B': cursor_.fail_at(begin, "word boundaries are not supported", "grammar.unsupported");
      case 'k': cursor_.fail_at(begin, "back-references are not supported", "grammar.unsupported");
      case '0':
        if (cursor_.peek() < '0' || cursor_.peek() > '9') return single(0);
        [[fallthrough]];
      default: break;
    }
    if (code >= '0' && code <= '9') {
      cursor_.fail_at(begin, "back-references are not supported", "grammar.unsupported");
    }
    const bool letter = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
    if (letter || code < 0x20 || code >= 0x7F) cursor_.fail_at(begin, "this escape does not exist");
    return single(code);
  }

  /// Two halves of a surrogate pair are one character.
  char32_t unicode(std::size_t begin) {
    const bool braces = cursor_.take('{');
    const char32_t code = cursor_.hex(braces ? 0 : 4);
    if (code < 0xD800 || code > 0xDFFF) return code;
    if (!braces && code < 0xDC00 && cursor_.looking_at("\\u")) {
      cursor_.skip(2);
      const char32_t low = cursor_.hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    cursor_.fail_at(begin, "half of a surrogate pair is no character");
  }

  CharSet property(std::size_t begin) {
    std::string name;
    if (cursor_.take('{')) {
      name = cursor_.name('}');
    } else {
      utf8::append(name, cursor_.character());
    }
    for (const std::string_view prefix : {"Script=", "sc=", "General_Category=", "gc="}) {
      if (name.starts_with(prefix)) {
        name.erase(0, prefix.size());
        break;
      }
    }
    const bool negative = !name.empty() && name[0] == '^';
    if (negative) name.erase(0, 1);
    const auto found = split::property_set(name == "digit" ? "Nd" : name);
    if (!found) cursor_.fail_at(begin, "this property is neither a general category nor a script");
    return negative ? found->complement() : *found;
  }

  Cursor& cursor_;
};

}}}
