// Parts of values: items, characters, slices, lengths.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/operators.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline Value view_item(Heap& heap, const ViewObject& view, std::size_t index) {
  const auto& [key, value] = view.dict.dict().items[index];
  if (view.part == ViewObject::Part::keys) return key;
  return view.part == ViewObject::Part::values ? value : heap.tuple({key, value});
}

/// The items of a value, as a list or a tuple. Fails if the value is not iterable.
inline Value sequence_of(Heap& heap, const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::undefined: break;
    case Kind::list:
    case Kind::tuple: return value;
    case Kind::string: {
      const Text& text = value.text();
      heap.spend(value.characters());
      if (value.characters() > heap.limits().memory / 160) fail_limit("a text has too many characters for a list");
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        utf8::next(text.bytes(), at);
        items.push_back(heap.string(text.part(begin, at)));
      }
      break;
    }
    case Kind::dict:
      heap.spend(value.dict().items.size() / 2);
      for (const auto& [key, member] : value.dict().items) items.push_back(key);
      break;
    case Kind::range: {
      const RangeObject& range = value.range();
      heap.spend(static_cast<std::uint64_t>(range.count));
      for (std::int64_t i = 0; i < range.count; ++i) items.push_back(Value::integer(range.start + i * range.step));
      break;
    }
    case Kind::iterator: {
      const IteratorObject& iterator = value.iterator();
      heap.spend((iterator.items.size() - iterator.next) / 2);
      items.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    case Kind::view:
      heap.spend(value.view().dict.dict().items.size());
      for (std::size_t i = 0; i < value.view().dict.dict().items.size(); ++i) {
        items.push_back(view_item(heap, value.view(), i));
      }
      break;
    default: fail(text("a value of type ", type_name(value), " cannot be iterated"));
  }
  return heap.list(std::move(items));
}

inline bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::iterator:
    case Kind::view: return true;
    default: return false;
  }
}

inline std::int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return static_cast<std::int64_t>(value.characters());
    case Kind::list:
    case Kind::tuple: return static_cast<std::int64_t>(value.items().size());
    case Kind::dict: return static_cast<std::int64_t>(value.dict().items.size());
    case Kind::range: return value.range().count;
    case Kind::view: return static_cast<std::int64_t>(value.view().dict.dict().items.size());
    default: fail(text("a value of type ", type_name(value), " has no length"));
  }
}

/// The byte offset of a string's character `index`, 0 <= index <= number of characters.
inline std::size_t place_of(Heap& heap, const Value& value, std::size_t index) {
  if (value.characters() == value.bytes().size()) return index;
  heap.spend(index / 4);
  std::size_t at = 0;
  for (; index > 0; --index) utf8::next(value.bytes(), at);
  return at;
}

/// Characters [begin, end) of a string.
inline Value characters_of(Heap& heap, const Value& value, std::size_t begin, std::size_t end) {
  const std::size_t first = place_of(heap, value, begin), last = place_of(heap, value, end);
  return heap.string(value.text().part(first, last));
}

/// Item number `index` of what can be indexed, from the end where it is negative.
inline std::optional<Value> indexed(Heap& heap, const Value& value, std::int64_t index) {
  if (!value.is_string() && !value.is_sequence() && !value.is(Kind::range)) return std::nullopt;
  const std::int64_t length = length_of(value);
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  if (value.is_string()) return characters_of(heap, value, at, at + 1);
  if (value.is(Kind::range)) return Value::integer(value.range().start + index * value.range().step);
  return value.items()[at];
}

/// value[start:stop:step]
inline Value sliced(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step) {
  const auto bound = [](const Value& given) -> std::optional<std::int64_t> {
    if (given.is_none()) return std::nullopt;
    if (!given.is_whole()) fail(text("the bounds of a slice are integers, found type ", type_name(given)));
    return given.whole();
  };
  const std::int64_t by = bound(step).value_or(1);
  if (by == 0) fail("the step of a slice cannot be 0");
  const auto first = bound(start), last = bound(stop);
  if (value.is_undefined()) fail(undefined_message(value));
  if (!value.is_string() && !value.is_sequence() && !value.is(Kind::range)) {
    return heap.undefined(text("a value of type ", type_name(value), " has no slices"));
  }
  const std::int64_t length = length_of(value);
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
  const auto clamp = [&](std::int64_t at) {
    if (at < 0) at = at < -length ? low : at + length;
    return std::clamp(at, low, high);
  };
  const std::int64_t from = first ? clamp(*first) : by > 0 ? low : high;
  const std::int64_t to = last ? clamp(*last) : by > 0 ? high : low;
  if (by == 1 && value.is_string()) {
    return characters_of(heap, value, static_cast<std::size_t>(from), static_cast<std::size_t>(std::max(from, to)));
  }
  const Value all = value.is_string() || value.is(Kind::range) ? sequence_of(heap, value) : value;
  std::vector<Value> items;
  for (std::int64_t at = from; by > 0 ? at < to : at > to;) {
    items.push_back(all.items()[static_cast<std::size_t>(at)]);
    heap.spend(1);
    if (by > 0 ? by > to - at : by < to - at) break;
    at += by;
  }
  if (!value.is_string()) return heap.list(std::move(items), value.is(Kind::tuple) ? Kind::tuple : Kind::list);
  Text out;
  for (const Value& item : items) heap.append(out, item.text());
  return heap.string(std::move(out));
}

}}}
