// AddedTokens: finds the tokens outside the model (<s>, <|user|>, runs of spaces, ...) in a text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/text/unicode.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

struct AddedToken {
  Token id = 0;
  std::string content;
  bool single_word = false;  // no match where a word character touches it
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;       // and to its right
  bool normalized = false;   // is looked for after normalization, and its content is normalized first
  bool special = false;      // left out by decode(skip_special_tokens)
};

/// A set of added tokens that are searched for together: leftmost, longest, without overlaps.
class AddedTokens {
 public:
  AddedTokens() = default;

  /// Each token is searched for as its `content`, which is valid UTF-8; empty ones never match, and of equal ones the
  /// first.
  explicit AddedTokens(const std::vector<AddedToken>& tokens) {
    std::map<std::string_view, const AddedToken*> by_content;
    for (const AddedToken& token : tokens) {
      if (!token.content.empty()) by_content.try_emplace(token.content, &token);
    }
    for (const auto& [content, token] : by_content) tokens_.push_back(*token);
    for (std::size_t i = tokens_.size(); i-- > 0;) {
      auto& range = starting_with_[static_cast<unsigned char>(tokens_[i].content[0])];
      range.begin = i;
      if (range.end == 0) range.end = i + 1;
    }
  }

  bool empty() const { return tokens_.empty(); }

  /// Calls text_sink(piece) and token_sink(id) in the order of the text. The text must be valid UTF-8.
  template <class TextSink, class TokenSink>
  void split(std::string_view text, TextSink&& text_sink, TokenSink&& token_sink) const {
    split(text, text_sink, token_sink, [](Token, std::size_t, std::size_t) { return true; });
  }

  /// The same with only those matches that allowed(id, begin, end) lets count; [begin, end) is the token's own place.
  template <class TextSink, class TokenSink, class Allowed>
  void split(std::string_view text, TextSink&& text_sink, TokenSink&& token_sink, Allowed&& allowed) const {
    std::size_t done = 0;  // everything before has gone to a sink
    for (std::size_t position = 0; position < text.size() && !tokens_.empty();) {
      const AddedToken* token = longest_at(text, position, allowed);
      if (token == nullptr) {
        ++position;
        continue;
      }
      std::size_t begin = position;
      std::size_t end = position + token->content.size();
      position = end;
      if (token->single_word && touches_word(text, begin, end)) continue;
      if (token->lstrip) {
        while (begin > done && unicode::is_space(utf8::at(text, utf8::before(text, begin)))) {
          begin = utf8::before(text, begin);
        }
      }
      if (token->rstrip) {
        for (std::size_t behind = end; end < text.size() && unicode::is_space(utf8::next(text, behind));) end = behind;
      }
      if (begin > done) text_sink(text.substr(done, begin - done));
      token_sink(token->id);
      done = position = end;
    }
    if (done < text.size()) text_sink(text.substr(done));
  }

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };

  /// The longest token that the text spells at `position`: narrows the sorted tokens character by character.
  template <class Allowed>
  const AddedToken* longest_at(std::string_view text, std::size_t position, Allowed& allowed) const {
    Range range = starting_with_[static_cast<unsigned char>(text[position])];
    const AddedToken* longest = nullptr;
    for (std::size_t depth = 1; range.begin < range.end; ++depth) {
      if (const AddedToken& token = tokens_[range.begin]; token.content.size() == depth) {
        if (allowed(token.id, position, position + depth)) longest = &token;
        ++range.begin;
      }
      if (position + depth >= text.size()) break;
      const auto wanted = static_cast<unsigned char>(text[position + depth]);
      const auto byte = [depth](const AddedToken& token) { return static_cast<unsigned char>(token.content[depth]); };
      const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(range.begin);
      const auto last = tokens_.begin() + static_cast<std::ptrdiff_t>(range.end);
      const auto lower =
          std::partition_point(first, last, [&](const AddedToken& token) { return byte(token) < wanted; });
      const auto upper =
          std::partition_point(lower, last, [&](const AddedToken& token) { return byte(token) == wanted; });
      range = {static_cast<std::size_t>(lower - tokens_.begin()), static_cast<std::size_t>(upper - tokens_.begin())};
    }
    return longest;
  }

  static bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
    return (begin > 0 && unicode::is_word(utf8::at(text, utf8::before(text, begin)))) ||
           (end < text.size() && unicode::is_word(utf8::at(text, end)));
  }

  std::vector<AddedToken> tokens_;          // sorted by content
  std::array<Range, 256> starting_with_{};  // by first byte
};

}}
