// The word splitters of the known tokenizers, written by hand in place of a regular expression engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "slm/text/unicode.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

/// The regular expressions this file stands for, byte for byte as tokenizer.json spells them.
namespace split_pattern {
inline constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}  // namespace split_pattern

namespace splitting {

enum class Kind { letter, number, space, other };

inline Kind kind_of(char32_t code) {
  switch (unicode::class_of(code)) {
    case unicode::Class::letter: return Kind::letter;
    case unicode::Class::number_word:
    case unicode::Class::number: return Kind::number;
    case unicode::Class::space: return Kind::space;
    default: return Kind::other;
  }
}

/// Kind of the character at `position`, which is inside the text.
inline Kind kind_at(std::string_view text, std::size_t position) { return kind_of(utf8::at(text, position)); }

/// End of the run of one kind that starts at `position` and spans `most` characters at most.
inline std::size_t run_end(std::string_view text, std::size_t position, Kind kind, std::size_t most = ~std::size_t{0}) {
  for (; position < text.size() && most > 0; --most) {
    std::size_t behind = position;
    if (kind_of(utf8::next(text, behind)) != kind) break;
    position = behind;
  }
  return position;
}

inline bool is_line_break(char byte) { return byte == '\r' || byte == '\n'; }

/// `\s+(?!\S)|\s+`: a run of white space leaves its last character to a word that follows.
inline std::size_t space_end(std::string_view text, std::size_t position) {
  const std::size_t end = run_end(text, position, Kind::space);
  if (end == text.size()) return end;
  const std::size_t last = utf8::before(text, end);
  return last > position ? last : end;
}

/// Length of an English contraction ('s 't 're 've 'm 'll 'd) at `position`, or 0. Ignoring case follows Unicode, where
/// the long s (U+017F) is an s.
inline std::size_t contraction(std::string_view text, std::size_t position, bool ignore_case) {
  if (text[position] != '\'') return 0;
  const auto letter = [&](std::size_t index) {
    if (index >= text.size()) return '\0';
    const char byte = text[index];
    return ignore_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
  };
  const char first = letter(position + 1);
  const char second = letter(position + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return ignore_case && text.substr(position + 1, 2) == "\xC5\xBF" ? 3 : 0;
}

inline std::size_t gpt2_end(std::string_view text, std::size_t begin) {
  if (const std::size_t length = contraction(text, begin, false)) return begin + length;
  const std::size_t word = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Kind kind = kind_at(text, word);
  return kind == Kind::space ? space_end(text, begin) : run_end(text, word, kind);
}

inline std::size_t llama3_end(std::string_view text, std::size_t begin, std::size_t most_digits) {
  if (const std::size_t length = contraction(text, begin, true)) return begin + length;
  std::size_t behind = begin;
  const Kind kind = kind_of(utf8::next(text, behind));
  if (kind == Kind::letter) return run_end(text, begin, kind);
  if (kind == Kind::number) return run_end(text, begin, kind, most_digits);
  if (!is_line_break(text[begin]) && behind < text.size() && kind_at(text, behind) == Kind::letter) {
    return run_end(text, behind, Kind::letter);  // one character that is no letter may lead a word
  }
  const bool leading_space = text[begin] == ' ' && behind < text.size() && kind_at(text, behind) == Kind::other;
  if (kind == Kind::other || leading_space) {
    std::size_t end = run_end(text, leading_space ? behind : begin, Kind::other);
    while (end < text.size() && is_line_break(text[end])) ++end;
    return end;
  }
  std::size_t end = run_end(text, begin, Kind::space);
  for (; end > begin; --end) {
    if (is_line_break(text[end - 1])) return end;  // up to the last line break of the run
  }
  return space_end(text, begin);
}

template <class End, class Sink>
void split(std::string_view text, End end_of_word, Sink&& sink) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = end_of_word(begin);
    sink(text.substr(begin, end - begin));
    begin = end;
  }
}

}  // namespace splitting

/// Calls sink(word) for each word; the words joined are the text. The text must be valid UTF-8.
template <class Sink>
void split_gpt2(std::string_view text, Sink&& sink) {
  splitting::split(
      text, [&](std::size_t begin) { return splitting::gpt2_end(text, begin); }, sink);
}

/// most_digits: 3 for Llama-3, 1 for Qwen2.
template <class Sink>
void split_llama3(std::string_view text, std::size_t most_digits, Sink&& sink) {
  splitting::split(
      text, [&](std::size_t begin) { return splitting::llama3_end(text, begin, most_digits); }, sink);
}

/// Numbers apart from all else; each digit by itself if `individual`.
template <class Sink>
void split_digits(std::string_view text, bool individual, Sink&& sink) {
  const auto end_of_word = [&](std::size_t begin) {
    const bool number = splitting::kind_at(text, begin) == splitting::Kind::number;
    std::size_t end = begin;
    do {
      utf8::next(text, end);
    } while (!(number && individual) && end < text.size() &&
             (splitting::kind_at(text, end) == splitting::Kind::number) == number);
    return end;
  };
  splitting::split(text, end_of_word, sink);
}

}}
