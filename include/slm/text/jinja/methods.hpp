// The methods of all values, by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/evaluator.hpp"
#include "slm/text/jinja/string_format.hpp"
#include "slm/text/jinja/string_methods.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

namespace methods {

/// Fills up to a width: 'l' at the right, 'r' at the left, 'c' on both sides.
template <char side>
Value pad(Runtime& run, const Value& self, const Call& call) {
  const Given given("ljust", call, {"width", "fillchar"});
  const Value blank = run.heap.string(" ");
  const Value& fill = given.has(1) ? given.string(1) : blank;
  if (fill.characters() != 1) fail("what fills a text is one character");
  const std::int64_t width = given.whole(0);
  if (width > run.heap.limits().width) fail_limit("a width is above " + std::to_string(run.heap.limits().width));
  const std::int64_t missing = std::max<std::int64_t>(0, width - length_of(self));
  const std::int64_t left = side == 'l'   ? 0
                            : side == 'r' ? missing
                                          : missing / 2 + (missing % 2 != 0 && width % 2 != 0 ? 1 : 0);
  Text out;
  append_filled(run.heap, out, self.text(), fill.text(), left, missing - left);
  return run.heap.string(std::move(out));
}

inline Value zfill(Runtime& run, const Value& self, const Call& call) {
  Form form;
  form.zeros = true;
  form.width = Given("zfill", call, {"width"}).whole(0);
  if (form.width > run.heap.limits().width) fail_limit("a width is above " + std::to_string(run.heap.limits().width));
  Text out;
  append_padded(run.heap, out, self.text().empty() ? Text("0", Origin::written) : self.text(), form, true);
  return run.heap.string(std::move(out));
}

inline Value get(Runtime& run, const Value& self, const Call& call) {
  const Given given("get", call, {"key", "default"});
  if (const Value* found = jinja::find(run.heap, self, given.at(0))) return *found;
  return given.at(1, Value::none());
}

template <ViewObject::Part part>
Value view(Runtime& run, const Value& self, const Call& call) {
  Given("items", call, {});
  return run.heap.view(self, part);
}

inline Value copy(Runtime&, const Value& self, const Call& call) {
  Given("copy", call, {});
  return self;
}

inline Value count(Runtime& run, const Value& self, const Call& call) {
  const Given given("count", call, {"value"});
  std::int64_t found = 0;
  for (const Value& item : self.items()) found += equal(run.heap, item, given.at(0)) ? 1 : 0;
  return Value::integer(found);
}

inline Value index(Runtime& run, const Value& self, const Call& call) {
  const Given given("index", call, {"value"});
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equal(run.heap, self.items()[i], given.at(0))) return Value::integer(static_cast<std::int64_t>(i));
  }
  fail("the list does not contain what is looked for");
}

inline Value cycle(Runtime&, const Value& self, const Call& call) {
  if (call.positional.empty()) fail("'cycle' has no values");
  const auto& cell = *static_cast<const LoopCell*>(self.cell());
  return call.positional[static_cast<std::size_t>(std::max<std::int64_t>(0, cell.index0)) % call.positional.size()];
}

/// Whether the values differ from those of the last call.
inline Value changed(Runtime& run, const Value& self, const Call& call) {
  auto& cell = *static_cast<LoopCell*>(self.cell());
  Value values = run.heap.tuple(call.positional);
  const bool differs = !cell.has_changed || !equal(run.heap, values, cell.changed);
  cell.changed = std::move(values);
  cell.has_changed = true;
  return Value::boolean(differs);
}

inline Value next(Runtime&, const Value& self, const Call& call) {
  Given("next", call, {});
  auto& cycler = *static_cast<CyclerCell*>(self.cell());
  const Value value = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return value;
}

inline Value reset(Runtime&, const Value& self, const Call& call) {
  Given("reset", call, {});
  static_cast<CyclerCell*>(self.cell())->at = 0;
  return Value::none();
}

