// Makes values, within the limits of a rendering.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/limits.hpp"
#include "slm/text/jinja/value.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline void build_places(DictObject& dict) {
  if (dict.items.size() < 9) return;
  for (std::size_t i = dict.places.empty() ? 0 : dict.items.size() - 1; i < dict.items.size(); ++i) {
    if (dict.items[i].first.is_string()) dict.places.emplace(dict.items[i].first.bytes(), i);
  }
}

/// Memory of a rendering. Public members: one allocation for each type of value, and the charges against the limits.
class Heap {
 public:
  /// For a program's constants and the variables that it is given: values that outlive a rendering.
  Heap() : metered_(false), steps_(~std::uint64_t{0} >> 1) {}

  /// For a rendering whose variables have this size in bytes.
  Heap(const Limits& limits, std::size_t given)
      : limits_(limits),
        metered_(true),
        steps_(std::min(limits.most_steps, limits.steps + limits.steps_per_byte * std::min(given, limits.text))),
        end_(std::chrono::steady_clock::now() + limits.time) {}

  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const Limits& limits() const { return limits_; }

  /// Counts work.
  void spend(std::uint64_t steps) {
    if (steps > steps_) fail_limit("the template takes more steps than are allowed");
    steps_ -= steps;
    until_clock_ -= static_cast<std::int64_t>(std::min<std::uint64_t>(steps, 1u << 20));
    if (until_clock_ > 0 || !metered_) return;
    until_clock_ = 4096;
    if (std::chrono::steady_clock::now() > end_) fail_limit("the template takes more time than is allowed");
  }

  /// Counts the copy of a number of bytes, or a comparison of them.
  void spend_bytes(std::size_t bytes) { spend(bytes / 16); }

  /// Counts a visit of all characters of a string: those outside ASCII are looked up in tables.
  void spend_characters(const Value& string) {
    const std::size_t size = string.bytes().size();
    spend(string.characters() == size ? size / 4 : size);
  }

  /// Refuses a text before it is built. bytes: with those that its runs take.
  void check_size(std::size_t bytes) const {
    if (bytes > limits_.text) fail_limit("a text grows beyond " + std::to_string(limits_.text) + " bytes");
  }

  /// Appends to a text that is being built. part: the arguments of Text::append.
  template <class... Part>
  void append(Text& out, const Part&... part) {
    const std::size_t before = out.memory();
    out.append(part...);
    check_size(out.memory());
    spend(1 + (out.memory() - before) / 16);
  }

  Value string(Text text) {
    check_size(text.memory());
    spend(2 + text.memory() / 16);
    auto made = std::make_shared<StringObject>();
    made->characters = utf8::count(text.bytes());
    made->text = std::move(text);
    charge(*made, sizeof(StringObject) + made->text.memory());
    return Value::of(Kind::string, std::move(made));
  }
  Value string(std::string_view bytes, Origin origin = Origin::written) { return string(Text(bytes, origin)); }

  /// message: what its use in an operation is answered with.
  Value undefined(std::string_view message) {
    auto made = std::make_shared<StringObject>();
    spend(4 + message.size() / 16);
    made->text = Text(message, Origin::written);
    charge(*made, sizeof(StringObject) + message.size());
    return Value::of(Kind::undefined, std::move(made));
  }

  Value list(std::vector<Value> items, Kind kind = Kind::list, bool group = false) {
    auto made = std::make_shared<ListObject>();
    made->group = group;
    hold(*made, std::move(items));
    return Value::of(kind, std::move(made));
  }
  Value tuple(std::vector<Value> items) { return list(std::move(items), Kind::tuple); }

  Value iterator(std::vector<Value> items) {
    auto made = std::make_shared<IteratorObject>();
    hold(*made, std::move(items));
    return Value::of(Kind::iterator, std::move(made));
  }

  /// The keys must differ.
  Value dict(std::unique_ptr<DictObject> made) {
    for (const auto& [key, value] : made->items) deepen(*made, std::max(key.depth(), value.depth()));
    spend(made->items.size());
    charge(*made, sizeof(DictObject) + made->items.size() * (2 * sizeof(Value) + (made->places.empty() ? 0 : 64)));
    return Value::of(Kind::dict, std::shared_ptr<const Object>(std::move(made)));
  }

  Value view(const Value& dict, ViewObject::Part part) {
    auto made = std::make_shared<ViewObject>();
    made->part = part;
    made->dict = dict;
    deepen(*made, dict.depth());
    charge(*made, sizeof(ViewObject));
    return Value::of(Kind::view, std::move(made));
  }

  Value range(std::int64_t start, std::int64_t step, std::int64_t count) {
    auto made = std::make_shared<RangeObject>();
    made->start = start;
    made->step = step;
    made->count = count;
    charge(*made, sizeof(RangeObject));
    return Value::of(Kind::range, std::move(made));
  }

  Value callable(Kind kind, std::unique_ptr<CallableObject> made) {
    deepen(*made, made->self.depth());
    for (const auto& [name, value] : made->captured) deepen(*made, value.depth());
    charge(*made, sizeof(CallableObject) + made->captured.size() * 48);
    return Value::of(kind, std::shared_ptr<const Object>(std::move(made)));
  }

  template <class Made>
  Made& cell() {
    charge(sizeof(Made) + 64);
    cells_.push_back(std::make_unique<Made>());
    return static_cast<Made&>(*cells_.back());
  }

  /// Counts memory that stays until the rendering ends.
  void charge(std::size_t bytes) {
    if (!metered_) return;
    meter_.live += bytes;
    if (meter_.live > limits_.memory) {
      fail_limit("the template takes more memory than " + std::to_string(limits_.memory) + " bytes");
    }
    spend(2);
  }

 private:
  /// Counts memory until the object is destroyed.
  void charge(Object& object, std::size_t bytes) {
    if (!metered_) return;
    object.meter = &meter_;
    object.charged += bytes;
    charge(bytes);
  }

  void deepen(Object& object, int depth) const {
    object.depth = std::max(object.depth, depth + 1);
    if (object.depth > limits_.nesting) {
      fail_limit("values nest more than " + std::to_string(limits_.nesting) + " levels deep");
    }
  }

  template <class Made>
  void hold(Made& made, std::vector<Value> items) {
    for (const Value& item : items) deepen(made, item.depth());
    spend(items.size() / 2);
    made.items = std::move(items);
    charge(made, sizeof(Made) + made.items.size() * sizeof(Value));
  }

  Limits limits_;
  bool metered_;
  std::uint64_t steps_;
  std::int64_t until_clock_ = 4096;
  std::chrono::steady_clock::time_point end_;
  Meter meter_;
  std::vector<std::unique_ptr<Cell>> cells_;
};

}}}
