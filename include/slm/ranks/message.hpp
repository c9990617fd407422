// Message: a message between ranks, a sequence of plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Values are read in the order of writing, by a rank of the same build. Throws ranks.out-of-step if fewer bytes were
/// written than are read.
class Message {
 public:
  Message() = default;
  explicit Message(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  std::span<const std::byte> bytes() const { return bytes_; }

  template <class T>
  requires std::is_trivially_copyable_v<T> Message& put(const T& value) { return append(&value, sizeof value); }
  template <class T>
  Message& put_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put<std::uint64_t>(values.size()).append(values.data(), values.size_bytes());
  }
  Message& put_text(std::string_view text) { return put_all(std::span(text)); }

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    read(&value, 1, sizeof value);
    return value;
  }
  template <class T>
  void take_all(std::vector<T>& values) {
    const auto count = take<std::uint64_t>();
    require(count, sizeof(T));
    values.resize(static_cast<std::size_t>(count));
    read(values.data(), values.size(), sizeof(T));
  }
  std::string take_text() {
    std::vector<char> characters;
    take_all(characters);
    return {characters.begin(), characters.end()};
  }

 private:
  Message& append(const void* from, std::size_t bytes) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + bytes);
    return *this;
  }

  void require(std::uint64_t count, std::size_t size) const {
    if (count <= (bytes_.size() - next_) / size) return;
    throw Error("ranks.out-of-step", "expected more data in a message of another rank",
                "Start the same program on every rank");
  }

  void read(void* to, std::size_t count, std::size_t size) {
    require(count, size);
    if (count > 0) std::memcpy(to, bytes_.data() + next_, count * size);
    next_ += count * size;
  }

  std::vector<std::byte> bytes_;
  std::size_t next_ = 0;  // position of the next read
};

}}}
