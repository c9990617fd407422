// Builds GGUF files in memory, valid or deliberately damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slm::testing {

/// Numbers and strings in GGUF's encoding, one after another.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& put(T value) {
    places_.push_back({content_.size(), sizeof value});
    content_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& string(std::string_view value) {
    put(std::uint64_t{value.size()});
    content_ += value;
    return *this;
  }
  GgufBytes& raw(std::string_view bytes) {
    content_ += bytes;
    return *this;
  }
  GgufBytes& append(const GgufBytes& other) {
    for (Place place : other.places_) places_.push_back({place.offset + content_.size(), place.size});
    content_ += other.content_;
    return *this;
  }

  const std::string& content() const { return content_; }

  /// Positions of numbers, including lengths and counts.
  struct Place {
    std::size_t offset, size;
  };
  const std::vector<Place>& places() const { return places_; }

 private:
  std::string content_;
  std::vector<Place> places_;
};

/// The numbers of value types in tests.
enum GgufNumber : std::uint32_t {
  gguf_u16 = 2,
  gguf_u32 = 4,
  gguf_i32 = 5,
  gguf_f32 = 6,
  gguf_bool = 7,
  gguf_string = 8
};

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::size_t alignment = 32;  // of the data; the caller adds a key general.alignment

  /// A pair with these bytes as type and value.
  GgufBuilder& pair(std::string_view key, std::uint32_t type, const GgufBytes& value) {
    pairs_.string(key).put(type).append(value);
    ++pair_count_;
    return *this;
  }
  template <class T>
  GgufBuilder& number(std::string_view key, std::uint32_t type, T value) {
    return pair(key, type, GgufBytes().put(value));
  }
  GgufBuilder& u32(std::string_view key, std::uint32_t value) { return number(key, gguf_u32, value); }
  GgufBuilder& f32(std::string_view key, float value) { return number(key, gguf_f32, value); }
  GgufBuilder& boolean(std::string_view key, bool value) { return number(key, gguf_bool, std::uint8_t{value}); }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    return pair(key, gguf_string, GgufBytes().string(value));
  }
  GgufBuilder& strings(std::string_view key, std::span<const std::string> values) {
    GgufBytes bytes;
    bytes.put(std::uint32_t{gguf_string}).put(std::uint64_t{values.size()});
    for (const std::string& value : values) bytes.string(value);
    return pair(key, 9, bytes);
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    GgufBytes bytes;
    bytes.put(type).put(std::uint64_t{values.size()});
    for (const T value : values) bytes.put(value);
    return pair(key, 9, bytes);
  }

  /// dims: innermost first. Its data begin at the end of the previous tensor.
  GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                      std::string_view data) {
    return tensor_at(data_.size(), name, dims, type, data);
  }
  GgufBuilder& tensor_at(std::uint64_t offset, std::string_view name, const std::vector<std::uint64_t>& dims,
                         std::uint32_t type, std::string_view data) {
    tensors_.string(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t extent : dims) tensors_.put(extent);
    tensors_.put(type).put(offset);
    data_ += data;
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    ++tensor_count_;
    return *this;
  }

  /// The file, with these counts in its header.
  GgufBytes bytes(std::uint64_t tensor_count, std::uint64_t pair_count) const {
    GgufBytes file;
    file.raw("GGUF").put(version).put(tensor_count).put(pair_count).append(pairs_).append(tensors_);
    if (tensor_count_ > 0) file.raw(std::string((alignment - file.content().size() % alignment) % alignment, '\0'));
    return file.raw(data_);
  }
  GgufBytes bytes() const { return bytes(tensor_count_, pair_count_); }
  std::string build() const { return bytes().content(); }

 private:
  GgufBytes pairs_, tensors_;
  std::string data_;
  std::uint64_t pair_count_ = 0, tensor_count_ = 0;
};

/// A small valid file with values of every kind and two tensors.
inline GgufBuilder small_gguf() {
  GgufBuilder file;
  file.string("general.architecture", "llama").u32("llama.block_count", 2).f32("llama.rope.freq_base", 10000);
  file.boolean("tokenizer.ggml.add_bos_token", true).number("split.no", gguf_u16, std::uint16_t{0});
  file.strings("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "", "h\xC3\xA9"});
  file.numbers("tokenizer.ggml.scores", gguf_f32, std::vector<float>{0, -1, -2.5f});
  file.tensor("a.weight", {4, 3}, 0, std::string(48, '\1')).tensor("b.weight", {32, 2}, 8, std::string(68, '\2'));
  return file;
}

}  // namespace slm::testing
