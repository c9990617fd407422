// Python's operators on values: truth, comparison, arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/equality.hpp"
#include "slm/text/jinja/format.hpp"
#include "slm/text/jinja/heap.hpp"
#include "slm/text/jinja/print.hpp"
#include "slm/text/jinja/search.hpp"
#include "slm/text/jinja/syntax.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.whole() != 0;
    case Kind::real: return value.number() != 0;
    case Kind::string: return !value.bytes().empty();
    case Kind::list:
    case Kind::tuple: return !value.items().empty();
    case Kind::dict: return !value.dict().items.empty();
    case Kind::range: return value.range().count > 0;
    case Kind::view: return !value.view().dict.dict().items.empty();
    default: return true;
  }
}

/// A dict that is built member by member.
class DictBuilder {
 public:
  explicit DictBuilder(Heap& heap) : heap_(&heap) {}

  void set(Value key, Value value) {
    if (key.is(Kind::list) || key.is(Kind::dict)) fail(text("a key cannot be of type ", type_name(key)));
    heap_->spend(2);
    if (Value* place = find_place(key)) {
      *place = std::move(value);
      return;
    }
    made_->items.emplace_back(std::move(key), std::move(value));
    build_places(*made_);
  }

  /// Gives the newest member its value.
  void set_last(Value value) { made_->items.back().second = std::move(value); }

  std::size_t size() const { return made_->items.size(); }

  Value take() { return heap_->dict(std::move(made_)); }

 private:
  Value* find_place(const Value& key) {
    if (key.is_string() && !made_->places.empty()) {
      heap_->spend(4);
      const auto place = made_->places.find(key.bytes());
      return place == made_->places.end() ? nullptr : &made_->items[place->second].second;
    }
    heap_->spend(made_->items.size() / 4);
    for (auto& [name, value] : made_->items) {
      if (equal(*heap_, name, key)) return &value;
    }
    return nullptr;
  }

  Heap* heap_;
  std::unique_ptr<DictObject> made_ = std::make_unique<DictObject>();
};

/// Python's order; fails for values that have none.
inline std::partial_ordering order(Heap& heap, const Value& a, const Value& b) {
  heap.spend(1);
  need(a);
  need(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() <=> b.whole();
    return a.number() <=> b.number();
  }
  if (a.is_string() && b.is_string()) {
    heap.spend_bytes(std::min(a.bytes().size(), b.bytes().size()));
    const int sign = a.bytes().compare(b.bytes());
    return sign <=> 0;
  }
  if (a.kind() == b.kind() && a.is_sequence()) {
    const std::size_t both = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < both; ++i) {
      if (!equal(heap, a.items()[i], b.items()[i])) return order(heap, a.items()[i], b.items()[i]);
    }
    return a.items().size() <=> b.items().size();
  }
  fail(text("values of the types ", type_name(a), " and ", type_name(b), " have no order"));
}

/// Python's `a in b`
inline bool contains(Heap& heap, const Value& a, const Value& b) {
  const auto among = [&](const std::vector<Value>& items, std::size_t from = 0) {
    for (std::size_t i = from; i < items.size(); ++i) {
      if (equal(heap, items[i], a)) return i;
    }
    return items.size();
  };
  switch (b.kind()) {
    case Kind::undefined: return false;
    case Kind::string:
      if (!a.is_string()) fail(text("expected a string before `in`, found type ", type_name(a)));
      return Search(heap, a.bytes()).in(b.bytes()) != Search::none;
    case Kind::list:
    case Kind::tuple: return among(b.items()) < b.items().size();
    case Kind::dict: return find(heap, b, a) != nullptr;
    case Kind::range: {
      const RangeObject& range = b.range();
      if (!a.is_whole()) return false;
      std::int64_t distance;
      if (__builtin_sub_overflow(a.whole(), range.start, &distance)) return false;
      return range.count > 0 && (range.step != -1 || distance != std::numeric_limits<std::int64_t>::min()) &&
             distance % range.step == 0 && distance / range.step >= 0 && distance / range.step < range.count;
    }
    case Kind::iterator: {
      const IteratorObject& iterator = b.iterator();
      const std::size_t at = among(iterator.items, iterator.next);
      iterator.next = std::min(at + 1, iterator.items.size());
      return at < iterator.items.size();
    }
    case Kind::view: {
      const auto& view = b.view();
      if (view.part == ViewObject::Part::keys) return find(heap, view.dict, a) != nullptr;
      for (const auto& [key, value] : view.dict.dict().items) {
        if (view.part == ViewObject::Part::values && equal(heap, value, a)) return true;
        if (view.part == ViewObject::Part::items && a.is(Kind::tuple) && a.items().size() == 2 &&
            equal(heap, key, a.items()[0]) && equal(heap, value, a.items()[1])) {
          return true;
        }
      }
      return false;
    }
    default: fail(text("a value of type ", type_name(b), " cannot be searched with `in`"));
  }
}

[[noreturn]] inline void fail_overflow() { fail("the result does not fit into 64 bits"); }

