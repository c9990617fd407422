// Fields: typed access to a request's JSON object. Null fields count as absent.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/json_source.hpp"
#include "api/refusal.hpp"

namespace serve {

inline constexpr std::int64_t most_exact = std::int64_t{1}
                                           << 53;  // largest range of integers that a double represents exactly

/// The integer value; accepts 5.0, but not a string.
inline std::optional<std::int64_t> integer_of(const slm::Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::floor(number) != number || std::abs(number) > static_cast<double>(most_exact)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

/// Refers to the object. check_fields() has checked the types and ranges of a body's top-level fields.
class Fields {
 public:
  /// source: the JSON text that the object was read from, if it is known.
  explicit Fields(const slm::Json& object, std::string_view source = {}) : object_(object), source_(source) {}

  /// A field as JSON text, with the order of names of the source; empty if absent.
  std::string text(std::string_view name) const {
    const slm::Json* field = find(name);
    if (field == nullptr) return {};
    return source_.empty() ? slm::json_text(*field) : std::string{JsonSource(source_).member(name)};
  }

  /// Returns null if absent.
  const slm::Json* find(std::string_view name) const {
    const auto field = object_.find(name);
    return field == object_.end() || field->is_null() ? nullptr : &*field;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::optional<std::int64_t> integer(const char* name) const {
    const slm::Json* field = find(name);
    if (field == nullptr) return std::nullopt;
    const auto value = integer_of(*field);
    if (!value) throw bad(name, *field, "an integer");
    return value;
  }

  double number(const char* name, double otherwise) const {
    const slm::Json* field = find(name);
    if (field == nullptr) return otherwise;
    if (!field->is_number()) throw bad(name, *field, "a number");
    return field->get<double>();
  }

  bool boolean(const char* name, bool otherwise) const {
    const slm::Json* field = find(name);
    if (field == nullptr) return otherwise;
    if (!field->is_boolean()) throw bad(name, *field, "true or false");
    return field->get<bool>();
  }

  std::string string(const char* name, const std::string& otherwise) const {
    const slm::Json* field = find(name);
    if (field == nullptr) return otherwise;
    if (!field->is_string()) throw bad(name, *field, "a string");
    return field->get<std::string>();
  }

  static Refusal bad(const std::string& name, const slm::Json& found, std::string_view expected) {
    return bad_field(name, slm::text("is ", slm::quote_json(found), ", expected ", expected));
  }

 private:
  const slm::Json& object_;
  std::string_view source_;
};

}  // namespace serve
