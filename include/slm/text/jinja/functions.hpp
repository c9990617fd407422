// Global functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/evaluator.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

namespace functions {

inline Value raise_exception(Runtime& run, const Call& call) {
  const Given given("raise_exception", call, {"message"});
  throw Fault{TemplateError::Kind::raised, str_of(run.heap, given.at(0)).bytes()};
}

inline Value strftime_now(Runtime& run, const Call& call) {
  const Value& format = Given("strftime_now", call, {"format"}).string(0);
  if (format.bytes().size() > static_cast<std::size_t>(run.heap.limits().width))
    fail_limit("the format of a date is too long");
  run.heap.spend(16 * format.bytes().size());
  return run.heap.string(formatted(run.now, format.bytes()),
                         format.text().is_written(0, format.bytes().size()) ? Origin::written : Origin::given);
}

/// Calls put(name, value) for the members that a dict or pairs and the named arguments give.
template <class Put>
void members(Runtime& run, const Call& call, Put&& put) {
  if (call.positional.size() > 1) fail("expected at most one dict or list of pairs");
  if (!call.positional.empty()) {
    const Value& first = call.positional[0];
    need(first);
    if (first.is(Kind::dict)) {
      for (const auto& [key, value] : first.dict().items) put(key, value);
    } else {
      const Value pairs = sequence_of(run.heap, first);
      for (const Value& pair : pairs.items()) {
        const Value parts = sequence_of(run.heap, pair);
        if (parts.items().size() != 2) fail("expected pairs of a key and a value");
        put(parts.items()[0], parts.items()[1]);
      }
    }
  }
  run.heap.spend(call.named.size());
  for (const auto& [name, value] : call.named) put(run.heap.string(name), value);
}

inline Value make_namespace(Runtime& run, const Call& call) {
  auto& cell = run.heap.cell<SpaceCell>();
  members(run, call, [&](const Value& key, const Value& value) {
    if (!key.is_string()) fail("the name of a member is no string");
    if (key.bytes().starts_with("_")) {
      fail(text("a namespace cannot hold the name ", quote(key.bytes()), ", which begins with `_`"));
    }
    run.heap.charge(128 + key.bytes().size());
    run.heap.spend(8);
    cell.members.insert_or_assign(std::string{key.bytes()}, value);
  });
  return Value::of(Kind::space, &cell);
}

inline Value make_dict(Runtime& run, const Call& call) {
  DictBuilder made(run.heap);
  members(run, call, [&](const Value& key, const Value& value) { made.set(key, value); });
  return made.take();
}

inline Value range(Runtime& run, const Call& call) {
  const Given given("range", call, {"start", "stop", "step"});
  const std::int64_t start = given.has(1) ? given.whole(0) : 0, stop = given.has(1) ? given.whole(1) : given.whole(0);
  const std::int64_t step = given.whole(2, 1);
  if (step == 0) fail("the step of a range cannot be 0");
  // Unsigned, as the distance of two numbers may take all 64 bits.
  const auto distance = [](std::int64_t from, std::int64_t to) {
    return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
  };
  std::uint64_t count = 0;
  if (step > 0 && stop > start) count = (distance(start, stop) - 1) / static_cast<std::uint64_t>(step) + 1;
  if (step < 0 && start > stop) count = (distance(stop, start) - 1) / (0 - static_cast<std::uint64_t>(step)) + 1;
  if (count > static_cast<std::uint64_t>(run.heap.limits().range)) {
    fail_limit(text("a range has more than ", run.heap.limits().range, " items"));
  }
  return run.heap.range(start, step, static_cast<std::int64_t>(count));
}

inline Value make_cycler(Runtime& run, const Call& call) {
  if (call.positional.empty()) fail("a cycler has no values");
  auto& cell = run.heap.cell<CyclerCell>();
  run.heap.charge(call.positional.size() * sizeof(Value));
  cell.items = call.positional;
  return Value::of(Kind::cycler, &cell);
}

inline Value make_joiner(Runtime& run, const Call& call) {
  auto& cell = run.heap.cell<JoinerCell>();
  cell.separator = Given("joiner", call, {"sep"}).at(0, run.heap.string(", "));
  return Value::of(Kind::joiner, &cell);
}

struct Entry {
  std::string_view name;
  Value (*function)(Runtime&, const Call&);
};
inline constexpr Entry table[]{
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"namespace", make_namespace},
    {"dict", make_dict},
    {"range", range},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
};

}  // namespace functions

inline int function_named(std::string_view name) {
  for (const functions::Entry& entry : functions::table) {
    if (entry.name == name) return static_cast<int>(&entry - functions::table);
  }
  return -1;
}

inline Value call_function(Runtime& runtime, std::int64_t number, const Call& call) {
  return functions::table[number].function(runtime, call);
}

}}}
