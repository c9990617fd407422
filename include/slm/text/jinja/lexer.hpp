// A template's source as tokens, with the rules of white space that Hugging Face's templates expect: trim_blocks,
// lstrip_blocks, no newline at the end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/text/jinja/limits.hpp"
#include "slm/text/unicode.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// Python's str.isspace(): Unicode white space and the four separators of ASCII.
inline bool is_blank(char32_t code) { return unicode::is_space(code) || (code >= 0x1C && code <= 0x1F); }

/// Where the text begins without its leading white space, from `begin` on.
inline std::size_t skip_blanks(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    std::size_t next = begin;
    if (!is_blank(utf8::next(text, next))) break;
    begin = next;
  }
  return begin;
}

/// Where the text ends without its trailing white space, not before `begin`.
inline std::size_t strip_blanks(std::string_view text, std::size_t begin, std::size_t end) {
  while (end > begin) {
    const std::size_t last = utf8::before(text, end);
    if (!is_blank(utf8::at(text, last))) break;
    end = last;
  }
  return end;
}

struct Token {
  enum class Type : std::uint8_t {
    data,
    print_begin,
    print_end,
    tag_begin,
    tag_end,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Type type;
  std::uint32_t at;       // where it begins in the source
  std::string_view text;  // of the source; of a string with its quotes
};

/// A failure at a place of the source.
struct SyntaxFault {
  std::size_t at;
  std::string message;
  TemplateError::Kind kind = TemplateError::Kind::syntax;
};

/// The source as the language reads it: valid UTF-8, each line ended by LF, without the last newline.
inline std::string normalised(std::string_view source) {
  std::string lines;
  lines.reserve(source.size());
  if (source.starts_with("\xEF\xBB\xBF")) source.remove_prefix(3);
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    lines += source[i] == '\r' ? '\n' : source[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  std::string valid;
  utf8::append_lossy(valid, lines);
  return valid;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(Token::Type::end, at_, at_);
    return std::move(tokens_);
  }

 private:
  using Type = Token::Type;

  void add(Type type, std::size_t begin, std::size_t end) {
    tokens_.push_back({type, static_cast<std::uint32_t>(begin), source_.substr(begin, end - begin)});
  }

  bool looking_at(std::string_view text, std::size_t at) const { return source_.substr(at).starts_with(text); }

  /// Text up to the next construct, and what that construct begins with.
  void read_data() {
    std::size_t begin = at_, open = at_;
    for (;; ++open) {
      open = source_.find('{', open);
      if (open == source_.npos || open + 1 >= source_.size()) {
        add(Type::data, begin, source_.size());
        at_ = source_.size();
        return;
      }
      const char second = source_[open + 1];
      if (second == '{' || second == '%' || second == '#') break;
    }
    const char kind = source_[open + 1];
    at_ = open + 2;
    const char sign = at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+') ? source_[at_++] : ' ';
    if (const std::size_t end = stripped_before(begin, open, sign, kind != '{'); end > begin) {
      add(Type::data, begin, end);
    }
    if (kind == '#') return skip_comment(open);
    if (kind == '%' && read_raw(open)) return;
    add(kind == '{' ? Type::print_begin : Type::tag_begin, open, at_);
    read_tokens(open, kind == '{');
  }

  /// Where the data that ends at `open` really ends.
  std::size_t stripped_before(std::size_t begin, std::size_t open, char sign, bool is_block) const {
    if (sign == '-') return strip_blanks(source_, begin, open);
    if (sign == '+' || !is_block) return open;
    const std::size_t newline = source_.substr(begin, open - begin).rfind('\n');
    if (newline == source_.npos && !line_starts_) return open;
    const std::size_t line = newline == source_.npos ? begin : begin + newline + 1;
    return skip_blanks(source_.substr(0, open), line) == open ? line : open;
  }

  /// Behind the end of a construct. mark: its sign, or a blank. trims: whether a newline goes with it.
  void finish(std::size_t end, char mark, bool trims) {
    if (mark == '-') {
      end = skip_blanks(source_, end);
    } else if (mark == ' ' && trims && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    at_ = end;
    line_starts_ = end > 0 && source_[end - 1] == '\n';
  }

  void skip_comment(std::size_t open) {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) throw SyntaxFault{open, "the comment is not closed"};
    const char before = end > at_ ? source_[end - 1] : ' ';
    finish(end + 2, before == '-' || before == '+' ? before : ' ', true);
  }

  /// A whole {% raw %} ... {% endraw %}, if one begins here.
  bool read_raw(std::size_t open) {
    std::size_t at = skip_blanks(source_, at_);
    if (!looking_at("raw", at)) return false;
    at = skip_blanks(source_, at + 3);
    const bool strips = looking_at("-%}", at);
    if (!strips && !looking_at("%}", at)) return false;
    finish(at + (strips ? 3 : 2), strips ? '-' : ' ', false);
    const std::size_t begin = at_;
    for (std::size_t close = source_.find("{%", begin); close != source_.npos; close = source_.find("{%", close + 1)) {
      std::size_t word = close + 2;
      const char sign = word < source_.size() && (source_[word] == '-' || source_[word] == '+') ? source_[word++] : ' ';
      word = skip_blanks(source_, word);
      if (!looking_at("endraw", word)) continue;
      std::size_t end = skip_blanks(source_, word + 6);
      const char mark = end < source_.size() && (source_[end] == '-' || source_[end] == '+') ? source_[end++] : ' ';
      if (!looking_at("%}", end)) continue;
      if (const std::size_t stop = stripped_before(begin, close, sign, true); stop > begin) {
        add(Type::data, begin, stop);
      }
      finish(end + 2, mark, true);
      return true;
    }
    throw SyntaxFault{open, "the raw block is not closed"};
  }

  void read_tokens(std::size_t open, bool prints) {
    const std::string_view end = prints ? "}}" : "%}";
    brackets_.clear();
    while (true) {
      at_ = skip_blanks(source_, at_);
      if (at_ >= source_.size()) {
        throw SyntaxFault{open, prints ? "the expression is not closed with '}}'" : "the tag is not closed with '%}'"};
      }
      if (brackets_.empty()) {
        const char first = source_[at_];
        const bool marked = first == '-' || (first == '+' && !prints);
        if (looking_at(end, at_ + (marked ? 1 : 0))) {
          const std::size_t begin = at_;
          add(prints ? Type::print_end : Type::tag_end, begin, begin + (marked ? 3 : 2));
          return finish(begin + (marked ? 3 : 2), marked ? first : ' ', !prints);
        }
      }
      read_token();
    }
  }

  static bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

  void read_token() {
    const char first = source_[at_];
    const std::size_t begin = at_;
    if (is_digit(first)) return read_number();
    if (first == '"' || first == '\'') {
      while (++at_ < source_.size() && source_[at_] != first) at_ += source_[at_] == '\\' ? 1 : 0;
      if (at_ >= source_.size()) throw SyntaxFault{begin, "the string is not closed"};
      return add(Type::string, begin, ++at_);
    }
    while (at_ < source_.size()) {
      std::size_t next = at_;
      if (!unicode::is_word(utf8::next(source_, next))) break;
      at_ = next;
    }
    if (at_ > begin) return add(Type::name, begin, at_);
    static constexpr std::array<std::string_view, 26> signs{"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                                            "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                            "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view sign : signs) {
      if (!looking_at(sign, at_)) continue;
      at_ += sign.size();
      balance(sign, begin);
      return add(Type::sign, begin, at_);
    }
    std::size_t next = begin;
    utf8::next(source_, next);
    throw SyntaxFault{begin, "unexpected character " + quote(source_.substr(begin, next - begin))};
  }

  void balance(std::string_view sign, std::size_t at) {
    switch (sign[0]) {
      case '(': brackets_ += ')'; break;
      case '[': brackets_ += ']'; break;
      case '{': brackets_ += '}'; break;
      case ')':
      case ']':
      case '}':
        if (brackets_.empty() || brackets_.back() != sign[0]) {
          throw SyntaxFault{at, brackets_.empty() ? text("unexpected '", sign, "'")
                                                  : text("unexpected '", sign, "', expected '", brackets_.back(), "'")};
        }
        brackets_.pop_back();
        break;
      default: break;
    }
  }

  /// Digits with single underscores between them; returns their end, or `at` where there are none.
  template <class Digit>
  std::size_t digits(std::size_t at, Digit&& is_one) const {
    std::size_t end = at;
    while (at < source_.size()) {
      if (source_[at] == '_' && end > 0 && at == end && at + 1 < source_.size() && is_one(source_[at + 1])) ++at;
      if (!is_one(source_[at])) break;
      end = ++at;
    }
    return end;
  }

  void read_number() {
    const std::size_t begin = at_;
    const auto lower = [](char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte; };
    const auto hex = [&](char byte) { return is_digit(byte) || (lower(byte) >= 'a' && lower(byte) <= 'f'); };
    const auto octal = [](char byte) { return byte >= '0' && byte <= '7'; };
    const auto binary = [](char byte) { return byte == '0' || byte == '1'; };
    const char radix = source_[at_] == '0' && at_ + 1 < source_.size() ? lower(source_[at_ + 1]) : ' ';
    if (radix == 'x' || radix == 'o' || radix == 'b') {
      std::size_t first = at_ + 2;
      if (first < source_.size() && source_[first] == '_') ++first;
      at_ = radix == 'x' ? digits(first, hex) : radix == 'o' ? digits(first, octal) : digits(first, binary);
      if (at_ > first) return add(Type::integer, begin, at_);
      at_ = begin;
    }
    std::size_t end = digits(begin, is_digit);
    const std::size_t whole = end;
    const bool behind_dot = begin > 0 && source_[begin - 1] == '.';
    if (!behind_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1]))
        end = digits(end + 1, is_digit);
      if (end < source_.size() && lower(source_[end]) == 'e') {
        std::size_t power = end + 1;
        if (power < source_.size() && (source_[power] == '+' || source_[power] == '-')) ++power;
        if (power < source_.size() && is_digit(source_[power])) end = digits(power, is_digit);
      }
    }
    if (end > whole) {
      at_ = end;
      return add(Type::real, begin, end);
    }
    // A number that begins with 0 is zeros only, as in Python.
    at_ = source_[begin] == '0' ? digits(begin, [](char byte) { return byte == '0'; }) : whole;
    add(Type::integer, begin, at_);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starts_ = true;
  std::string brackets_;  // that are expected to close
  std::vector<Token> tokens_;
};

}}}
