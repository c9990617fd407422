// Tests, such as `is defined`.
#pragma once

#include <string_view>

#include "slm/text/jinja/filters.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

namespace tests {

template <Kind... kinds>
bool is_kind(Runtime&, const Value& value, const Call& call) {
  Given("a test", call, {});
  return (value.is(kinds) || ...);
}

inline bool defined(Runtime&, const Value& value, const Call& call) {
  Given("defined", call, {});
  return !value.is_undefined();
}

template <bool wanted>
bool is_boolean(Runtime&, const Value& value, const Call& call) {
  Given("a test", call, {});
  return value.is(Kind::boolean) && (value.whole() != 0) == wanted;
}

inline bool sequence(Runtime&, const Value& value, const Call& call) {
  Given("sequence", call, {});
  return is_iterable(value) && !value.is(Kind::iterator) && !value.is(Kind::view);
}

inline bool iterable(Runtime&, const Value& value, const Call& call) {
  Given("iterable", call, {});
  return is_iterable(value);
}

inline bool callable(Runtime&, const Value& value, const Call& call) {
  Given("callable", call, {});
  return value.is(Kind::function) || value.is(Kind::method) || value.is(Kind::macro) || value.is(Kind::loop) ||
         value.is(Kind::joiner) || value.is_undefined();
}

template <Sign sign>
bool compares(Runtime& run, const Value& value, const Call& call) {
  return compared(run.heap, sign, value, Given("a test", call, {"other"}).at(0));
}

inline bool sameas(Runtime& run, const Value& value, const Call& call) {
  const Value& other = Given("sameas", call, {"other"}).at(0);
  if (value.kind() != other.kind()) return false;
  if (value.is(Kind::list) || value.is(Kind::dict)) return value.object() == other.object();
  return equal(run.heap, value, other);
}

inline bool divisible(const Value& value, std::int64_t by) {
  need(value);
  if (!value.is_number()) fail(text("the test needs a number, got the type ", type_name(value)));
  if (by == 0) fail("division by zero");
  if (value.is(Kind::real)) return real_modulo(value.number(), static_cast<double>(by)) == 0;
  return floor_modulo(value.whole(), by) == 0;
}
inline bool odd(Runtime&, const Value& value, const Call& call) {
  Given("odd", call, {});
  return !divisible(value, 2) && (!value.is(Kind::real) || std::floor(value.number()) == value.number());
}
inline bool even(Runtime&, const Value& value, const Call& call) {
  Given("even", call, {});
  return divisible(value, 2);
}
inline bool divisibleby(Runtime&, const Value& value, const Call& call) {
  return divisible(value, Given("divisibleby", call, {"num"}).whole(0));
}

template <bool upper>
bool is_case(Runtime& run, const Value& value, const Call& call) {
  Given("upper", call, {});
  const Value shown = as_string(run.heap, value);
  return string_methods::is_cased(run.heap, shown, upper);
}

template <Entry (*named)(std::string_view)>
bool is_named(Runtime&, const Value& value, const Call& call) {
  Given("filter", call, {});
  return value.is_string() && named(value.bytes()) != 0;
}

struct Named {
  std::string_view name;
  Test function;
};

inline constexpr Named table[]{
    {"!=", compares<Sign::unequal>},
    {"<", compares<Sign::less>},
    {"<=", compares<Sign::less_equal>},
    {"==", compares<Sign::equal>},
    {">", compares<Sign::greater>},
    {">=", compares<Sign::greater_equal>},
    {"boolean", is_kind<Kind::boolean>},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisibleby},
    {"eq", compares<Sign::equal>},
    {"equalto", compares<Sign::equal>},
    {"even", even},
    {"false", is_boolean<false>},
    {"filter", is_named<filter_named>},
    {"float", is_kind<Kind::real>},
    {"ge", compares<Sign::greater_equal>},
    {"greaterthan", compares<Sign::greater>},
    {"gt", compares<Sign::greater>},
    {"in", compares<Sign::in>},
    {"integer", is_kind<Kind::integer>},
    {"iterable", iterable},
    {"le", compares<Sign::less_equal>},
    {"lessthan", compares<Sign::less>},
    {"lower", is_case<false>},
    {"lt", compares<Sign::less>},
    {"mapping", is_kind<Kind::dict>},
    {"ne", compares<Sign::unequal>},
    {"none", is_kind<Kind::none>},
    {"number", is_kind<Kind::boolean, Kind::integer, Kind::real>},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", sequence},
    {"string", is_kind<Kind::string>},
    {"test", is_named<test_named>},
    {"true", is_boolean<true>},
    {"undefined", is_kind<Kind::undefined>},
    {"upper", is_case<true>},
};

}  // namespace tests

inline Entry test_named(std::string_view name) {
  for (const tests::Named& entry : tests::table) {
    if (entry.name == name) return static_cast<Entry>(&entry - tests::table + 1);
  }
  return 0;
}

inline Test test_function(Entry entry) { return tests::table[entry - 1].function; }

}}}
