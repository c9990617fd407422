// Readers of calls: one function for each form of CallBody. Each begins behind the tag that begins a call, and ends
// behind the tag that ends it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "slm/text/answer/call_list.hpp"
#include "slm/text/answer/literals.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The end of the scanned value is a fault unless the calls are sound.
inline bool fail_unless(Scanner& scan, bool is_sound) { return is_sound || scan.fail(); }

/// The tag that ends a call; it may be absent at the end of the answer.
inline bool scan_end(Scanner& scan, const AnswerSyntax& syntax) {
  if (syntax.end.empty()) return true;
  scan.skip_blanks();
  return scan.expect_or_end(syntax.end);
}

inline bool scan_value(Scanner& scan, std::string_view& value) {
  scan.skip_blanks();
  const std::size_t begin = scan.at();
  if (!scan_json(scan)) return false;
  value = scan.from(begin);
  return true;
}

inline bool read_json_body(Scanner& scan, CallList& calls) {
  std::string_view value;
  if (!scan_value(scan, value)) return false;
  const bool is_named = calls.syntax().body == CallBody::named_json;
  return fail_unless(scan, is_named ? calls.add_named(value) : calls.add_value(value)) &&
         scan_end(scan, calls.syntax());
}

/// Arguments in JSON, of which nothing at all counts as none.
inline bool read_arguments(Scanner& scan, CallList& calls, std::string_view name, std::string id = {}) {
  std::string_view value;
  if (!scan_value(scan, value)) return false;
  return fail_unless(scan, calls.add(name, value == "null" ? "{}" : value, std::move(id)));
}

inline bool read_mistral_body(Scanner& scan, CallList& calls) {
  scan.skip_blanks();
  if (scan.at_end()) return scan.need_more();
  if (scan.byte() == '[') return read_json_body(scan, calls);
  std::string_view name, id;
  if (!scan.name(name)) return false;
  if (scan.may_follow("[CALL_ID]")) return scan.need_more();
  if (scan.follows("[CALL_ID]")) {
    scan.skip(std::string_view("[CALL_ID]").size());
    if (!scan.name(id)) return false;
  }
  return scan.expect("[ARGS]") && read_arguments(scan, calls, name);
}

inline bool read_deepseek_body(Scanner& scan, CallList& calls) {
  constexpr std::string_view separator = "<｜tool▁sep｜>";
  std::string_view name;
  scan.skip_blanks();
  if (!scan.name(name)) return false;
  if (!scan.expect(separator)) return false;
  const std::size_t behind = scan.at();
  scan.skip_blanks();
  if (scan.at_end()) return scan.need_more();
  if (name != "function" || scan.byte() == '{') {
    scan.go_to(behind);
    return read_arguments(scan, calls, name) && scan_end(scan, calls.syntax());
  }
  if (!scan.name(name)) return false;
  scan.skip_blanks();
  if (!scan.expect("```json") || !read_arguments(scan, calls, name)) return false;
  scan.skip_blanks();
  return scan.expect_or_end("```") && scan_end(scan, calls.syntax());
}

inline bool read_kimi_body(Scanner& scan, CallList& calls) {
  std::string_view id;
  scan.skip_blanks();
  if (!scan.name(id)) return false;
  scan.skip_blanks();
  if (!scan.expect("<|tool_call_argument_begin|>")) return false;
  std::string_view name = id;
  if (name.starts_with("functions.")) name.remove_prefix(10);
  name = name.substr(0, name.rfind(':'));
  return read_arguments(scan, calls, name, std::string(id)) && scan_end(scan, calls.syntax());
}

/// A raw value up to the first closing tag that one of the two words follows.
inline bool scan_raw_value(Scanner& scan, std::string_view closing, std::string_view next, std::string_view end,
                           std::string_view& value) {
  const std::size_t begin = scan.at();
  for (std::string_view before;;) {
    if (!scan.find(closing, before)) return false;
    const std::size_t behind = scan.at();
    value = scan.text().substr(begin, behind - closing.size() - begin);
    scan.skip_blanks();
    if (scan.follows(next) || scan.follows(end)) return true;
    if (scan.may_follow(next) || scan.may_follow(end)) return scan.need_more();
    if (scan.at_end() && scan.is_final()) return true;
    scan.go_to(behind);
  }
}

