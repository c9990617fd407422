// Writes GGUF files atomically.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/formats/gguf_types.hpp"
#include "slm/io/gguf_fields.hpp"
#include "slm/io/write_file.hpp"

namespace slm { inline namespace v0_1 {

/// Collects metadata and tensor descriptions; the tensors' bytes are supplied by write(). Keys and names must be
/// unique.
class GgufWriter {
 public:
  void string(std::string_view key, std::string_view value) {
    add_key(key, GgufValueType::string);
    put_string(pairs_, value);
  }

  void boolean(std::string_view key, bool value) {
    add_key(key, GgufValueType::boolean);
    put(pairs_, std::uint8_t{value});
  }

  template <class T>
  void number(std::string_view key, T value) {
    add_key(key, value_type<T>());
    put(pairs_, value);
  }

  template <class T>
  void numbers(std::string_view key, std::span<const T> values) {
    add_array(key, value_type<T>(), values.size());
    for (const T value : values) put(pairs_, value);
  }

  void booleans(std::string_view key, const std::vector<bool>& values) {
    add_array(key, GgufValueType::boolean, values.size());
    for (const bool value : values) put(pairs_, std::uint8_t{value});
  }

  void strings(std::string_view key, std::span<const std::string> values) {
    add_array(key, GgufValueType::string, values.size());
    for (const std::string& value : values) put_string(pairs_, value);
  }

  /// Copies a value of another file.
  void copy(std::string_view key, const GgufValue& value) {
    value.is_array ? add_array(key, value.type, value.count) : add_key(key, value.type);
    if (value.is(GgufValueType::string))
      return value.each_string([&](std::string_view one) { put_string(pairs_, one); });
    pairs_.append(reinterpret_cast<const char*>(value.bytes),
                  static_cast<std::size_t>(value.count) * bytes_of(value.type));
  }

  /// shape: row-major, as in a Hugging Face folder.
  void tensor(std::string_view name, std::span<const std::int64_t> shape, DType type) {
    const auto known = std::find_if(std::begin(gguf_types), std::end(gguf_types),
                                    [type](const GgufType& candidate) { return candidate.dtype == type; });
    put_string(tensors_, name);
    put(tensors_, static_cast<std::uint32_t>(shape.size()));
    std::uint64_t elements = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      put(tensors_, static_cast<std::uint64_t>(shape[axis]));
      elements *= static_cast<std::uint64_t>(shape[axis]);
    }
    put(tensors_, known->id);
    put(tensors_, end_);
    sizes_.push_back(elements / static_cast<std::uint64_t>(known->values) * known->bytes);
    end_ += padded(sizes_.back());
  }

  std::size_t tensors() const { return sizes_.size(); }

  /// data(index): returns the bytes of a tensor, valid until the next call. Throws io.unwritable.
  template <class Data>
  void write(const std::filesystem::path& path, Data&& data) const {
    write_file_whole(path, [&](std::ostream& file) {
      std::string header = "GGUF";
      put(header, std::uint32_t{3});
      put(header, std::uint64_t{sizes_.size()});
      put(header, pair_count_);
      header += pairs_;
      header += tensors_;
      header.resize(static_cast<std::size_t>(padded(header.size())), '\0');
      file.write(header.data(), static_cast<std::streamsize>(header.size()));
      for (std::size_t index = 0; index < sizes_.size() && file; ++index) {
        const std::span<const std::byte> bytes = data(index);
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        const std::string padding(static_cast<std::size_t>(padded(sizes_[index]) - sizes_[index]), '\0');
        file.write(padding.data(), static_cast<std::streamsize>(padding.size()));
      }
    });
  }

 private:
  static constexpr std::uint64_t alignment = 32;

  static constexpr std::uint64_t padded(std::uint64_t size) { return (size + alignment - 1) / alignment * alignment; }

  template <class T>
  static constexpr GgufValueType value_type() {
    if constexpr (std::is_same_v<T, float>) return GgufValueType::f32;
    if constexpr (std::is_same_v<T, std::uint32_t>) return GgufValueType::u32;
    if constexpr (std::is_same_v<T, std::int32_t>) return GgufValueType::i32;
  }

  template <class T>
  static void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_string(std::string& out, std::string_view value) {
    put(out, std::uint64_t{value.size()});
    out += value;
  }

  void add_key(std::string_view key, GgufValueType type) {
    put_string(pairs_, key);
    put(pairs_, static_cast<std::uint32_t>(type));
    ++pair_count_;
  }
  void add_array(std::string_view key, GgufValueType type, std::uint64_t count) {
    add_key(key, GgufValueType::array);
    put(pairs_, static_cast<std::uint32_t>(type));
    put(pairs_, count);
  }

  std::string pairs_, tensors_;
  std::uint64_t pair_count_ = 0;
  std::vector<std::uint64_t> sizes_;  // bytes of each tensor
  std::uint64_t end_ = 0;             // end of the tensors so far, padded
};

}}
