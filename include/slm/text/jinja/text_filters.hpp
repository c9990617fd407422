// Filters that make text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/json_print.hpp"
#include "slm/text/jinja/runtime.hpp"
#include "slm/text/jinja/string_methods.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja::filters {

inline Value tojson(Runtime& run, const Value& value, const Call& call) {
  const Given given("tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonForm form;
  form.ascii = given.flag(0);
  form.sorted = given.flag(3);
  if (given.given(1)) {
    const Value& indent = given.at(1);
    if (indent.is_string()) {
      form.indent = indent.text();
    } else {
      const std::int64_t blanks = given.whole(1);
      if (blanks > run.heap.limits().width) fail_limit("the indent of JSON is too wide");
      form.indent =
          Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, blanks)), ' '), Origin::written);
    }
    form.between = Text(",", Origin::given);
  }
  if (given.given(2)) {
    const Value parts = sequence_of(run.heap, given.at(2));
    if (parts.items().size() != 2 || !parts.items()[0].is_string() || !parts.items()[1].is_string()) {
      fail("the separators of JSON are two strings");
    }
    form.between = parts.items()[0].text();
    form.behind_key = parts.items()[1].text();
  }
  Text out;
  JsonPrinter(run.heap, form, out).put(value);
  return run.heap.string(std::move(out));
}

inline Value string(Runtime& run, const Value& value, const Call& call) {
  Given("string", call, {});
  return as_string(run.heap, value);
}

inline Value safe(Runtime& run, const Value& value, const Call& call) {
  Given("safe", call, {});
  return as_string(run.heap, value).safe();
}

inline Value escape(Runtime& run, const Value& value, const Call& call) {
  Given("escape", call, {});
  const Value shown = as_string(run.heap, value);
  if (shown.is_safe()) return shown;
  run.heap.spend_characters(shown);
  return run.heap.string(escaped(shown.text())).safe();
}

/// A filter that is a method of strings.
template <Method method>
Value by_method(Runtime& run, const Value& value, const Call& call) {
  return method(run, as_string(run.heap, value), call);
}

inline Value title(Runtime& run, const Value& value, const Call& call) {
  Given("title", call, {});
  const Value shown = as_string(run.heap, value);
  run.heap.spend_characters(shown);
  bool inside = false;
  return run.heap.string(changed(shown.text(), [&inside](std::string& out, char32_t code, std::size_t) {
    inside ? append_lower(out, code) : append_upper(out, code);
    inside = !(is_blank(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<');
  }));
}

inline Value replace(Runtime& run, const Value& value, const Call& call) {
  const Given given("replace", call, {"old", "new", "count"});
  const Value shown = as_string(run.heap, value), old = as_string(run.heap, given.at(0));
  const Value by = as_string(run.heap, given.at(1));
  const std::int64_t most = given.given(2) ? given.whole(2) : -1;
  return run.heap.string(string_methods::replaced(run.heap, shown.text(), old.bytes(), by.text(), most));
}

inline Value indent(Runtime& run, const Value& value, const Call& call) {
  const Given given("indent", call, {"width", "first", "blank"});
  const Value shown = as_string(run.heap, value);
  Text by;
  if (given.has(0) && given.at(0).is_string()) {
    by = given.at(0).text();
  } else {
    const std::int64_t width = given.whole(0, 4);
    if (width > run.heap.limits().width) fail_limit("an indent is too wide");
    by = Text(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' '), Origin::written);
  }
  Text out;
  const std::string_view bytes = shown.bytes();
  if (given.flag(1)) run.heap.append(out, by);
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t newline = bytes.find('\n', begin), end = newline == bytes.npos ? bytes.size() : newline + 1;
    const bool is_empty = newline == begin;
    if (begin > 0 && (given.flag(2) || !is_empty)) run.heap.append(out, by);
    run.heap.append(out, shown.text(), begin, end);
    begin = end;
    if (given.flag(2) && newline != bytes.npos && end == bytes.size()) run.heap.append(out, by);
  }
  return run.heap.string(std::move(out));
}

inline Value format(Runtime& run, const Value& value, const Call& call) {
  if (!call.positional.empty() && !call.named.empty()) fail("a format takes values by place or by name, not both");
  const Value shown = as_string(run.heap, value);
  DictBuilder named(run.heap);
  for (const auto& [name, member] : call.named) named.set(run.heap.string(name), member);
  const Value dict = named.take();
  return run.heap.string(
      percent_formatted(run.heap, shown.text(), run.heap.tuple(call.positional), call.named.empty() ? nullptr : &dict));
}

inline Value truncate(Runtime& run, const Value& value, const Call& call) {
  const Given given("truncate", call, {"length", "killwords", "end", "leeway"});
  const Value shown = as_string(run.heap, value);
  const Value end = given.has(2) ? as_string(run.heap, given.at(2)) : run.heap.string("...");
  const std::int64_t length = given.whole(0, 255), leeway = given.given(3) ? given.whole(3) : 5;
  if (length < length_of(end) || leeway < 0) fail("'truncate' has a length below that of its end");
  if (length_of(shown) <= length || length_of(shown) - length <= leeway) return shown;
  Text cut = characters_of(run.heap, shown, 0, static_cast<std::size_t>(length - length_of(end))).text();
  if (!given.flag(1)) {
    if (const std::size_t blank = cut.bytes().rfind(' '); blank != std::string::npos) cut.resize(blank);
  }
  cut.append(end.text());
  return run.heap.string(std::move(cut));
}

inline Value wordcount(Runtime& run, const Value& value, const Call& call) {
  Given("wordcount", call, {});
  const Value shown = as_string(run.heap, value);
  run.heap.spend_characters(shown);
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < shown.bytes().size();) {
    const bool word = unicode::is_word(utf8::next(shown.bytes(), at));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

/// JSON's text as a value: an addition to jinja2's filters that some templates expect.
Value from_json(Runtime& run, const Value& value, const Call& call);

}}}