/// Adds a member to an object that is being written.
inline void add_member(std::string& object, std::string_view key, std::string_view json) {
  if (object.size() > 1) object += ", ";
  object += quoted_json(key);
  object += ": ";
  object += json;
}

inline bool read_parameters_body(Scanner& scan, CallList& calls) {
  const AnswerSyntax& syntax = calls.syntax();
  const ParameterTags& tags = syntax.parameters;
  std::string_view name, key, raw;
  if (!scan.name(name) || !scan.expect(tags.name_end)) return false;
  std::string arguments = "{";
  for (;;) {
    scan.skip_blanks();
    if (scan.may_follow(syntax.end) || scan.may_follow(tags.begin)) return scan.need_more();
    if (scan.follows(syntax.end)) break;
    if (!scan.expect(tags.begin) || !scan.name(key) || !scan.expect(tags.key_end)) return false;
    bool is_raw = false;
    if (tags.flags_strings) {
      is_raw = scan.follows("true\">");
      if (!is_raw && scan.may_follow("true\">")) return scan.need_more();
      if (!scan.expect(is_raw ? "true\">" : "false\">")) return false;
    }
    if (!scan_raw_value(scan, tags.end, tags.begin, syntax.end, raw)) return false;
    if (tags.drops_newlines && raw.starts_with('\n')) raw.remove_prefix(1);
    if (tags.drops_newlines && raw.ends_with('\n')) raw.remove_suffix(1);
    if (tags.flags_strings && !is_raw) {
      Scanner value(trimmed(raw), 0, true);
      if (!scan_json(value) || !value.at_end()) return scan.fail();
      add_member(arguments, key, trimmed(raw));
    } else {
      add_member(arguments, key, is_raw ? quoted_json(raw) : calls.tools().typed(name, key, raw));
    }
  }
  scan.skip(syntax.end.size());
  return fail_unless(scan, calls.add(name, arguments + "}"));
}

inline bool read_pairs_body(Scanner& scan, CallList& calls) {
  constexpr std::string_view key_tag = "<arg_key>", value_tag = "<arg_value>";
  const std::string_view end = calls.syntax().end;
  std::string_view name, key, raw;
  scan.skip_blanks();
  if (!scan.name(name)) return false;
  std::string arguments = "{";
  for (;;) {
    scan.skip_blanks();
    if (scan.may_follow(end) || scan.may_follow(key_tag)) return scan.need_more();
    if (scan.follows(end) || (scan.at_end() && calls.tools().has(name))) break;
    if (!scan.expect(key_tag) || !scan.find("</arg_key>", key)) return false;
    scan.skip_blanks();
    if (!scan.expect(value_tag) || !scan_raw_value(scan, "</arg_value>", key_tag, end, raw)) return false;
    add_member(arguments, trimmed(key), calls.tools().typed(name, trimmed(key), raw));
  }
  return scan.expect_or_end(end) && fail_unless(scan, calls.add(name, arguments + "}"));
}

/// NAME(a=1, b="x")
inline bool read_python_call(Scanner& scan, CallList& calls, bool is_offered = false) {
  std::string_view name, key;
  if (!scan.name(name)) return false;
  if (calls.syntax().body == CallBody::python_tag && name.ends_with(".call")) name.remove_suffix(5);
  scan.skip_blanks();
  if (!scan.expect("(")) return false;
  if (name == "print" && calls.syntax().offered_only) {
    scan.skip_blanks();
    if (!read_python_call(scan, calls, true)) return false;
    scan.skip_blanks();
    return scan.expect(")");
  }
  std::string arguments = "{";
  for (;;) {
    scan.skip_blanks();
    if (scan.at_end()) return scan.need_more();
    if (scan.byte() == ')') break;
    if (arguments.size() > 1) {
      if (!scan.expect(",")) return false;
      scan.skip_blanks();
    }
    std::string value;
    if (!scan.name(key)) return false;
    scan.skip_blanks();
    if (!scan.expect("=") || !scan_literal(scan, python_literals, value)) return false;
    add_member(arguments, key, value);
  }
  scan.skip(1);
  return fail_unless(scan, (!is_offered || calls.tools().has(name)) && calls.add(name, arguments + "}"));
}

