// The one exception of the library: an id, what was expected and found, what to do next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace slm::inline v0_1 {

/// Joins strings and numbers into one sentence: text("layer ", 3, " is missing").
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string joined;
  const auto append = [&joined](const auto& part) {
    using Part = std::remove_cvref_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, bool>) {
      joined += part ? "true" : "false";
    } else if constexpr (std::is_same_v<Part, char>) {
      joined += part;
    } else if constexpr (std::is_arithmetic_v<Part>) {
      joined += std::to_string(part);
    } else {
      joined += part;
    }
  };
  (append(parts), ...);
  return joined;
}

/// What a message shows of a text from outside, which may be long and may try to steer a terminal: printable ASCII, the
/// rest escaped, cut at about `most` bytes.
inline std::string excerpt(std::string_view source, std::size_t most = 200) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  for (const char byte : source) {
    if (shown.size() >= most) return shown + "...";
    const auto code = static_cast<unsigned char>(byte);
    if (code >= 0x20 && code < 0x7f) {
      shown += byte;
    } else {
      shown += {'\\', 'x', digits[code >> 4], digits[code & 15]};
    }
  }
  return shown;
}

/// The same between quotes.
inline std::string quote(std::string_view source) { return text("'", excerpt(source), "'"); }

/// Everything the library throws. docs/errors.md lists every id.
class Error : public std::runtime_error {
 public:
  /// For host applications that want to end their own main() the same way.
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}

  /// id: stable, "room.what-happened". sentence: what was expected and what was found.
  /// next_step: what the reader can do about it.
  Error(std::string_view id, std::string_view sentence, std::string_view next_step)
      : std::runtime_error(text(sentence, ". ", next_step, ". [", id, "]")), id_(id) {}

  const std::string& id() const noexcept { return id_; }

 private:
  std::string id_;
};

}  // namespace slm