inline Value repeated(Heap& heap, const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is_string()) {
    const Text& text = value.text();
    const std::size_t size = text.size(), memory = text.runs().size() > 1 ? text.memory() : size;  // one run stays one
    if (size > 0 && count > heap.limits().text / memory) heap.check_size(heap.limits().text + 1);
    heap.spend_bytes(memory * (size > 0 ? count : 0));
    Text out;
    if (size > 0 && count > 0) out = value.text();
    while (out.size() < size * count) out.append(Text(out), 0, std::min(out.size(), size * count - out.size()));
    return heap.string(std::move(out));
  }
  const std::size_t size = value.items().size();
  if (size > 0 && count > heap.limits().memory / sizeof(Value) / size) fail_limit("a list grows beyond all memory");
  heap.spend(size * (size > 0 ? count : 0));
  std::vector<Value> items;
  items.reserve(size * (size > 0 ? count : 0));
  for (std::size_t i = 0; size > 0 && i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return heap.list(std::move(items), value.kind());
}

inline Value joined(Heap& heap, const Value& a, const Value& b) {
  if (a.is_string()) {
    Text out;
    out.reserve(a.bytes().size() + b.bytes().size());
    const bool safe = a.is_safe() || b.is_safe();
    for (const Value* part : {&a, &b}) {
      if (safe && !part->is_safe()) {
        heap.spend_characters(*part);
        heap.append(out, escaped(part->text()));
      } else {
        heap.append(out, part->text());
      }
    }
    const Value made = heap.string(std::move(out));
    return safe ? made.safe() : made;
  }
  const std::size_t size = a.items().size() + b.items().size();
  heap.spend(size / 2);
  std::vector<Value> items;
  items.reserve(size);
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return heap.list(std::move(items), a.kind());
}

inline std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) fail_overflow();
    return result;
  }
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

inline std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

inline double real_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

[[noreturn]] inline void fail_operands(std::string_view sign, const Value& a, const Value& b) {
  fail(text("`", sign, "` does not apply to the types ", type_name(a), " and ", type_name(b)));
}

inline std::string_view sign_text(Sign sign) {
  constexpr std::string_view texts[]{"+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return texts[static_cast<std::size_t>(sign)];
}

inline Value arithmetic(Heap& heap, Sign sign, const Value& a, const Value& b) {
  need(a);
  need(b);
  const bool whole = a.is_whole() && b.is_whole(), numbers = a.is_number() && b.is_number();
  std::int64_t result = 0;
  switch (sign) {
    case Sign::add:
      if (whole) {
        if (__builtin_add_overflow(a.whole(), b.whole(), &result)) fail_overflow();
        return Value::integer(result);
      }
      if (numbers) return Value::real(a.number() + b.number());
      if (a.kind() == b.kind() && (a.is_string() || a.is_sequence())) return joined(heap, a, b);
      break;
    case Sign::subtract:
      if (whole) {
        if (__builtin_sub_overflow(a.whole(), b.whole(), &result)) fail_overflow();
        return Value::integer(result);
      }
      if (numbers) return Value::real(a.number() - b.number());
      break;
    case Sign::multiply:
      if (whole) {
        if (__builtin_mul_overflow(a.whole(), b.whole(), &result)) fail_overflow();
        return Value::integer(result);
      }
      if (numbers) return Value::real(a.number() * b.number());
      if ((a.is_string() || a.is_sequence()) && b.is_whole()) return repeated(heap, a, b.whole());
      if ((b.is_string() || b.is_sequence()) && a.is_whole()) return repeated(heap, b, a.whole());
      break;
    case Sign::modulo:
      if (a.is_string()) return heap.string(percent_formatted(heap, a.text(), b, nullptr));
      [[fallthrough]];
    case Sign::divide:
    case Sign::floor:
      if (!numbers) break;
      if (b.number() == 0) fail("division by zero");
      if (sign == Sign::divide) return Value::real(a.number() / b.number());
      if (sign == Sign::floor) {
        if (whole) return Value::integer(floor_divide(a.whole(), b.whole()));
        return Value::real(std::floor(a.number() / b.number()));
      }
      if (whole) return Value::integer(floor_modulo(a.whole(), b.whole()));
      heap.spend(50);  // where the exponents are far apart
      return Value::real(real_modulo(a.number(), b.number()));
    default: break;
  }
  fail_operands(sign_text(sign), a, b);
}

inline Value raised(const Value& a, const Value& b) {
  need(a);
  need(b);
  if (!a.is_number() || !b.is_number()) fail_operands("**", a, b);
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) {
    if (a.number() == 0 && b.number() < 0) fail("0 cannot be raised to a negative power");
    return Value::real(std::pow(a.number(), b.number()));
  }
  std::int64_t result = 1, base = a.whole();
  for (std::int64_t power = b.whole(); power > 0; power >>= 1) {
    if ((power & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    if (power > 1 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value::integer(result);
}

inline Value negated(const Value& value) {
  need(value);
  if (value.is(Kind::real)) return Value::real(-value.number());
  if (!value.is_whole()) fail(text("`-` does not apply to the type ", type_name(value)));
  return Value::integer(floor_divide(value.whole(), -1));
}

inline bool compared(Heap& heap, Sign sign, const Value& a, const Value& b) {
  switch (sign) {
    case Sign::equal: return equal(heap, a, b);
    case Sign::unequal: return !equal(heap, a, b);
    case Sign::in: return contains(heap, a, b);
    case Sign::not_in: return !contains(heap, a, b);
    case Sign::less: return order(heap, a, b) < 0;
    case Sign::less_equal: return order(heap, a, b) <= 0;
    case Sign::greater: return order(heap, a, b) > 0;
    default: return order(heap, a, b) >= 0;
  }
}

}}}