/// [f(a=1), g()]
inline bool read_python_list(Scanner& scan, CallList& calls, bool is_offered = false) {
  if (!scan.expect("[")) return false;
  for (bool is_first = true;; is_first = false) {
    scan.skip_blanks();
    if (scan.at_end()) return scan.need_more();
    if (!is_first) {
      if (scan.byte() == ']') break;
      if (!scan.expect(",")) return false;
      scan.skip_blanks();
    }
    if (!read_python_call(scan, calls, is_offered)) return false;
  }
  scan.skip(1);
  return true;
}

inline bool read_python_body(Scanner& scan, CallList& calls) {
  const AnswerSyntax& syntax = calls.syntax();
  scan.skip_blanks();
  if (scan.byte() == '[') {
    Scanner ahead(scan.text(), scan.at() + 1, scan.is_final());
    ahead.skip_blanks();
    if (ahead.at_end()) return scan.need_more();
    if (ahead.byte() == '{') return read_json_body(scan, calls);
    return read_python_list(scan, calls) && scan_end(scan, syntax);
  }
  for (;;) {  // a call on each line
    if (!read_python_call(scan, calls)) return false;
    scan.skip_blanks();
    if (scan.may_follow(syntax.end)) return scan.need_more();
    if (scan.follows(syntax.end) || scan.at_end()) return scan.expect_or_end(syntax.end);
  }
}

inline bool read_gemma_body(Scanner& scan, CallList& calls) {
  scan.skip_blanks();
  std::string_view name;
  std::string arguments;
  if (!scan.expect("call:") || !scan.name(name)) return false;
  if (scan.at_end()) return scan.need_more();
  if (scan.byte() != '{') return scan.fail();
  if (!scan_literal(scan, gemma_literals, arguments)) return false;
  return fail_unless(scan, calls.add(name, arguments)) && scan_end(scan, calls.syntax());
}

/// Objects that semicolons separate.
inline bool read_json_sequence(Scanner& scan, CallList& calls, bool is_bare) {
  for (std::string_view value;;) {
    if (!scan_value(scan, value)) return false;
    if (!calls.add_object(value, is_bare)) return scan.fail();
    const std::size_t behind = scan.at();
    scan.skip_blanks();
    if (scan.at_end()) return scan.is_final() || scan.need_more();
    if (scan.byte() != ';') {
      scan.go_to(behind);
      return true;
    }
    scan.skip(1);
  }
}

/// Behind <|python_tag|>: calls, or code for the tool python, which ends with the answer.
inline bool read_python_tag_body(Scanner& scan, CallList& calls) {
  const std::size_t begin = scan.at();
  scan.skip_blanks();
  const bool takes_code = calls.tools().has("python");
  Scanner attempt = scan;
  CallList found(calls.syntax(), calls.tools());
  bool is_call = false;
  if (attempt.byte() == '{') {
    is_call = read_json_sequence(attempt, found, false);
  } else if (attempt.byte() == '[') {
    is_call = read_python_list(attempt, found);
  } else {
    std::string_view name;
    if (attempt.name(name) && !name.ends_with(".call")) {
      attempt.fail();
    } else if (attempt.state() == ScanState::done) {
      attempt = scan;
      is_call = read_python_call(attempt, found);
    }
  }
  if (is_call || attempt.state() == ScanState::more || !takes_code) {
    scan = attempt;
    if (is_call) calls = found;
    return is_call;
  }
  scan.go_to(scan.text().size());
  if (!scan.is_final()) return scan.need_more();
  const std::string_view code = trimmed(scan.from(begin));
  return fail_unless(scan, calls.add("python", text("{\"code\": ", quoted_json(code), "}")));
}

inline bool read_body(Scanner& scan, CallList& calls) {
  switch (calls.syntax().body) {
    case CallBody::json:
    case CallBody::named_json: return read_json_body(scan, calls);
    case CallBody::mistral: return read_mistral_body(scan, calls);
    case CallBody::deepseek: return read_deepseek_body(scan, calls);
    case CallBody::kimi: return read_kimi_body(scan, calls);
    case CallBody::parameters: return read_parameters_body(scan, calls);
    case CallBody::pairs: return read_pairs_body(scan, calls);
    case CallBody::python: return read_python_body(scan, calls);
    case CallBody::gemma: return read_gemma_body(scan, calls);
    case CallBody::python_tag: return read_python_tag_body(scan, calls);
    case CallBody::none:
    case CallBody::harmony: break;
  }
  return scan.fail();
}

}}}
