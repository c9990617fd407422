// Strict JSON in an answer whose text is still incomplete.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/text/answer/scanner.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Scans a string in double quotes.
inline bool scan_json_string(Scanner& scan) {
  if (!scan.expect("\"")) return false;
  while (!scan.at_end()) {
    const char byte = scan.byte();
    if (static_cast<unsigned char>(byte) < 0x20) return scan.fail();
    scan.skip(1);
    if (byte == '"') return true;
    if (byte != '\\') continue;
    if (scan.at_end()) break;
    const char escape = scan.byte();
    if (std::string_view("\"\\/bfnrtu").find(escape) == std::string_view::npos) return scan.fail();
    scan.skip(1);
    for (int i = 0; i < 4 && escape == 'u'; ++i, scan.skip(1)) {
      if (scan.at_end()) return scan.need_more();
      if (std::string_view("0123456789abcdefABCDEF").find(scan.byte()) == std::string_view::npos) return scan.fail();
    }
  }
  return scan.need_more();
}

/// Scans a number. At the end of an incomplete text it may have more digits.
inline bool scan_json_number(Scanner& scan) {
  const auto digits = [&scan] {
    const std::size_t begin = scan.at();
    while (scan.byte() >= '0' && scan.byte() <= '9') scan.skip(1);
    return scan.at() > begin;
  };
  const auto missing = [&scan] { return scan.at_end() ? scan.need_more() : scan.fail(); };
  if (scan.byte() == '-') scan.skip(1);
  if (scan.byte() == '0') {
    scan.skip(1);
  } else if (!digits()) {
    return missing();
  }
  if (scan.byte() == '.') {
    scan.skip(1);
    if (!digits()) return missing();
  }
  if (scan.byte() == 'e' || scan.byte() == 'E') {
    scan.skip(1);
    if (scan.byte() == '+' || scan.byte() == '-') scan.skip(1);
    if (!digits()) return missing();
  }
  return !scan.at_end() || scan.is_final() || scan.need_more();
}

inline bool scan_json_scalar(Scanner& scan) {
  switch (scan.byte()) {
    case '"': return scan_json_string(scan);
    case 't': return scan.expect("true");
    case 'f': return scan.expect("false");
    case 'n': return scan.expect("null");
    default: return scan.at_end() ? scan.need_more() : scan_json_number(scan);
  }
}

/// Scans one value. Checks everything but names that occur twice, lone surrogates and UTF-8.
inline bool scan_json(Scanner& scan) {
  std::vector<char> closers;
  const auto name = [&scan] {
    if (!scan_json_string(scan)) return false;
    scan.skip_blanks();
    return scan.expect(":");
  };
  for (;;) {
    scan.skip_blanks();
    if (scan.byte() == '{' || scan.byte() == '[') {
      if (closers.size() == std::size_t{deepest_json}) return scan.fail();
      closers.push_back(scan.byte() == '{' ? '}' : ']');
      scan.skip(1);
      scan.skip_blanks();
      if (scan.at_end()) return scan.need_more();
      if (scan.byte() != closers.back()) {
        if (closers.back() == '}' && !name()) return false;
        continue;
      }
    } else if (!scan_json_scalar(scan)) {
      return false;
    }
    for (;;) {
      if (closers.empty()) return true;
      scan.skip_blanks();
      if (scan.byte() == closers.back()) {
        scan.skip(1);
        closers.pop_back();
        continue;
      }
      if (!scan.expect(",")) return false;
      scan.skip_blanks();
      if (closers.back() == '}' && !name()) return false;
      break;
    }
  }
}

/// Whether the library's reader accepts the text, an object. Its limits and rules are those of requests, so that a call
/// can be sent again as a part of the conversation.
inline bool is_json_object(std::string_view source) {
  try {
    return OwnedJson(parse_json(source, "arguments")).is_object();
  } catch (const Error&) {
    return false;
  }
}

/// The string of a scanned JSON string; nothing for lone surrogates and invalid UTF-8.
inline bool read_json_string(std::string_view source, std::string& value) {
  try {
    const OwnedJson json = parse_json(source, "string");
    if (!json.is_string()) return false;
    value = json.get<std::string>();
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline std::string quoted_json(std::string_view value) { return json_text(Json(value)); }

/// Calls visit(name, value) for the members of a scanned object; value: its source. Returns false for a bad name.
template <class Visit>
bool each_json_member(std::string_view object, Visit&& visit) {
  Scanner scan(object, 1, true);
  for (;;) {
    scan.skip_blanks();
    if (scan.byte() == ',') scan.skip(1);
    scan.skip_blanks();
    if (scan.byte() == '}') return true;
    const std::size_t name_begin = scan.at();
    std::string name;
    if (!scan_json_string(scan) || !read_json_string(scan.from(name_begin), name)) return false;
    scan.skip_blanks();
    scan.skip(1);
    scan.skip_blanks();
    const std::size_t begin = scan.at();
    if (!scan_json(scan)) return false;
    visit(name, scan.from(begin));
  }
}

/// Calls visit(element) for the elements of a scanned array.
template <class Visit>
void each_json_element(std::string_view array, Visit&& visit) {
  Scanner scan(array, 1, true);
  for (;;) {
    scan.skip_blanks();
    if (scan.byte() == ',') scan.skip(1);
    scan.skip_blanks();
    if (scan.byte() == ']' || scan.at_end()) return;
    const std::size_t begin = scan.at();
    if (!scan_json(scan)) return;
    visit(scan.from(begin));
  }
}

}}}
