// All filters by name, and those of numbers and any value.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slm/core/read_real.hpp"
#include "slm/text/jinja/list_filters.hpp"
#include "slm/text/jinja/literals.hpp"
#include "slm/text/jinja/methods.hpp"
#include "slm/text/jinja/text_filters.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

namespace filters {

inline Value with_default(Runtime& run, const Value& value, const Call& call) {
  const Given given("default", call, {"default_value", "boolean"});
  const bool replaced = value.is_undefined() || (given.flag(1) && !is_true(value));
  return replaced ? given.at(0, run.heap.string("")) : value;
}

inline Value attr(Runtime& run, const Value& value, const Call& call) {
  const Value name = Given("attr", call, {"name"}).string(0);
  need(value);
  if (value.is(Kind::dict) && find(run.heap, value, name) != nullptr && method_named(Kind::dict, name.bytes()) == 0) {
    return run.heap.undefined(text("a dict has no attribute ", quote(name.bytes())));
  }
  return run.attribute(value, name);
}

/// A text as Python's int() and float() read it: without blanks around, with single underscores between digits.
inline std::string number_text(std::string_view text) {
  const std::size_t begin = skip_blanks(text, 0);
  return without_underscores(text.substr(begin, strip_blanks(text, begin, text.size()) - begin));
}

inline std::optional<double> real_in(std::string_view text) {
  const std::string digits = number_text(text);
  return detail::read_real(std::string_view(digits).substr(digits.starts_with('+') ? 1 : 0));
}

inline std::optional<std::int64_t> whole_in(std::string_view text, int base) {
  std::string digits = number_text(text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char radix = static_cast<char>(digits[1] | 0x20);
    const int of = radix == 'x' ? 16 : radix == 'o' ? 8 : radix == 'b' ? 2 : 0;
    if (of != 0 && of == base) digits.erase(0, 2);
  }
  if (digits.empty() || digits[0] == '-') return std::nullopt;
  if (negative) digits.insert(0, "-");
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (fault == std::errc::result_out_of_range) fail_overflow();
  if (fault != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

inline Value to_int(Runtime& run, const Value& value, const Call& call) {
  const Given given("int", call, {"default", "base"});
  need(value);
  const auto truncated = [](double number) {
    if (!(std::abs(number) < 9e18)) fail_overflow();
    return Value::integer(static_cast<std::int64_t>(number));
  };
  if (value.is_whole()) return Value::integer(value.whole());
  if (value.is(Kind::real))
    return std::isfinite(value.number()) ? truncated(value.number()) : given.at(0, Value::integer(0));
  if (value.is_string()) {
    run.heap.spend(value.bytes().size() / 2);
    const std::int64_t base = given.whole(1, 10);
    if (base < 2 || base > 36) fail("the base of a number is out of range");
    if (const auto whole = whole_in(value.bytes(), static_cast<int>(base))) return Value::integer(*whole);
    if (const auto real = real_in(value.bytes()); real && std::isfinite(*real)) return truncated(*real);
  }
  return given.at(0, Value::integer(0));
}

inline Value to_float(Runtime& run, const Value& value, const Call& call) {
  const Given given("float", call, {"default"});
  need(value);
  if (value.is_number()) return Value::real(value.number());
  if (value.is_string()) {
    run.heap.spend(value.bytes().size() / 4);
    if (const auto real = real_in(value.bytes())) return Value::real(*real);
  }
  return given.at(0, Value::real(0));
}

inline Value abs(Runtime&, const Value& value, const Call& call) {
  Given("abs", call, {});
  need(value);
  if (!value.is_number()) fail(text("'abs' needs a number, got the type ", type_name(value)));
  if (value.is(Kind::real)) return Value::real(std::abs(value.number()));
  return value.whole() < 0 ? negated(value) : Value::integer(value.whole());
}

inline Value round(Runtime&, const Value& value, const Call& call) {
  const Given given("round", call, {"precision", "method"});
  need(value);
  if (!value.is_number()) fail(text("'round' needs a number, got the type ", type_name(value)));
  const std::int64_t precision = given.whole(0, 0);
  if (precision < -300 || precision > 300) fail("the precision of 'round' is out of range");
  const std::string_view method = given.has(1) ? given.string(1).bytes() : "common";
  const double scale = std::pow(10.0, static_cast<double>(precision)), number = value.number();
  if (method == "ceil") return Value::real(std::ceil(number * scale) / scale);
  if (method == "floor") return Value::real(std::floor(number * scale) / scale);
  if (method != "common") fail("the method of 'round' is common, ceil or floor");
  if (value.is_whole()) {
    if (precision >= 0) return Value::integer(value.whole());
    if (precision < -18) return Value::integer(0);
    return Value::integer(static_cast<std::int64_t>(std::nearbyint(number * scale) / scale));
  }
  if (!std::isfinite(number)) return value;
  if (precision < 0) return Value::real(std::nearbyint(number * scale) / scale);
  // Exact, as the digits are those of the binary number.
  return Value::real(detail::read_real(real_formatted(number, 'f', static_cast<int>(precision))).value_or(number));
}

struct Named {
  std::string_view name;
  Filter function;
};

inline constexpr Named table[]{
    {"abs", abs},
    {"attr", attr},
    {"batch", batch},
    {"capitalize", by_method<string_methods::capitalize>},
    {"center", by_method<methods::pad<'c'>>},
    {"count", length},
    {"d", with_default},
    {"default", with_default},
    {"dictsort", dictsort},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", to_float},
    {"forceescape", escape},
    {"format", format},
    {"from_json", from_json},
    {"groupby", groupby},
    {"indent", indent},
    {"int", to_int},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", by_method<string_methods::lower>},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"pprint", string},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round},
    {"safe", safe},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", title},
    {"tojson", tojson},
    {"trim", by_method<string_methods::strip<true, true>>},
    {"truncate", truncate},
    {"unique", unique},
    {"upper", by_method<string_methods::upper>},
    {"wordcount", wordcount},
};

}  // namespace filters

inline Entry filter_named(std::string_view name) {
  for (const filters::Named& entry : filters::table) {
    if (entry.name == name) return static_cast<Entry>(&entry - filters::table + 1);
  }
  return 0;
}

inline Filter filter_function(Entry entry) { return filters::table[entry - 1].function; }

}}}
