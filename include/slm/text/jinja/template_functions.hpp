// The functions of Template.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "slm/core/macros.hpp"
#include "slm/text/jinja/execute.hpp"
#include "slm/text/jinja/functions.hpp"
#include "slm/text/jinja/json_value.hpp"
#include "slm/text/jinja/methods.hpp"
#include "slm/text/jinja/parser.hpp"
#include "slm/text/jinja/template.hpp"
#include "slm/text/jinja/tests.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

namespace detail {

/// A text of a template as a message shows it: without control characters, cut at about `most` bytes.
inline std::string shown(std::string_view source, std::size_t most) {
  std::string out;
  for (std::size_t at = 0; at < source.size();) {
    if (out.size() >= most) return out + "...";
    const auto code = utf8::next(source, at);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
        (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069)) {
      out += code == '\n' ? "\\n" : "\\x";
      if (code != '\n') append_hex(out, code, code < 0x100 ? 2 : 4);
    } else {
      utf8::append(out, code);
    }
  }
  return out;
}

inline TemplateError error_at(const std::string& name, std::string_view source, std::size_t at,
                              TemplateError::Kind kind, const std::string& reason) {
  using Kind = TemplateError::Kind;
  at = std::min(at, source.size());
  const std::string_view before = source.substr(0, at);
  const std::size_t line_begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  const auto line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  const auto column = static_cast<int>(utf8::count(before.substr(line_begin))) + 1;
  const std::string_view construct = source.substr(at, std::min(source.find('\n', at), source.size()) - at);
  std::string valid;
  utf8::append_lossy(valid, reason);
  const std::string sentence =
      text(shown(name, 200), ", line ", line, ", column ", column, ": ", kind == Kind::raised ? "it refuses: " : "",
           shown(valid, 1000), construct.empty() ? "" : text(" (at `", shown(construct, 60), "`)"));
  switch (kind) {
    case Kind::syntax:
      return {kind, "chat.template-syntax", sentence, "Correct the template, or use another one", line, column, reason};
    case Kind::raised:
      return {kind, "chat.template-raised", sentence, "Change the messages as it demands", line, column, reason};
    case Kind::runtime:
      return {kind,  "chat.template-failed", sentence, "Change the messages, or use another template", line, column,
              reason};
    case Kind::limit: break;
  }
  return {kind, "chat.template-limit", sentence, "Use a template that does less", line, column, reason};
}

}  // namespace detail

SLM_CONSTRUCTOR Template::Template(std::string_view source, std::string name, const Limits& limits)
    : name_(std::move(name)), limits_(limits) {
  if (source.size() > limits.source) {
    throw detail::error_at(name_, {}, 0, TemplateError::Kind::limit,
                           text("it has ", source.size(), " bytes, at most ", limits.source));
  }
  auto program = std::make_shared<Program>();
  program->source = normalised(source);
  try {
    Parser(*program, Lexer(program->source).run(), limits).run();
  } catch (const SyntaxFault& fault) {
    throw detail::error_at(name_, program->source, fault.at, fault.kind, fault.message);
  } catch (const Fault& fault) {
    throw detail::error_at(name_, program->source, 0, fault.kind, fault.message);
  }
  program_ = std::move(program);
}

SLM_INLINE const std::string& Template::source() const { return program_->source; }

/// How many bytes a value holds, about.
inline std::size_t weight(const Value& value) {
  std::size_t sum = 16;
  if (value.is_string()) sum += value.bytes().size();
  if (value.is_sequence()) {
    for (const Value& item : value.items()) sum += weight(item);
  }
  if (value.is(Kind::dict)) {
    for (const auto& [key, member] : value.dict().items) sum += weight(key) + weight(member);
  }
  return sum;
}

SLM_INLINE Text Template::render_value(const Value& variables, const std::optional<Date>& date) const {
  Evaluator evaluator(*program_, limits_, weight(variables), date ? *date : Date::now());
  for (const auto& [name, value] : variables.dict().items) {
    if (name.is_string()) evaluator.set_variable(name.bytes(), value);
  }
  try {
    return evaluator.run();
  } catch (const Fault& fault) {
    throw detail::error_at(name_, program_->source, evaluator.at(), fault.kind, fault.message);
  }
}

SLM_INLINE Rendered Template::render(std::string_view variables, const std::optional<Date>& date) const {
  const std::string name = "the template's variables";
  const Value value = parse_value(variables, name);
  if (!value.is(Kind::dict)) {
    throw Error("json.not-an-object", text("'", name, "' are not an object"), "Write them as a JSON object");
  }
  const Text text = render_value(value, date);
  Rendered rendered{text.bytes(), {}};
  for (const Text::Run& run : text.runs()) rendered.spans.push_back({run.end, run.origin == Origin::written});
  return rendered;
}

}}}
