// CompletionLogprobs: log-probabilities in the form of /v1/completions, with names of tokens and their places in the
// text.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/refusal.hpp"
#include "slm/engine/answer.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

namespace serve {

/// JSON has no word for infinity.
inline double number(double logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

/// A token by itself: U+FFFD stands for part of a character.
inline std::string text_of(const slm::Tokenizer& tokenizer, slm::Token token) {
  std::string text;
  slm::utf8::append_lossy(text, tokenizer.bytes(token));
  return text;
}

/// The log-probabilities of a choice as /v1/completions has them: lists beside each other.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const slm::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The tokens of a prompt, which `echoed` shows: nothing precedes the first one, `rest` has the others.
  void add_prompt(slm::Token first, const std::vector<slm::AnsweredToken>& rest, std::string_view echoed) {
    std::size_t at = 0;  // bytes of `echoed` that the tokens so far stand for
    const auto place = [&](slm::Token token) -> std::string {
      const std::string bytes = tokenizer_.bytes(token);
      std::size_t length = length_in(echoed.substr(at), bytes);
      if (length == 0 && !bytes.empty() && !tokenizer_.is_special(token)) {  // after text that was normalised
        const std::size_t gap = echoed.substr(at, most_skipped + bytes.size()).find(bytes);
        if (gap != echoed.npos) at += gap, length = bytes.size();
      }
      const std::size_t before = slm::utf8::valid_prefix(echoed.substr(0, at));
      offset_ += slm::utf8::count(echoed.substr(counted_, before - counted_));
      counted_ = before;
      const bool shortened = length > 0 && length < bytes.size();
      at += length;
      return name_of(shortened ? bytes.substr(bytes.size() - length) : bytes);
    };
    add(place(first), nullptr, nullptr);
    for (const slm::AnsweredToken& token : rest) {
      const std::string name = place(token.token);
      add(name, number(token.logprob), top_of(token, name));
    }
    offset_ += slm::utf8::count(echoed.substr(counted_));
  }

  /// Tokens of the answer.
  void add(const std::vector<slm::AnsweredToken>& tokens) {
    for (const slm::AnsweredToken& token : tokens) {
      const std::string bytes = tokenizer_.bytes(token.token), name = name_of(bytes);
      add(name, number(token.logprob), top_of(token, name));
      if (tokenizer_.is_special(token.token)) continue;  // no part of the text
      unfinished_ += bytes;
      std::string whole;
      unfinished_.erase(0, slm::utf8::append_lossy(whole, unfinished_, true));
      offset_ += slm::utf8::count(whole);
    }
  }

  /// The tokens since the last call.
  OrderedJson take() { return std::exchange(json_, empty()); }

 private:
  static constexpr std::size_t most_skipped = 32;  // bytes of an echoed prompt that no token stands for

  static OrderedJson empty() {
    const OrderedJson list = OrderedJson::array();
    return {{"tokens", list}, {"token_logprobs", list}, {"top_logprobs", list}, {"text_offset", list}};
  }

  void add(const std::string& name, OrderedJson logprob, OrderedJson top) {
    json_["tokens"].push_back(name);
    json_["token_logprobs"].push_back(std::move(logprob));
    json_["top_logprobs"].push_back(std::move(top));
    json_["text_offset"].push_back(offset_);
  }

  /// Counts the bytes of a token's text at the beginning of `text`: all of them, all but a first blank that `text`
  /// lacks, or none for special tokens, which `text` leaves out.
  static std::size_t length_in(std::string_view text, std::string_view bytes) {
    if (text.starts_with(bytes)) return bytes.size();
    if (bytes.starts_with(' ') && text.starts_with(bytes.substr(1))) return bytes.size() - 1;
    return 0;
  }

  /// Bytes that are no whole characters in OpenAI's form, `bytes:\xf0`, so that different ones have different names.
  static std::string name_of(const std::string& bytes) {
    if (slm::utf8::is_valid(bytes)) return bytes;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string name = "bytes:";
    for (const char byte : bytes) {
      const unsigned code = static_cast<unsigned char>(byte);
      name.append({'\\', 'x', digits[code >> 4], digits[code & 15u]});
    }
    return name;
  }

  /// By their names, with the token itself first. Another id of the same name is named by its id.
  OrderedJson top_of(const slm::AnsweredToken& token, const std::string& name) const {
    OrderedJson top{{name, number(token.logprob)}};
    for (const slm::TokenLogprob& other : token.top) {
      if (other.token == token.token) continue;
      std::string key = name_of(tokenizer_.bytes(other.token));
      if (top.contains(key)) key = slm::text("token_id:", other.token);
      top[key] = number(other.logprob);
    }
    return top;
  }

  const slm::Tokenizer& tokenizer_;
  OrderedJson json_ = empty();
  std::size_t offset_ = 0;   // code points of the text that precedes the next token
  std::size_t counted_ = 0;  // bytes of the echoed prompt that offset_ counts
  std::string unfinished_;   // the beginning of a character
};

}  // namespace serve
