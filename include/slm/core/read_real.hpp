// read_real: the number in a decimal text. Some standard libraries lack std::from_chars for double.
#pragma once

#include <clocale>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The double nearest to a decimal number such as -1.5e3, inf or nan, in any locale. nullopt: another text, or a number
/// outside of the range of double.
inline std::optional<double> read_real(std::string_view decimal) {
  std::string digits(decimal);
  const std::size_t sign = digits.starts_with('-') ? 1 : 0;
  for (char& byte : digits) byte = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
  const std::string_view unsigned_digits = std::string_view(digits).substr(sign);
  for (const std::string_view special : {"inf", "infinity", "nan"}) {
    const double value = special[0] == 'n' ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
    if (unsigned_digits == special) return sign == 1 ? -value : value;
  }
  if (unsigned_digits.find_first_not_of("0123456789.e+-") != std::string_view::npos) return std::nullopt;
  if (unsigned_digits.starts_with('+') || unsigned_digits.starts_with('-')) return std::nullopt;
  const std::string_view mantissa = unsigned_digits.substr(0, unsigned_digits.find('e'));
  const bool zero = mantissa.find_first_not_of("0.") == std::string_view::npos;
  if (const std::size_t point = digits.find('.'); point != std::string::npos) {
    digits.replace(point, 1, std::localeconv()->decimal_point);  // as strtod reads it
  }
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size() || digits.empty()) return std::nullopt;
  if (std::isinf(value) || (value == 0 && !zero)) return std::nullopt;
  return value;
}

}}}
