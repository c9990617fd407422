// The interface of filters, tests and methods to a rendering: its values, its date, the arguments of their call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/dates.hpp"
#include "slm/text/jinja/sequences.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// The arguments of a call.
struct Call {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments by the names of their parameters.
class Given {
 public:
  static constexpr std::size_t most = 8;

  Given(std::string_view function, const Call& call, std::initializer_list<std::string_view> names)
      : function_(function) {
    if (call.positional.size() > names.size()) {
      fail(text("'", function, "' takes at most ", names.size(), " arguments, got ", call.positional.size()));
    }
    for (std::size_t i = 0; i < call.positional.size(); ++i) values_[i] = &call.positional[i];
    for (const auto& [name, value] : call.named) {
      const auto* place = std::find(names.begin(), names.end(), name);
      const auto index = static_cast<std::size_t>(place - names.begin());
      if (place == names.end()) fail(text("'", function, "' has no parameter ", quote(name)));
      if (values_[index] != nullptr) fail(text("'", function, "' got the argument ", quote(name), " twice"));
      values_[index] = &value;
    }
  }

  bool has(std::size_t index) const { return values_[index] != nullptr; }

  const Value& at(std::size_t index) const {
    if (!has(index)) fail(text("'", function_, "' lacks its argument ", index + 1));
    return *values_[index];
  }
  Value at(std::size_t index, Value otherwise) const { return has(index) ? *values_[index] : otherwise; }

  bool flag(std::size_t index, bool otherwise = false) const {
    return has(index) ? is_true(*values_[index]) : otherwise;
  }

  std::int64_t whole(std::size_t index) const {
    const Value& value = at(index);
    need(value);
    if (!value.is_whole()) fail(text("'", function_, "' expects an integer, got the type ", type_name(value)));
    return value.whole();
  }
  std::int64_t whole(std::size_t index, std::int64_t otherwise) const { return has(index) ? whole(index) : otherwise; }

  const Value& string(std::size_t index) const {
    const Value& value = at(index);
    need(value);
    if (!value.is_string()) fail(text("'", function_, "' expects a string, got the type ", type_name(value)));
    return value;
  }
  bool given(std::size_t index) const { return has(index) && !values_[index]->is_none(); }

 private:
  std::string_view function_;
  const Value* values_[most] = {};
};

class Runtime {
 public:
  Runtime(const Limits& limits, std::size_t given, const Date& date) : heap(limits, given), now(date) {}

  Heap heap;
  Date now;

  /// value.name: an attribute or method of the value, else its item of that name, else undefined.
  Value attribute(const Value& value, const Value& name);

  /// value[key]: the item, else the attribute, else undefined.
  Value item(const Value& value, const Value& key);

  /// An attribute of a loop or a macro, which may be stored in `made`; null if there is none of that name.
  virtual const Value* own(const Value& value, std::string_view name, Value& made) = 0;

 protected:
  ~Runtime() = default;

 private:
  const Value* own_attribute(const Value& value, std::string_view name, Value& made);
  Value missing(const Value& value, const Value& name);
};

using Method = Value (*)(Runtime&, const Value& self, const Call&);
using Filter = Value (*)(Runtime&, const Value& value, const Call&);
using Test = bool (*)(Runtime&, const Value& value, const Call&);

/// The number of a value's method; 0 where it has none of that name.
int method_named(Kind kind, std::string_view name);

/// Whether a method of that name changes its value, which templates may not.
bool is_refused(Kind kind, std::string_view name);

inline const Value* Runtime::own_attribute(const Value& value, std::string_view name, Value& made) {
  switch (value.kind()) {
    case Kind::space: {
      const auto& members = static_cast<const SpaceCell*>(value.cell())->members;
      const auto member = members.find(name);
      return member == members.end() ? nullptr : &member->second;
    }
    case Kind::loop:
      if (const Value* found = own(value, name, made)) return found;
      break;
    case Kind::cycler: {
      const auto& cycler = *static_cast<const CyclerCell*>(value.cell());
      if (name == "current") return made = cycler.items[cycler.at], &made;
      break;
    }
    case Kind::macro: {
      const Node& node = *value.callable().macro;
      if (name == "name") return &node.value;
      const Parts& parts = *node.parts;
      if (name == "catch_kwargs") return made = Value::boolean(parts.takes_dict), &made;
      if (name == "catch_varargs") return made = Value::boolean(parts.takes_list), &made;
      if (name == "caller") return made = Value::boolean(parts.takes_caller), &made;
      if (const Value* found = own(value, name, made)) return found;
      break;
    }
    case Kind::tuple:
      if (static_cast<const ListObject&>(*value.object()).group) {
        if (name == "grouper") return &value.items()[0];
        if (name == "list") return &value.items()[1];
      }
      break;
    default: break;
  }
  const int method = method_named(value.kind(), name);
  if (method == 0) return nullptr;
  auto bound = std::make_unique<CallableObject>();
  bound->self = value;
  bound->method = method;
  made = heap.callable(Kind::method, std::move(bound));
  return &made;
}

inline Value Runtime::missing(const Value& value, const Value& name) {
  if (name.is_string()) {
    const std::string_view member = name.bytes();
    if (member.starts_with("__") || is_refused(value.kind(), member)) {
      return heap.undefined(
          text("a template may not use the attribute ", quote(member), " of type ", type_name(value)));
    }
    return heap.undefined(text("a value of type ", type_name(value), " has no attribute ", quote(member)));
  }
  return heap.undefined(text("a value of type ", type_name(value), " has no such item"));
}

inline Value Runtime::attribute(const Value& value, const Value& name) {
  need(value);
  Value made;
  if (const Value* own = own_attribute(value, name.bytes(), made)) return *own;
  if (value.is(Kind::dict) && !is_refused(Kind::dict, name.bytes()) && !name.bytes().starts_with("__")) {
    if (const Value* found = find(heap, value, name)) return *found;
  }
  return missing(value, name);
}

inline Value Runtime::item(const Value& value, const Value& key) {
  need(value);
  if (value.is(Kind::dict)) {
    if (const Value* found = find(heap, value, key)) return *found;
  } else if (key.is_whole()) {
    if (auto found = indexed(heap, value, key.whole())) return *std::move(found);
  }
  Value made;
  if (key.is_string()) {
    if (const Value* own = own_attribute(value, key.bytes(), made)) return *own;
  }
  return missing(value, key);
}

}}}
