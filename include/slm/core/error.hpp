// Error: the library's only exception type. It holds an id, the expectation and the finding, and a remedy.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// One part of a message. A single type for all parts compiles each message to a list of parts and one call.
class MessagePart {
 public:
  MessagePart(std::string_view part) : kind_(Kind::letters), letters_(part) {}
  MessagePart(const char* part) : MessagePart(std::string_view(part)) {}
  MessagePart(const std::string& part) : MessagePart(std::string_view(part)) {}
  MessagePart(bool part) : MessagePart(part ? "true" : "false") {}
  MessagePart(char part) : kind_(Kind::letter), letter_(part) {}
  MessagePart(std::signed_integral auto part) : kind_(Kind::whole), whole_(part) {}
  MessagePart(std::unsigned_integral auto part) : kind_(Kind::natural), natural_(part) {}
  MessagePart(std::floating_point auto part) : kind_(Kind::real), real_(part) {}

  void append_to(std::string& joined) const {
    switch (kind_) {
      case Kind::letters: joined += letters_; return;
      case Kind::letter: joined += letter_; return;
      case Kind::whole: joined += std::to_string(whole_); return;
      case Kind::natural: joined += std::to_string(natural_); return;
      case Kind::real: joined += std::to_string(real_); return;
    }
  }

 private:
  enum class Kind { letters, letter, whole, natural, real };
  Kind kind_;
  union {
    std::string_view letters_;
    char letter_;
    long long whole_;
    unsigned long long natural_;
    double real_;
  };
};

inline std::string joined(std::initializer_list<MessagePart> parts) {
  std::string all;
  for (const MessagePart& part : parts) part.append_to(all);
  return all;
}

}  // namespace detail

/// Joins strings and numbers into one sentence: text("layer ", 3, " is missing").
template <class... Parts>
std::string text(const Parts&... parts) {
  return detail::joined({parts...});
}

/// An excerpt of untrusted text for a message: printable ASCII, other bytes escaped, cut at about `most` bytes.
/// Escaping keeps terminal control sequences out of messages.
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

/// excerpt() between quotes.
inline std::string quote(std::string_view source) { return text("'", excerpt(source), "'"); }

/// The type of every exception that the library throws. docs/errors.md lists every id.
class Error : public std::runtime_error {
 public:
  /// For host applications that report their own fatal errors with the same type; id() is empty.
  explicit Error(const std::string& sentence) : std::runtime_error(sentence) {}

  /// id: stable, "topic.what-happened". sentence: what was expected and what was found. next_step: what the reader
  /// should do.
  Error(std::string_view id, std::string_view sentence, std::string_view next_step)
      : std::runtime_error(text(sentence, ". ", next_step, ". [", id, "]")), id_(id) {}

  const std::string& id() const noexcept { return id_; }

 private:
  std::string id_;
};

}}
