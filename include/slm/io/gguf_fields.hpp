// Metadata of a GGUF file: values in the file's bytes, accessed by key.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// Value types by their numbers in the file.
enum class GgufValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

constexpr std::string_view name_of(GgufValueType type) {
  constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

/// Bytes per value; 0 for types of variable size.
constexpr std::size_t bytes_of(GgufValueType type) {
  constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<std::size_t>(type)];
}

/// One value, or an array of values of one type. Refers to the file's bytes, whose length was checked.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;  // for arrays: the elements' type
  bool is_array = false;
  std::uint64_t count = 1;
  const std::byte* bytes = nullptr;

  bool is(GgufValueType other) const { return type == other; }

  /// The integer at an index, of any integer type; none if it is not an integer of at most 63 bits.
  std::optional<std::int64_t> integer(std::uint64_t place = 0) const {
    const std::byte* at = bytes + place * bytes_of(type);
    switch (type) {
      case GgufValueType::u8: return load_unaligned<std::uint8_t>(at);
      case GgufValueType::i8: return load_unaligned<std::int8_t>(at);
      case GgufValueType::u16: return load_unaligned<std::uint16_t>(at);
      case GgufValueType::i16: return load_unaligned<std::int16_t>(at);
      case GgufValueType::u32: return load_unaligned<std::uint32_t>(at);
      case GgufValueType::i32: return load_unaligned<std::int32_t>(at);
      case GgufValueType::i64: return load_unaligned<std::int64_t>(at);
      case GgufValueType::u64: {
        const auto value = load_unaligned<std::uint64_t>(at);
        if (value > std::uint64_t(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
        return static_cast<std::int64_t>(value);
      }
      case GgufValueType::f32:
      case GgufValueType::f64: {
        const double value = *number(place);
        if (std::trunc(value) != value || !(std::abs(value) < 0x1p63)) return std::nullopt;
        return static_cast<std::int64_t>(value);
      }
      default: return std::nullopt;
    }
  }

  /// The number at an index, of any numeric type; none if it is not a number.
  std::optional<double> number(std::uint64_t place = 0) const {
    const std::byte* at = bytes + place * bytes_of(type);
    if (is(GgufValueType::f32)) return load_unaligned<float>(at);
    if (is(GgufValueType::f64)) return load_unaligned<double>(at);
    if (is(GgufValueType::u64)) return static_cast<double>(load_unaligned<std::uint64_t>(at));
    const auto whole = integer(place);
    return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
  }

  /// A Boolean value, or the number 0 or 1; none otherwise.
  std::optional<bool> boolean(std::uint64_t place = 0) const {
    if (is(GgufValueType::boolean)) return bytes[place] != std::byte{0};
    const auto value = number(place);
    return value == 0.0 || value == 1.0 ? std::optional(value == 1.0) : std::nullopt;
  }

  /// Calls visit(string) for each string; the value must be of strings.
  template <class Visit>
  void each_string(Visit&& visit) const {
    const std::byte* at = bytes;
    for (std::uint64_t place = 0; place < count; ++place) {
      const auto length = static_cast<std::size_t>(load_unaligned<std::uint64_t>(at));
      visit(std::string_view{reinterpret_cast<const char*>(at) + 8, length});
      at += 8 + length;
    }
  }

  std::string_view string() const {
    std::string_view found;
    each_string([&](std::string_view value) { found = value; });
    return found;
  }

  /// Its type, and its content if short, for messages.
  std::string described() const {
    if (is_array) return text("an array of ", count, " ", name_of(type));
    if (is(GgufValueType::string)) return text("the string ", quote(string()));
    if (is(GgufValueType::boolean)) return *boolean() ? "true" : "false";
    if (is(GgufValueType::u64)) return text("u64 ", load_unaligned<std::uint64_t>(bytes));
    if (const auto whole = integer()) return text(name_of(type), " ", *whole);
    return text(name_of(type), " ", *number());
  }
};

/// Metadata by key. Refers to the file's bytes.
class GgufFields {
 public:
  using Entry = std::pair<std::string_view, GgufValue>;

  /// Entries must be sorted by key, without duplicates.
  GgufFields(std::vector<Entry> entries, std::string file) : entries_(std::move(entries)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const std::vector<Entry>& entries() const { return entries_; }

  /// Returns null if there is none.
  const GgufValue* find(std::string_view key) const {
    const auto before = [](const Entry& entry, std::string_view wanted) { return entry.first < wanted; };
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), key, before);
    return found == entries_.end() || found->first != key ? nullptr : &found->second;
  }

  bool has(std::string_view key) const { return find(key) != nullptr; }

  const GgufValue& at(std::string_view key) const {
    if (const GgufValue* value = find(key)) return *value;
    throw Error("gguf.missing-key", text("'", file_, "' has no key '", key, "'"),
                "Convert the model again with a current convert_hf_to_gguf.py");
  }

  /// An integer of any integer type, in [smallest, largest].
  int integer(std::string_view key, int smallest, int largest) const {
    const std::string expected = text("an integer of ", smallest, "..", largest);
    const auto found = single(key, expected).integer();
    if (!found || *found < smallest || *found > largest) throw bad(key, expected);
    return static_cast<int>(*found);
  }

  int integer(std::string_view key, int smallest, int largest, int otherwise) const {
    return has(key) ? integer(key, smallest, largest) : otherwise;
  }

  /// A token id, an integer of any type; none if the key is absent or the id is not below `limit`: -1 and 2^32 - 1 mean
  /// no token.
  std::optional<Token> token(std::string_view key, int limit) const {
    if (!has(key)) return std::nullopt;
    const auto found = single(key, "an integer").number();
    if (!found || std::trunc(*found) != *found) throw bad(key, "an integer");
    return *found >= 0 && *found < limit ? std::optional(static_cast<Token>(*found)) : std::nullopt;
  }

  /// A number of any numeric type, in [smallest, largest].
  float number(std::string_view key, double smallest, double largest) const {
    const std::string expected = text("a number of ", smallest, "..", largest);
    const auto found = single(key, expected).number();
    if (!found || !(*found >= smallest && *found <= largest)) throw bad(key, expected);
    return static_cast<float>(*found);
  }

  float number(std::string_view key, double smallest, double largest, float otherwise) const {
    return has(key) ? number(key, smallest, largest) : otherwise;
  }

  bool boolean(std::string_view key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const auto found = single(key, "true or false").boolean();
    if (!found) throw bad(key, "true or false");
    return *found;
  }

  std::string_view string(std::string_view key) const {
    const GgufValue& value = single(key, "a string");
    if (!value.is(GgufValueType::string)) throw bad(key, "a string");
    return value.string();
  }

  std::string_view string(std::string_view key, std::string_view otherwise) const {
    return has(key) ? string(key) : otherwise;
  }

  /// An array of strings.
  std::vector<std::string_view> strings(std::string_view key) const {
    const GgufValue& value = at(key);
    if (!value.is_array || !value.is(GgufValueType::string)) throw bad(key, "an array of strings");
    std::vector<std::string_view> all;
    all.reserve(static_cast<std::size_t>(value.count));
    value.each_string([&](std::string_view element) { all.push_back(element); });
    return all;
  }

  /// An array of exactly `count` integers of any type.
  std::vector<std::int64_t> integers(std::string_view key, std::size_t count) const {
    return array(key, count, "integers", &GgufValue::integer);
  }

  /// An array of exactly `count` numbers of any type.
  std::vector<double> numbers(std::string_view key, std::size_t count) const {
    return array(key, count, "numbers", &GgufValue::number);
  }

  /// An array of exactly `count` Boolean values, or numbers 0 and 1.
  std::vector<bool> booleans(std::string_view key, std::size_t count) const {
    return array(key, count, "Boolean values", &GgufValue::boolean);
  }

  Error bad(std::string_view key, std::string_view expected) const {
    return Error("gguf.bad-value",
                 text("'", file_, "': key '", key, "' is ", at(key).described(), ", expected ", expected),
                 "Convert the model again, or get its file from another source");
  }

 private:
  const GgufValue& single(std::string_view key, std::string_view expected) const {
    const GgufValue& value = at(key);
    if (value.is_array) throw bad(key, expected);
    return value;
  }

  template <class Element>
  std::vector<Element> array(std::string_view key, std::size_t count, std::string_view kind,
                             std::optional<Element> (GgufValue::*element)(std::uint64_t) const) const {
    std::vector<Element> all;
    const GgufValue& value = at(key);
    if (!value.is_array || value.count != count) throw bad(key, text("an array of ", count, " ", kind));
    all.reserve(count);
    for (std::uint64_t place = 0; place < count; ++place) {
      const auto found = (value.*element)(place);
      if (!found) throw bad(key, text("an array of ", count, " ", kind));
      all.push_back(*found);
    }
    return all;
  }

  std::vector<Entry> entries_;
  std::string file_;
};

}}
