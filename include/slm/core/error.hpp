// The one exception of the library: an id, what was expected and found, what to do next.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace slm {

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
