// Constants of a template's source: strings with Python's escapes, numbers.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "slm/core/read_real.hpp"
#include "slm/text/jinja/lexer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// The text of a string token, which has its quotes.
inline std::string unescaped(const Token& token) {
  const std::string_view text = token.text.substr(1, token.text.size() - 2);
  std::string out;
  const auto number = [&](std::size_t begin, std::size_t length, int base) {
    std::uint32_t code = 0;
    const std::string_view digits = text.substr(begin, length);
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (fault != std::errc{} || end != digits.data() + length || digits.size() != length || code > 0x10FFFF) {
      throw SyntaxFault{token.at, "a string has the broken escape " + quote(text.substr(begin - 2, length + 2))};
    }
    if (code >= 0xD800 && code < 0xE000) {
      out += utf8::replacement;
    } else {
      utf8::append(out, code);
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    switch (const char byte = text[++i]) {
      case '\n': break;
      case '\\':
      case '\'':
      case '"': out += byte; break;
      case 'a': out += '\a'; break;
      case 'b': out += '\b'; break;
      case 'f': out += '\f'; break;
      case 'n': out += '\n'; break;
      case 'r': out += '\r'; break;
      case 't': out += '\t'; break;
      case 'v': out += '\v'; break;
      case 'x': number(i + 1, 2, 16), i += 2; break;
      case 'u': number(i + 1, 4, 16), i += 4; break;
      case 'U': number(i + 1, 8, 16), i += 8; break;
      case 'N': throw SyntaxFault{token.at, "a string has an escape by name: write the character"};
      default: {
        std::uint32_t code = 0;
        std::size_t length = 0;
        for (; length < 3 && i + length < text.size(); ++length) {
          const char digit = text[i + length];
          if (digit < '0' || digit > '7') break;
          code = code * 8 + static_cast<std::uint32_t>(digit - '0');
        }
        if (length > 0) {
          utf8::append(out, code);
          i += length - 1;
        } else {
          out += '\\';
          out += byte;
        }
      }
    }
  }
  return out;
}

inline std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char byte : text) {
    if (byte != '_') digits += byte;
  }
  return digits;
}

inline std::int64_t integer_of(const Token& token) {
  std::string digits = without_underscores(token.text);
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char radix = static_cast<char>(digits[1] | 0x20);
    base = radix == 'x' ? 16 : radix == 'o' ? 8 : radix == 'b' ? 2 : 10;
    if (base != 10) digits.erase(0, 2);
  }
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (fault != std::errc{} || end != digits.data() + digits.size()) {
    throw SyntaxFault{token.at, "the number " + quote(token.text) + " does not fit into 64 bits"};
  }
  return value;
}

inline double real_of(const Token& token) {
  const std::optional<double> value = detail::read_real(without_underscores(token.text));
  if (!value) throw SyntaxFault{token.at, "the number " + quote(token.text) + " is out of range"};
  return *value;
}

}}}
