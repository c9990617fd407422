// Characters: sets of code points as expressions over the bytes of UTF-8, plain or as they are written inside of a JSON
// string.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/grammar/expressions.hpp"
#include "slm/text/split/char_set.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

using split::CharSet;

/// How a character becomes bytes.
enum class Spelling { utf8, json };

class Characters {
 public:
  explicit Characters(Expressions& expressions, Spelling spelling = Spelling::utf8)
      : expressions_(expressions), spelling_(spelling) {}

  Spelling spelling() const { return spelling_; }

  static CharSet all() { return CharSet({{0, CharSet::last_code}}); }

  Expression any() {
    if (any_ == nothing) {
      any_ = spelled(all());
      expressions_.set_characters(any_);
    }
    return any_;
  }
  Expression any_text() { return expressions_.repeat(any(), 0, unlimited); }

  Expression one_of(const CharSet& set) {
    const Expression made = spelled(set);
    if (any_ != nothing) expressions_.set_text(made);
    return made;
  }

  Expression one(char32_t code) { return one_of(CharSet({{code, code}})); }

  /// A valid text, character by character.
  Expression literal(std::string_view text) {
    Expression whole = empty;
    for (std::size_t end = text.size(); end > 0;) {
      end = utf8::before(text, end);
      whole = expressions_.sequence(one(utf8::at(text, end)), whole);
    }
    return whole;
  }

 private:
  Expression spelled(const CharSet& set) {
    if (spelling_ == Spelling::utf8) return plain(set);
    static const CharSet special({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}});
    std::vector<Expression> forms{plain(set.intersected(special.complement()))};
    ByteSet letters;
    std::map<unsigned, ByteSet> low_digits;  // by the high digit of the code point
    const CharSet escaped = set.intersected(special);
    for (const CharSet::Range& range : escaped.ranges()) {
      for (unsigned code = range.first; code <= range.last; ++code) {
        constexpr std::string_view short_codes = "\b\f\n\r\t\"\\", short_letters = "bfnrt\"\\";
        const std::size_t at = short_codes.find(static_cast<char>(code));
        if (at != short_codes.npos) letters.add(static_cast<unsigned char>(short_letters[at]));
        if (code == '"' || code == '\\') continue;
        ByteSet& digits = low_digits[code >> 4];
        const unsigned low = code & 15;
        digits.add(low < 10 ? '0' + low : 'a' + low - 10);
        if (low >= 10) digits.add('A' + low - 10);
      }
    }
    std::vector<Expression> escapes{expressions_.bytes(letters)}, codes;
    for (const auto& [high, low] : low_digits) {
      codes.push_back(expressions_.sequence(expressions_.byte('0' + high), expressions_.bytes(low)));
    }
    if (!codes.empty()) {
      escapes.push_back(expressions_.sequence(expressions_.literal("u00"), expressions_.either(std::move(codes))));
    }
    forms.push_back(expressions_.sequence(expressions_.byte('\\'), expressions_.either(std::move(escapes))));
    return expressions_.either(std::move(forms));
  }

  Expression plain(const CharSet& set) {
    std::vector<Expression> forms;
    static constexpr std::array<CharSet::Range, 5> lengths{
        {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, CharSet::last_code}}};
    for (const CharSet::Range& range : set.ranges()) {
      for (const CharSet::Range& length : lengths) {
        const char32_t first = std::max(range.first, length.first), last = std::min(range.last, length.last);
        if (first > last) continue;
        std::string low, high;
        utf8::append(low, first);
        utf8::append(high, last);
        forms.push_back(between(low, high));
      }
    }
    return expressions_.either(std::move(forms));
  }

  /// Texts of one length between two, where all bytes but the first go from 0x80 to 0xBF.
  Expression between(std::string_view low, std::string_view high) {
    const auto byte = [](std::string_view text) { return unsigned{static_cast<unsigned char>(text[0])}; };
    if (low.size() == 1) return expressions_.bytes(ByteSet::range(byte(low), byte(high)));
    const Expression rest_low = between(low.substr(1), std::string(low.size() - 1, '\xBF'));
    const Expression rest_high = between(std::string(high.size() - 1, '\x80'), high.substr(1));
    if (byte(low) == byte(high)) {
      return expressions_.sequence(expressions_.byte(byte(low)), between(low.substr(1), high.substr(1)));
    }
    std::vector<Expression> forms{expressions_.sequence(expressions_.byte(byte(low)), rest_low),
                                  expressions_.sequence(expressions_.byte(byte(high)), rest_high)};
    if (byte(low) + 1 < byte(high)) {
      Expression rest = empty;
      const Expression continuation = expressions_.bytes(ByteSet::range(0x80, 0xBF));
      for (std::size_t i = 1; i < low.size(); ++i) rest = expressions_.sequence(continuation, rest);
      forms.push_back(expressions_.sequence(expressions_.bytes(ByteSet::range(byte(low) + 1, byte(high) - 1)), rest));
    }
    return expressions_.either(std::move(forms));
  }

  Expressions& expressions_;
  Spelling spelling_;
  Expression any_ = nothing;
};

}}}
