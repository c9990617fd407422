// Decimal: exact decimal numbers of JSON, and the texts of numbers within bounds.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/grammar/expressions.hpp"
#include "slm/grammar/limits.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

struct Decimal {
  static constexpr int largest_exponent = 400;

  bool negative = false;
  std::string whole = "0";  // digits without leading zeros, at least one
  std::string fraction;     // digits without trailing zeros

  bool is_integer() const { return fraction.empty(); }
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  std::string text() const { return (negative ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction); }
  bool operator==(const Decimal&) const = default;

  /// The value of a JSON number.
  static Decimal parse(std::string_view written) {
    Decimal made;
    made.negative = written.starts_with('-');
    if (made.negative) written.remove_prefix(1);
    const std::size_t mark = std::min(written.find_first_of("eE"), written.size());
    const std::string_view mantissa = written.substr(0, mark);
    const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
    std::string digits(mantissa.substr(0, point));
    if (point < mantissa.size()) digits += mantissa.substr(point + 1);
    std::int64_t exponent = 0;
    if (mark < written.size()) {
      std::string_view power = written.substr(mark + 1);
      const bool down = power.starts_with('-');
      if (down || power.starts_with('+')) power.remove_prefix(1);
      for (const char digit : power) exponent = std::min<std::int64_t>(exponent * 10 + (digit - '0'), 1'000'000);
      if (down) exponent = -exponent;
    }
    if (digits.find_first_not_of('0') == digits.npos) return {};
    if (exponent > largest_exponent || exponent < -largest_exponent) fail_limit("exponent of a number");
    std::int64_t place = static_cast<std::int64_t>(point) + exponent;  // digits before the point
    if (place < 0) {
      digits.insert(0, static_cast<std::size_t>(-place), '0');
      place = 0;
    }
    if (static_cast<std::size_t>(place) > digits.size()) digits.resize(static_cast<std::size_t>(place), '0');
    made.whole = digits.substr(0, static_cast<std::size_t>(place));
    made.fraction = digits.substr(static_cast<std::size_t>(place));
    made.whole.erase(0, std::min(made.whole.find_first_not_of('0'), made.whole.size()));
    if (made.whole.empty()) made.whole = "0";
    made.fraction.erase(made.fraction.find_last_not_of('0') + 1);
    return made;
  }
};

/// Numbers as texts without exponents.
class NumberTexts {
 public:
  explicit NumberTexts(Expressions& expressions) : expressions_(expressions) {}

  /// The texts of all numbers, with exponents unless `plain`.
  Expression any(bool integer, bool plain) {
    const Expression minus = expressions_.optional(expressions_.byte('-'));
    if (integer) return expressions_.sequence(minus, natural());
    if (plain) return expressions_.sequence({minus, natural(), optional_fraction()});
    ByteSet signs, marks;
    signs.add('+'), signs.add('-');
    marks.add('e'), marks.add('E');
    const Expression exponent = expressions_.sequence(
        {expressions_.bytes(marks), expressions_.optional(expressions_.bytes(signs)), some_digits()});
    return expressions_.sequence({minus, natural(), optional_fraction(), expressions_.optional(exponent)});
  }

  /// Numbers from `low`, or above it if `strict`.
  Expression at_least(const Decimal& low, bool strict) {
    const Expression minus = expressions_.byte('-');
    if (low.negative) return expressions_.either({any_natural(), expressions_.sequence(minus, below(low, strict))});
    return above(low, strict);
  }

  /// Numbers up to `high`, or below it if `strict`.
  Expression at_most(const Decimal& high, bool strict) {
    const Expression minus = expressions_.byte('-');
    if (high.negative) return expressions_.sequence(minus, above(high, strict));
    const Expression negatives =
        expressions_.sequence(minus, high.is_zero() && strict ? above(high, true) : any_natural());
    return expressions_.either({negatives, below(high, strict)});
  }

  /// Numbers with at most this many digits behind the point, besides zeros.
  Expression with_places(std::uint32_t places) {
    const Expression some = expressions_.repeat(digit('0', '9'), 1, places);
    return expressions_.sequence({expressions_.optional(expressions_.byte('-')), natural(),
                                  expressions_.optional(expressions_.sequence({point(), some, zeros()}))});
  }

  /// Integers that `divisor` divides.
  Expression multiple_of(std::uint32_t divisor) {
    return expressions_.sequence(expressions_.optional(expressions_.byte('-')),
                                 expressions_.both({natural(), expressions_.multiple(divisor, 0)}));
  }