struct Entry {
  Kind kind;
  std::string_view name;
  Method function;
};

inline constexpr Entry table[]{
    {Kind::string, "upper", string_methods::upper},
    {Kind::string, "lower", string_methods::lower},
    {Kind::string, "casefold", string_methods::lower},
    {Kind::string, "title", string_methods::title},
    {Kind::string, "capitalize", string_methods::capitalize},
    {Kind::string, "swapcase", string_methods::swapcase},
    {Kind::string, "strip", string_methods::strip<true, true>},
    {Kind::string, "lstrip", string_methods::strip<true, false>},
    {Kind::string, "rstrip", string_methods::strip<false, true>},
    {Kind::string, "split", string_methods::split<false>},
    {Kind::string, "rsplit", string_methods::split<true>},
    {Kind::string, "splitlines", string_methods::splitlines},
    {Kind::string, "partition", string_methods::partition<false>},
    {Kind::string, "rpartition", string_methods::partition<true>},
    {Kind::string, "startswith", string_methods::starts_or_ends<false>},
    {Kind::string, "endswith", string_methods::starts_or_ends<true>},
    {Kind::string, "find", string_methods::find<false, false>},
    {Kind::string, "rfind", string_methods::find<true, false>},
    {Kind::string, "index", string_methods::find<false, true>},
    {Kind::string, "rindex", string_methods::find<true, true>},
    {Kind::string, "count", string_methods::count},
    {Kind::string, "replace", string_methods::replace},
    {Kind::string, "join", string_methods::join},
    {Kind::string, "format", string_methods::format},
    {Kind::string, "removeprefix", string_methods::remove<false>},
    {Kind::string, "removesuffix", string_methods::remove<true>},
    {Kind::string, "isalpha", string_methods::all_alpha},
    {Kind::string, "isdigit", string_methods::all_digit},
    {Kind::string, "isnumeric", string_methods::all_digit},
    {Kind::string, "isdecimal", string_methods::all_digit},
    {Kind::string, "isalnum", string_methods::all_alnum},
    {Kind::string, "isspace", string_methods::all_space},
    {Kind::string, "isascii", string_methods::all_ascii},
    {Kind::string, "isupper", string_methods::is_case<true>},
    {Kind::string, "islower", string_methods::is_case<false>},
    {Kind::string, "ljust", pad<'l'>},
    {Kind::string, "rjust", pad<'r'>},
    {Kind::string, "center", pad<'c'>},
    {Kind::string, "zfill", zfill},
    {Kind::dict, "get", get},
    {Kind::dict, "keys", view<ViewObject::Part::keys>},
    {Kind::dict, "values", view<ViewObject::Part::values>},
    {Kind::dict, "items", view<ViewObject::Part::items>},
    {Kind::dict, "copy", copy},
    {Kind::list, "count", count},
    {Kind::list, "index", index},
    {Kind::list, "copy", copy},
    {Kind::tuple, "count", count},
    {Kind::tuple, "index", index},
    {Kind::loop, "cycle", cycle},
    {Kind::loop, "changed", changed},
    {Kind::cycler, "next", next},
    {Kind::cycler, "reset", reset},
};

}  // namespace methods

inline int method_named(Kind kind, std::string_view name) {
  for (const methods::Entry& entry : methods::table) {
    if (entry.kind == kind && entry.name == name) return static_cast<int>(&entry - methods::table) + 1;
  }
  return 0;
}

inline Method method_function(int number) { return methods::table[number - 1].function; }

inline bool is_refused(Kind kind, std::string_view name) {
  static constexpr std::string_view of_lists[]{"append", "extend",  "insert", "pop",
                                               "remove", "reverse", "sort",   "clear"};
  static constexpr std::string_view of_dicts[]{"clear", "pop", "popitem", "setdefault", "update"};
  const auto among = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return (kind == Kind::list && among(of_lists)) || (kind == Kind::dict && among(of_dicts));
}

}}}
