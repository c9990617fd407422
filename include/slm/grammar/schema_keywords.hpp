// The values of keywords that several parts of a schema need.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slm/grammar/decimal.hpp"
#include "slm/grammar/schema_atoms.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// Kinds of JSON values, as bits. `number` is integer and fraction.
namespace kinds {
inline constexpr unsigned null = 1, boolean = 2, integer = 4, fraction = 8, string = 16, array = 32, object = 64,
                          number = integer | fraction, all = 127;
}

inline unsigned kind_of(const JsonText& value) {
  switch (value.type) {
    case JsonText::Type::null: return kinds::null;
    case JsonText::Type::boolean: return kinds::boolean;
    case JsonText::Type::number: return Decimal::parse(value.text).is_integer() ? kinds::integer : kinds::fraction;
    case JsonText::Type::string: return kinds::string;
    case JsonText::Type::array: return kinds::array;
    case JsonText::Type::object: break;
  }
  return kinds::object;
}

/// The kinds that `type` allows.
inline unsigned declared_kinds(const Atom& atom) {
  const JsonText* type = atom.node->find("type");
  if (type == nullptr) return kinds::all;
  const auto one = [&](const JsonText& name) -> unsigned {
    if (name.is(JsonText::Type::string)) {
      if (name.text == "null") return kinds::null;
      if (name.text == "boolean") return kinds::boolean;
      if (name.text == "integer") return kinds::integer;
      if (name.text == "number") return kinds::number;
      if (name.text == "string") return kinds::string;
      if (name.text == "array") return kinds::array;
      if (name.text == "object") return kinds::object;
    }
    fail_schema(child_path(atom.path, "type"), "unknown type");
  };
  if (!type->is(JsonText::Type::array)) return one(*type);
  unsigned allowed = 0;
  for (const JsonText& name : type->items) allowed |= one(name);
  return allowed;
}

/// A keyword whose value is a count.
inline std::optional<std::uint32_t> count_of(const Atom& atom, std::string_view keyword, const GrammarLimits& limits) {
  const JsonText* value = atom.node->find(keyword);
  if (value == nullptr) return std::nullopt;
  const std::string path = child_path(atom.path, keyword);
  if (!value->is(JsonText::Type::number)) fail_schema(path, "expected a number");
  const Decimal number = Decimal::parse(value->text);
  if (number.negative || !number.is_integer()) fail_schema(path, "expected an integer from 0");
  if (number.whole.size() > 9 || std::stoul(number.whole) > limits.count) {
    fail_schema(path, text("the count is above ", limits.count), "grammar.limit");
  }
  return static_cast<std::uint32_t>(std::stoul(number.whole));
}

/// The range that all atoms leave.
struct Counts {
  std::uint32_t least = 0, most = unlimited;

  Counts(const Atoms& atoms, std::string_view least_word, std::string_view most_word, const GrammarLimits& limits) {
    for (const Atom& atom : atoms) {
      least = std::max(least, count_of(atom, least_word, limits).value_or(0));
      most = std::min(most, count_of(atom, most_word, limits).value_or(unlimited));
    }
  }
};

inline std::string text_of(const Atom& atom, std::string_view keyword, const JsonText& value) {
  if (!value.is(JsonText::Type::string)) fail_schema(child_path(atom.path, keyword), "expected a text");
  return value.text;
}

/// Whether a keyword leaves everything allowed.
inline bool is_trivial(const JsonText& value) {
  return (value.is(JsonText::Type::boolean) && value.truth) || (value.is_object() && value.names.empty());
}

}}}
