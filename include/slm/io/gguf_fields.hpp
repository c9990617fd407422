// The metadata of a GGUF file: values that lie in the file's bytes, read key by key.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"

namespace slm { inline namespace v0_1 {

/// The numbers are the file's.
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

/// Bytes of one value; 0 of those that have no fixed size.
constexpr std::size_t bytes_of(GgufValueType type) {
  constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<std::size_t>(type)];
}

/// One value, or an array of values of one type. It refers to the file's bytes, which have been checked to hold it.
struct GgufValue {
  GgufValueType type = GgufValueType::u8;  // of an array: its elements'
  bool is_array = false;
  std::uint64_t count = 1;
  const std::byte* bytes = nullptr;

  bool is_integer() const { return type <= GgufValueType::i32 || type == GgufValueType::u64 || is(GgufValueType::i64); }
  bool is(GgufValueType other) const { return type == other; }

  /// The integer at a place; none where it is none, or beyond 63 bits.
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
      default: return std::nullopt;
    }
  }

  /// The floating-point number at a place; none where it is none.
  std::optional<double> number(std::uint64_t place = 0) const {
    const std::byte* at = bytes + place * bytes_of(type);
    if (is(GgufValueType::f32)) return load_unaligned<float>(at);
    if (is(GgufValueType::f64)) return load_unaligned<double>(at);
    return std::nullopt;
  }

  bool boolean() const { return *bytes != std::byte{0}; }

  /// The strings, one after the other; the value must be of strings.
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

  /// Its type and, where that is short, its content, for messages.
  std::string described() const {
    if (is_array) return text("an array of ", count, " ", name_of(type));
    if (is(GgufValueType::string)) return text("the string ", quote(string()));
    if (is(GgufValueType::boolean)) return boolean() ? "true" : "false";
    const auto integer_value = integer();
    return text(name_of(type), " ",
                integer_value ? std::to_string(*integer_value) : std::to_string(number().value_or(0)));
  }
};

/// The metadata by key. It refers to the file's bytes.
class GgufFields {
 public:
  using Entry = std::pair<std::string_view, GgufValue>;

  /// The entries are in the order of their keys, which differ.
  GgufFields(std::vector<Entry> entries, std::string file) : entries_(std::move(entries)), file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const std::vector<Entry>& entries() const { return entries_; }

  /// Null when there is none.
  const GgufValue* find(std::string_view key) const {
    const auto before = [](const Entry& entry, std::string_view wanted) { return entry.first < wanted; };
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), key, before);
    return found == entries_.end() || found->first != key ? nullptr : &found->second;
  }

  bool has(std::string_view key) const { return find(key) != nullptr; }

  const GgufValue& at(std::string_view key) const {
    if (const GgufValue* value = find(key)) return *value;
    throw Error("gguf.missing-key", text("'", file_, "' has no key '", key, "'"),
                "Convert the model again with a present convert_hf_to_gguf.py");
  }

  /// Any type of integer whose value lies in the range.
  int integer(std::string_view key, int smallest, int largest) const {
    const GgufValue& value = single(key, "an integer");
    const auto found = value.integer();
    if (!value.is_integer()) throw bad(key, "an integer");
    if (!found || *found < smallest || *found > largest) {
      throw bad(key, text("an integer of ", smallest, "..", largest));
    }
    return static_cast<int>(*found);
  }

  int integer(std::string_view key, int smallest, int largest, int otherwise) const {
    return has(key) ? integer(key, smallest, largest) : otherwise;
  }

  /// A finite f32 or f64 in [smallest, largest].
  float number(std::string_view key, double smallest, double largest) const {
    const auto found = single(key, "a floating-point number").number();
    if (!found) throw bad(key, "a floating-point number");
    if (!(*found >= smallest && *found <= largest)) throw bad(key, text("a number of ", smallest, "..", largest));
    return static_cast<float>(*found);
  }

  float number(std::string_view key, double smallest, double largest, float otherwise) const {
    return has(key) ? number(key, smallest, largest) : otherwise;
  }

  bool boolean(std::string_view key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const GgufValue& value = single(key, "true or false");
    if (!value.is(GgufValueType::boolean)) throw bad(key, "true or false");
    return value.boolean();
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

  /// An array of exactly `count` elements of one type.
  const GgufValue& array(std::string_view key, GgufValueType type, std::size_t count) const {
    const GgufValue& value = at(key);
    if (!value.is_array || !value.is(type) || value.count != count) {
      throw bad(key, text("an array of ", count, " ", name_of(type)));
    }
    return value;
  }

  Error bad(std::string_view key, std::string_view expected) const {
    return Error("gguf.bad-value",
                 text("'", file_, "': key '", key, "' is ", at(key).described(), ", expected ", expected),
                 "Convert the model again, or take its file from another source");
  }

 private:
  const GgufValue& single(std::string_view key, std::string_view expected) const {
    const GgufValue& value = at(key);
    if (value.is_array) throw bad(key, expected);
    return value;
  }

  std::vector<Entry> entries_;
  std::string file_;
};

}}
