// Equal values, and members of a dict by their keys.
#pragma once

#include <algorithm>
#include <string_view>

#include "slm/text/jinja/heap.hpp"
#include "slm/text/jinja/value.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline const Value* find(Heap& heap, const Value& dict, const Value& key);

/// Python's ==
inline bool equal(Heap& heap, const Value& a, const Value& b) {
  heap.spend(1);
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string:
      if (a.bytes().size() == b.bytes().size()) heap.spend_bytes(a.bytes().size());
      return a.bytes() == b.bytes();
    case Kind::list:
    case Kind::tuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& x, const Value& y) { return equal(heap, x, y); });
    case Kind::dict:
      if (a.dict().items.size() != b.dict().items.size()) return false;
      for (const auto& [key, value] : a.dict().items) {
        const Value* other = find(heap, b, key);
        if (other == nullptr || !equal(heap, value, *other)) return false;
      }
      return true;
    case Kind::range:
      return a.range().start == b.range().start && a.range().count == b.range().count &&
             a.range().step == b.range().step;
    case Kind::space:
    case Kind::loop:
    case Kind::cycler:
    case Kind::joiner: return a.cell() == b.cell();
    case Kind::function: return a.whole() == b.whole();
    default: return a.object() == b.object();
  }
}

/// The value of a key, if the dict has it.
inline const Value* find(Heap& heap, const Value& dict, const Value& key) {
  const DictObject& object = dict.dict();
  if (key.is_string() && !object.places.empty()) {
    heap.spend(4);
    const auto place = object.places.find(key.bytes());
    return place == object.places.end() ? nullptr : &object.items[place->second].second;
  }
  heap.spend(1 + object.items.size() / 4);
  for (const auto& [name, value] : object.items) {
    if (key.is_string() ? name.is_string() && name.bytes() == key.bytes() : equal(heap, name, key)) return &value;
  }
  return nullptr;
}

}}}
