// Values that models write in other syntaxes than JSON, as JSON: Python's literals and Gemma 4's values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/io/json.hpp"
#include "slm/text/answer/json_scan.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

inline bool scan_number_to(Scanner& scan, std::string& json) {
  const std::size_t begin = scan.at();
  if (!scan_json_number(scan)) return false;
  json += scan.from(begin);
  return true;
}

/// The digits of an escape sequence; at most `most` of the base.
inline char32_t scan_digits(Scanner& scan, std::size_t most, unsigned base) {
  char32_t code = 0;
  for (std::size_t i = 0; i < most && !scan.at_end(); ++i, scan.skip(1)) {
    const char byte = scan.byte();
    const unsigned digit = byte >= '0' && byte <= '9'   ? static_cast<unsigned>(byte - '0')
                           : byte >= 'a' && byte <= 'f' ? static_cast<unsigned>(byte - 'a') + 10
                           : byte >= 'A' && byte <= 'F' ? static_cast<unsigned>(byte - 'A') + 10
                                                        : base;
    if (digit >= base) break;
    code = code * base + digit;
  }
  return code;
}

/// Behind a backslash. Unknown escapes keep it.
inline void scan_python_escape(Scanner& scan, std::string& value) {
  const char byte = scan.byte();
  constexpr std::string_view names = "abfnrtv\\'\"\n", codes = "\a\b\f\n\r\t\v\\'\"";
  if (byte >= '0' && byte <= '7') return utf8::append(value, scan_digits(scan, 3, 8));
  scan.skip(1);
  if (const std::size_t found = names.find(byte); found != names.npos) {
    if (found < codes.size()) value += codes[found];
    return;
  }
  if (byte != 'x' && byte != 'u' && byte != 'U') {
    value += '\\';
    value += byte;
    return;
  }
  char32_t code = scan_digits(scan, byte == 'x' ? 2 : byte == 'u' ? 4 : 8, 16);
  if (code >= 0xD800 && code < 0xDC00 && scan.follows("\\u")) {
    scan.skip(2);
    const char32_t low = scan_digits(scan, 4, 16);
    code = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : 0xFFFD;
  }
  utf8::append(value, code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? char32_t{0xFFFD} : code);
}

inline bool scan_python_string(Scanner& scan, std::string& value) {
  const char quote = scan.byte();
  scan.skip(1);
  while (!scan.at_end()) {
    const char byte = scan.byte();
    if (byte == '\\' && scan.rest().size() < 14 && scan.rest().find(quote, 2) == std::string_view::npos) {
      return scan.need_more();  // an escape may be incomplete
    }
    scan.skip(1);
    if (byte == quote) return true;
    if (byte == '\\') {
      scan_python_escape(scan, value);
    } else {
      value += byte;
    }
  }
  return scan.need_more();
}

/// The signs of a syntax.
struct LiteralSyntax {
  std::string_view raw_quote;  // around texts without escapes; empty: Python's strings
  bool bare_keys;              // names in objects have no quotes
};

inline constexpr LiteralSyntax python_literals{{}, false}, gemma_literals{"<|\"|>", true};

inline bool scan_literal_string(Scanner& scan, const LiteralSyntax& syntax, std::string& value) {
  if (syntax.raw_quote.empty()) {
    return scan.byte() == '"' || scan.byte() == '\'' ? scan_python_string(scan, value)
           : scan.at_end()                           ? scan.need_more()
                                                     : scan.fail();
  }
  std::string_view raw;
  if (!scan.expect(syntax.raw_quote) || !scan.find(syntax.raw_quote, raw)) return false;
  value = raw;
  return true;
}

/// The name of an object's member and the colon behind it.
inline bool scan_literal_key(Scanner& scan, const LiteralSyntax& syntax, std::string& key) {
  if (!syntax.bare_keys || scan.follows(syntax.raw_quote)) {
    if (!scan_literal_string(scan, syntax, key)) return false;
  } else {
    const std::size_t begin = scan.at();
    while (!scan.at_end() && scan.byte() != ':' && is_name_byte(scan.byte())) scan.skip(1);
    key = scan.from(begin);
    if (scan.at_end()) return scan.need_more();
    if (key.empty()) return scan.may_follow(syntax.raw_quote) ? scan.need_more() : scan.fail();
  }
  scan.skip_blanks();
  return scan.expect(":");
}

/// Appends the value as JSON.
inline bool scan_literal(Scanner& scan, const LiteralSyntax& syntax, std::string& json, int depth = 1) {
  scan.skip_blanks();
  if (scan.at_end()) return scan.need_more();
  const char first = scan.byte();
  if (first == '[' || first == '{') {
    if (depth >= deepest_json) return scan.fail();
    const char closer = first == '[' ? ']' : '}';
    json += first;
    scan.skip(1);
    for (bool is_first = true;; is_first = false) {
      scan.skip_blanks();
      if (scan.at_end()) return scan.need_more();
      if (scan.byte() == closer) break;
      if (!is_first) {
        if (!scan.expect(",")) return false;
        json += ',';
        scan.skip_blanks();
      }
      if (first == '{') {
        std::string key;
        if (!scan_literal_key(scan, syntax, key)) return false;
        json += quoted_json(key);
        json += ':';
      }
      if (!scan_literal(scan, syntax, json, depth + 1)) return false;
    }
    json += closer;
    scan.skip(1);
    return true;
  }
  constexpr struct {
    std::string_view word, json;
  } constants[]{{"True", "true"}, {"False", "false"}, {"None", "null"},
                {"true", "true"}, {"false", "false"}, {"null", "null"}};
  for (const auto& constant : constants) {
    if (constant.word.front() != first) continue;
    if (!scan.expect(constant.word)) return false;
    json += constant.json;
    return true;
  }
  if (first == '-' || (first >= '0' && first <= '9')) return scan_number_to(scan, json);
  std::string value;
  if (!scan_literal_string(scan, syntax, value)) return false;
  json += quoted_json(value);
  return true;
}

}}}