 private:
  Expression digit(char first, char last) {
    if (first > last) return nothing;
    return expressions_.bytes(ByteSet::range(static_cast<unsigned char>(first), static_cast<unsigned char>(last)));
  }
  Expression digits() { return expressions_.repeat(digit('0', '9'), 0, unlimited); }
  Expression some_digits() { return expressions_.repeat(digit('0', '9'), 1, unlimited); }
  Expression zeros() { return expressions_.repeat(expressions_.byte('0'), 0, unlimited); }
  Expression natural() {
    return expressions_.either({expressions_.byte('0'), expressions_.sequence(digit('1', '9'), digits())});
  }
  Expression point() { return expressions_.byte('.'); }
  Expression optional_fraction() { return expressions_.optional(expressions_.sequence(point(), some_digits())); }
  Expression any_natural() { return expressions_.sequence(natural(), optional_fraction()); }
  Expression count(std::size_t least, std::uint32_t most) {
    return expressions_.repeat(digit('0', '9'), static_cast<std::uint32_t>(least), most);
  }

  /// Absolute values from the bound's absolute value.
  Expression above(const Decimal& bound, bool strict) {
    const std::string& whole = bound.whole;
    std::vector<Expression> forms{
        expressions_.sequence({digit('1', '9'), count(whole.size(), unlimited), optional_fraction()})};  // more digits
    for (std::size_t i = 0; i < whole.size(); ++i) {
      forms.push_back(expressions_.sequence(
          {expressions_.literal(whole.substr(0, i)), digit(static_cast<char>(whole[i] + 1), '9'),
           count(whole.size() - i - 1, static_cast<std::uint32_t>(whole.size() - i - 1)), optional_fraction()}));
    }
    forms.push_back(expressions_.sequence(expressions_.literal(whole), fraction_above(bound.fraction, strict)));
    return expressions_.either(std::move(forms));
  }

  Expression fraction_above(const std::string& bound, bool strict) {
    const Expression positive = expressions_.sequence({zeros(), digit('1', '9'), digits()});
    if (bound.empty()) return strict ? expressions_.sequence(point(), positive) : optional_fraction();
    std::vector<Expression> forms;
    for (std::size_t i = 0; i < bound.size(); ++i) {
      forms.push_back(expressions_.sequence(
          {expressions_.literal(bound.substr(0, i)), digit(static_cast<char>(bound[i] + 1), '9'), digits()}));
    }
    forms.push_back(expressions_.sequence(expressions_.literal(bound), strict ? positive : digits()));
    return expressions_.sequence(point(), expressions_.either(std::move(forms)));
  }

  /// Absolute values up to the bound's absolute value.
  Expression below(const Decimal& bound, bool strict) {
    const std::string& whole = bound.whole;
    std::vector<Expression> forms;
    if (whole.size() > 1) {  // fewer digits
      const auto rest = static_cast<std::uint32_t>(whole.size() - 2);
      forms.push_back(expressions_.sequence(
          expressions_.either({expressions_.byte('0'), expressions_.sequence(digit('1', '9'), count(0, rest))}),
          optional_fraction()));
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      const char least = i == 0 && whole.size() > 1 ? '1' : '0';
      forms.push_back(expressions_.sequence(
          {expressions_.literal(whole.substr(0, i)), digit(least, static_cast<char>(whole[i] - 1)),
           count(whole.size() - i - 1, static_cast<std::uint32_t>(whole.size() - i - 1)), optional_fraction()}));
    }
    forms.push_back(expressions_.sequence(expressions_.literal(whole), fraction_below(bound.fraction, strict)));
    return expressions_.either(std::move(forms));
  }

  Expression fraction_below(const std::string& bound, bool strict) {
    if (bound.empty()) {
      if (strict) return nothing;
      return expressions_.optional(
          expressions_.sequence(point(), expressions_.repeat(expressions_.byte('0'), 1, unlimited)));
    }
    std::vector<Expression> forms;
    for (std::size_t i = 0; i < bound.size(); ++i) {
      const Expression same = expressions_.literal(bound.substr(0, i));
      if (i > 0) forms.push_back(same);
      forms.push_back(expressions_.sequence({same, digit('0', static_cast<char>(bound[i] - 1)), digits()}));
    }
    if (!strict) forms.push_back(expressions_.sequence(expressions_.literal(bound), zeros()));
    return expressions_.optional(expressions_.sequence(point(), expressions_.either(std::move(forms))));
  }

  Expressions& expressions_;
};

}}}
