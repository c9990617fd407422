// Scanner: a position in an answer whose text is still incomplete.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// The state of a scan. A scan of a text and a scan of a longer text with the same beginning differ only where the
/// first one needs more text.
enum class ScanState {
  done,     // the position is behind the scanned part
  more,     // the text ends too early
  invalid,  // the position is that of the fault
};

inline bool is_blank(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r' || byte == '\f' || byte == '\v';
}

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Whether names of tools may have the byte.
inline bool is_name_byte(char byte) {
  return static_cast<unsigned char>(byte) > ' ' &&
         std::string_view("<>{}[]()\"',;=|`").find(byte) == std::string_view::npos;
}

/// Reads a text from left to right. A function that returns false leaves the state and the position of the fault.
class Scanner {
 public:
  static constexpr std::size_t longest_name = 256;

  /// is_final: no more text will follow.
  Scanner(std::string_view text, std::size_t at, bool is_final) : text_(text), at_(at), final_(is_final) {}

  ScanState state() const { return state_; }
  std::size_t at() const { return at_; }
  std::string_view text() const { return text_; }
  bool is_final() const { return final_; }

  bool at_end() const { return at_ == text_.size(); }
  char byte() const { return at_end() ? '\0' : text_[at_]; }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view from(std::size_t begin) const { return text_.substr(begin, at_ - begin); }
  void skip(std::size_t bytes) { at_ += bytes; }
  void go_to(std::size_t position) { at_ = position; }

  void skip_blanks() {
    while (!at_end() && is_blank(text_[at_])) ++at_;
  }

  bool fail() {
    state_ = ScanState::invalid;
    return false;
  }
  bool need_more() {
    state_ = ScanState::more;
    return false;
  }

  /// Whether the text continues with the word; false also while it may become the word: see may_follow().
  bool follows(std::string_view word) const { return rest().starts_with(word); }
  /// Whether the text ends with a beginning of the word that more text may complete.
  bool may_follow(std::string_view word) const {
    return !final_ && rest().size() < word.size() && word.starts_with(rest());
  }

  /// Skips the word.
  bool expect(std::string_view word) {
    if (follows(word)) {
      at_ += word.size();
      return true;
    }
    return word.starts_with(rest()) ? need_more() : fail();
  }

  /// Skips the word if the text has it; at the end of the whole text it may be absent.
  bool expect_or_end(std::string_view word) {
    if (at_end() && final_) return true;
    return expect(word);
  }

  /// Finds the word and skips it; before: the text up to it.
  bool find(std::string_view word, std::string_view& before) {
    const std::size_t found = text_.find(word, at_);
    if (found == text_.npos) return need_more();
    before = text_.substr(at_, found - at_);
    at_ = found + word.size();
    return true;
  }

  /// A name of a tool or of a parameter, followed by any other byte.
  bool name(std::string_view& found) {
    const std::size_t begin = at_;
    while (!at_end() && is_name_byte(text_[at_])) ++at_;
    if (at_ - begin > longest_name) return fail();
    if (at_end() && !final_) return need_more();
    found = from(begin);
    return !found.empty() || fail();
  }

 private:
  std::string_view text_;
  std::size_t at_;
  bool final_;
  ScanState state_ = ScanState::done;
};

/// The length of the longest end of the text that is a beginning of the word, but not the whole word.
inline std::size_t partial_end(std::string_view text, std::string_view word) {
  for (std::size_t length = std::min(text.size(), word.size() - 1); length > 0; --length) {
    if (word.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}}}
