// Filters of lists.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/evaluator.hpp"
#include "slm/text/jinja/string_methods.hpp"

namespace slm { inline namespace v0_1 { namespace jinja::filters {

/// One item's part under a name with dots, as of "function.name".
class Part {
 public:
  Part(Runtime& run, const Value& path) : run_(run) {
    if (!path.is_string()) {
      steps_.push_back(path);
      return;
    }
    for (const Text& step : string_methods::split_at(run.heap, path.text(), ".", -1, false)) {
      std::int64_t index = 0;
      const std::string_view digits = step.bytes();
      const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
      const bool is_index = fault == std::errc{} && end == digits.data() + digits.size() && digits[0] != '-';
      steps_.push_back(is_index ? Value::integer(index) : run.heap.string(step));
    }
  }

  Value of(Value item) const {
    for (const Value& step : steps_) {
      run_.heap.spend(2);
      item = run_.item(item, step);
    }
    return item;
  }

 private:
  Runtime& run_;
  std::vector<Value> steps_;
};

/// The key for comparing two values: strings without case, unless case counts.
inline Value key_of(Runtime& run, const Value& value, bool case_counts) {
  if (case_counts || !value.is_string()) return value;
  run.heap.spend_characters(value);
  return run.heap.string(lower(value.text()));
}

/// An item and what it is compared by.
struct Keyed {
  Value key, item;
};

inline std::vector<Keyed> keyed(Runtime& run, const Value& value, const Value* attribute, bool case_counts) {
  const Value items = sequence_of(run.heap, value);
  std::vector<Keyed> all;
  std::vector<Part> parts;
  if (attribute != nullptr && attribute->is_string()) {
    for (const Text& path : string_methods::split_at(run.heap, attribute->text(), ",", -1, false)) {
      parts.emplace_back(run, run.heap.string(path));
    }
  } else if (attribute != nullptr && !attribute->is_none()) {
    parts.emplace_back(run, *attribute);
  }
  for (const Value& item : items.items()) {
    run.heap.spend(1);
    if (parts.empty()) {
      all.push_back({key_of(run, item, case_counts), item});
    } else if (parts.size() == 1) {
      all.push_back({key_of(run, parts[0].of(item), case_counts), item});
    } else {
      std::vector<Value> keys;
      for (const Part& part : parts) keys.push_back(key_of(run, part.of(item), case_counts));
      all.push_back({run.heap.tuple(std::move(keys)), item});
    }
  }
  return all;
}

inline void sort_keyed(Runtime& run, std::vector<Keyed>& all, bool reverse) {
  if (reverse) std::reverse(all.begin(), all.end());  // so that equal ones keep their order
  std::stable_sort(all.begin(), all.end(),
                   [&](const Keyed& a, const Keyed& b) { return order(run.heap, a.key, b.key) < 0; });
  if (reverse) std::reverse(all.begin(), all.end());
}

inline Value sort(Runtime& run, const Value& value, const Call& call) {
  const Given given("sort", call, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> all = keyed(run, value, given.has(2) ? &given.at(2) : nullptr, given.flag(1));
  sort_keyed(run, all, given.flag(0));
  std::vector<Value> items;
  for (Keyed& one : all) items.push_back(std::move(one.item));
  return run.heap.list(std::move(items));
}

inline Value dictsort(Runtime& run, const Value& value, const Call& call) {
  const Given given("dictsort", call, {"case_sensitive", "by", "reverse"});
  need(value);
  if (!value.is(Kind::dict)) fail(text("'dictsort' needs a dict, got the type ", type_name(value)));
  const bool by_value = given.has(1) && given.string(1).bytes() == "value";
  std::vector<Keyed> all;
  for (const auto& [key, member] : value.dict().items) {
    all.push_back({key_of(run, by_value ? member : key, given.flag(0)), run.heap.tuple({key, member})});
  }
  sort_keyed(run, all, given.flag(2));
  std::vector<Value> items;
  for (Keyed& one : all) items.push_back(std::move(one.item));
  return run.heap.list(std::move(items));
}

template <bool largest>
Value extreme(Runtime& run, const Value& value, const Call& call) {
  const Given given("min", call, {"case_sensitive", "attribute"});
  const std::vector<Keyed> all = keyed(run, value, given.has(1) ? &given.at(1) : nullptr, given.flag(0));
  if (all.empty()) return run.heap.undefined("there is no item: the list is empty");
  const Keyed* best = &all[0];
  for (const Keyed& one : all) {
    const auto sign = order(run.heap, one.key, best->key);
    if (largest ? sign > 0 : sign < 0) best = &one;
  }
  return best->item;
}

inline Value unique(Runtime& run, const Value& value, const Call& call) {
  const Given given("unique", call, {"case_sensitive", "attribute"});
  const std::vector<Keyed> all = keyed(run, value, given.has(1) ? &given.at(1) : nullptr, given.flag(0));
  DictBuilder seen(run.heap);
  std::vector<Value> items;
  std::size_t before = 0;
  for (const Keyed& one : all) {
    seen.set(one.key, Value::none());
    if (seen.size() == before) continue;
    before = seen.size();
    items.push_back(one.item);
  }
  return run.heap.iterator(std::move(items));
}

inline Value groupby(Runtime& run, const Value& value, const Call& call) {
  const Given given("groupby", call, {"attribute", "default", "case_sensitive"});
  std::vector<Keyed> all = keyed(run, value, &given.at(0), true);
  if (given.given(1)) {
    for (Keyed& one : all) one.key = one.key.is_undefined() ? given.at(1) : one.key;
  }
  sort_keyed(run, all, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    std::vector<Value> items;
    for (; end < all.size() && equal(run.heap, all[end].key, all[begin].key); ++end) items.push_back(all[end].item);
    if (end == begin) items.push_back(all[end++].item);  // a key that equals nothing
    groups.push_back(run.heap.list({all[begin].key, run.heap.list(std::move(items))}, Kind::tuple, true));
    begin = end;
  }
  return run.heap.list(std::move(groups));
}

/// The sequence that map and select iterate over: empty for none, 0 and other false values.
inline Value filtered_sequence(Runtime& run, const Value& value) {
  return is_true(value) ? sequence_of(run.heap, value) : run.heap.list({});
}

inline Value map(Runtime& run, const Value& value, const Call& call) {
  Call rest = call;
  std::vector<Value> items;
  if (call.positional.empty()) {
    const Given given("map", call, {"attribute", "default"});
    if (!given.has(0)) fail("'map' needs a filter or an attribute");
    const Part part(run, given.at(0));
    const Value source = filtered_sequence(run, value);
    for (const Value& item : source.items()) {
      const Value found = part.of(item);
      items.push_back(found.is_undefined() && given.has(1) ? given.at(1) : found);
    }
    return run.heap.iterator(std::move(items));
  }
  if (!call.positional[0].is_string()) fail("the name of a filter is no string");
  const Entry entry = filter_named(call.positional[0].bytes());
  if (entry == 0) fail(text("there is no filter named ", quote(call.positional[0].bytes())));
  rest.positional.erase(rest.positional.begin());
  const Value source = filtered_sequence(run, value);
  run.heap.spend(source.items().size());
  for (const Value& item : source.items()) items.push_back(filter_function(entry)(run, item, rest));
  return run.heap.iterator(std::move(items));
}

/// select, reject, selectattr, rejectattr
template <bool wanted, bool by_attribute>
Value select(Runtime& run, const Value& value, const Call& call) {
  Call rest = call;
  const auto take = [&rest] {
    const Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  std::optional<Part> part;
  if (by_attribute) {
    if (rest.positional.empty()) fail("expected the name of an attribute");
    part.emplace(run, take());
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take();
    const Entry entry = name.is_string() ? test_named(name.bytes()) : Entry{0};
    if (entry == 0) fail(text("there is no test named ", name.is_string() ? quote(name.bytes()) : "so"));
    test = test_function(entry);
  }
  const Value source = filtered_sequence(run, value);
  std::vector<Value> items;
  for (const Value& item : source.items()) {
    run.heap.spend(1);
    const Value tested = part ? part->of(item) : item;
    if ((test != nullptr ? test(run, tested, rest) : is_true(tested)) == wanted) items.push_back(item);
  }
  return run.heap.iterator(std::move(items));
}

inline Value list(Runtime& run, const Value& value, const Call& call) {
  Given("list", call, {});
  const Value items = sequence_of(run.heap, value);
  return items.is(Kind::list) ? items : run.heap.list(items.items());
}

inline Value items(Runtime& run, const Value& value, const Call& call) {
  Given("items", call, {});
  if (value.is_undefined()) return run.heap.iterator({});
  if (!value.is(Kind::dict)) fail(text("'items' needs a dict, got the type ", type_name(value)));
  return run.heap.iterator(sequence_of(run.heap, run.heap.view(value, ViewObject::Part::items)).items());
}

inline Value length(Runtime&, const Value& value, const Call& call) {
  Given("length", call, {});
  return Value::integer(length_of(value));
}

inline Value first(Runtime& run, const Value& value, const Call& call) {
  Given("first", call, {});
  if (value.is_string() && value.characters() > 0) return characters_of(run.heap, value, 0, 1);
  if (value.is(Kind::iterator)) {
    const IteratorObject& iterator = value.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return run.heap.undefined("there is no first item: the list is empty");
  }
  const Value all = sequence_of(run.heap, value);
  return all.items().empty() ? run.heap.undefined("there is no first item: the list is empty") : all.items().front();
}

inline Value last(Runtime& run, const Value& value, const Call& call) {
  Given("last", call, {});
  if (value.is(Kind::iterator)) fail("the last item of an iterator is unknown: use 'list' before");
  const Value all = sequence_of(run.heap, value);
  return all.items().empty() ? run.heap.undefined("there is no last item: the list is empty") : all.items().back();
}

inline Value join(Runtime& run, const Value& value, const Call& call) {
  const Given given("join", call, {"d", "attribute"});
  const Value all = sequence_of(run.heap, value);
  const Value between = given.has(0) ? as_string(run.heap, given.at(0)) : run.heap.string("");
  std::optional<Part> part;
  if (given.given(1)) part.emplace(run, given.at(1));
  Text out;
  for (std::size_t i = 0; i < all.items().size(); ++i) {
    run.heap.spend(1);
    if (i > 0) run.heap.append(out, between.text());
    Printer(run.heap, out).str(part ? part->of(all.items()[i]) : all.items()[i]);
  }
  return run.heap.string(std::move(out));
}

inline Value reverse(Runtime& run, const Value& value, const Call& call) {
  Given("reverse", call, {});
  if (value.is_string()) return sliced(run.heap, value, Value::none(), Value::none(), Value::integer(-1));
  const Value all = sequence_of(run.heap, value);
  return run.heap.iterator({all.items().rbegin(), all.items().rend()});
}

inline Value batch(Runtime& run, const Value& value, const Call& call) {
  const Given given("batch", call, {"linecount", "fill_with"});
  const std::int64_t size = given.whole(0);
  if (size < 1 || size > run.heap.limits().range) fail("the size of a batch is out of range");
  const Value all = sequence_of(run.heap, value);
  std::vector<Value> batches, one;
  for (const Value& item : all.items()) {
    one.push_back(item);
    if (static_cast<std::int64_t>(one.size()) == size) batches.push_back(run.heap.list(std::exchange(one, {})));
  }
  if (!one.empty()) {
    if (given.given(1)) {
      run.heap.spend(static_cast<std::uint64_t>(size) / 2);
      one.resize(static_cast<std::size_t>(size), given.at(1));
    }
    batches.push_back(run.heap.list(std::move(one)));
  }
  return run.heap.iterator(std::move(batches));
}

inline Value slice(Runtime& run, const Value& value, const Call& call) {
  const Given given("slice", call, {"slices", "fill_with"});
  const std::int64_t count = given.whole(0);
  if (count < 1 || count > run.heap.limits().range) fail("the number of slices is out of range");
  const Value all = sequence_of(run.heap, value);
  const auto slices = static_cast<std::size_t>(count), each = all.items().size() / slices;
  const std::size_t longer = all.items().size() % slices;
  std::vector<Value> made;
  std::size_t at = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    const std::size_t size = each + (i < longer ? 1 : 0);
    run.heap.spend(4 + size / 2);
    const auto begin = all.items().begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<Value> one(begin, begin + static_cast<std::ptrdiff_t>(size));
    if (given.given(1) && i >= longer) one.push_back(given.at(1));
    made.push_back(run.heap.list(std::move(one)));
    at += size;
  }
  return run.heap.iterator(std::move(made));
}

inline Value sum(Runtime& run, const Value& value, const Call& call) {
  const Given given("sum", call, {"attribute", "start"});
  std::optional<Part> part;
  if (given.given(0)) part.emplace(run, given.at(0));
  Value total = given.at(1, Value::integer(0));
  const Value all = sequence_of(run.heap, value);
  run.heap.spend(all.items().size());
  for (const Value& item : all.items()) total = arithmetic(run.heap, Sign::add, total, part ? part->of(item) : item);
  return total;
}

}}}
