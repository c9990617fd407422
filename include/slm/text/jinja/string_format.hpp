// "{}".format(...)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "slm/text/jinja/runtime.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja::string_methods {

/// One value in the format after the colon.
inline void append_formatted(Runtime& run, Text& out, const Value& value, std::string_view spec) {
  Form form;
  std::size_t at = 0;
  char align = value.is_number() && !value.is(Kind::boolean) ? '>' : '<';
  std::string fill = " ";
  const auto is_align = [](char byte) { return byte == '<' || byte == '>' || byte == '^'; };
  if (!spec.empty()) {
    std::size_t next = 0;
    utf8::next(spec, next);
    if (next < spec.size() && is_align(spec[next])) {
      fill = spec.substr(0, next);
      align = spec[next];
      at = next + 1;
    } else if (is_align(spec[0])) {
      align = spec[at++];
    }
  }
  if (at < spec.size() && (spec[at] == '+' || spec[at] == ' ' || spec[at] == '-')) {
    form.plus = spec[at] == '+';
    form.blank = spec[at++] == ' ';
  }
  if (at < spec.size() && spec[at] == '0') form.zeros = true;
  form.width = read_number(run.heap, spec, at);
  if (at < spec.size() && spec[at] == '.') form.precision = read_number(run.heap, spec, ++at);
  const char letter = at < spec.size() ? spec[at++] : '\0';
  if (at < spec.size()) fail("the format " + quote(spec) + " is unknown");
  Text shown;
  if (letter == '\0' || letter == 's') {
    Printer(run.heap, shown).str(value);
  } else if (std::string_view("dxXofFeEgG").find(letter) != std::string_view::npos) {
    shown = Text(number_formatted(value, letter, form), Origin::written);
  } else {
    fail("the format " + quote(spec) + " is unknown");
  }
  const auto length = static_cast<std::int64_t>(utf8::count(shown.bytes()));
  const std::int64_t missing = std::max<std::int64_t>(0, form.width - length);
  if (form.zeros && value.is_number()) return append_padded(run.heap, out, shown, form, true);
  const std::int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2;
  append_filled(run.heap, out, shown, Text(fill, Origin::written), left, missing - left);
}

inline Value format(Runtime& run, const Value& self, const Call& call) {
  const std::string_view source = self.bytes();
  Text out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < source.size();) {
    const std::size_t brace = std::min(source.find_first_of("{}", at), source.size());
    run.heap.spend(8 + (brace - at) / 4);
    run.heap.append(out, self.text(), at, brace);
    if (brace == source.size()) break;
    if (brace + 1 < source.size() && source[brace + 1] == source[brace]) {
      run.heap.append(out, self.text(), brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t close = source.find('}', brace);
    if (close != source.npos) run.heap.spend((close - brace) / 4);
    if (source[brace] == '}' || close == source.npos) fail("a format has a single brace");
    const std::string_view field = source.substr(brace + 1, close - brace - 1);
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    if (name.find_first_of("!.[{") != name.npos) fail("the format " + quote(field) + " is not supported");
    const Value* value = nullptr;
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      std::size_t digits = 0;
      const auto index = name.empty() ? next++ : static_cast<std::size_t>(read_number(run.heap, name, digits));
      if (index < call.positional.size()) value = &call.positional[index];
    } else {
      run.heap.spend(call.named.size() / 4);
      for (const auto& [key, given] : call.named) {
        if (key == name) value = &given;
      }
    }
    if (value == nullptr) fail("a format needs the value " + quote(field) + ", which is missing");
    append_formatted(run, out, *value, colon < field.size() ? field.substr(colon + 1) : std::string_view{});
    at = close + 1;
  }
  return run.heap.string(std::move(out));
}

}}}
