// The functions of TextStream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/text/decoder.hpp"
#include "slm/text/stop_matcher.hpp"
#include "slm/text/text_stream.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

SLM_CONSTRUCTOR TextStream::TextStream(Tokenizer tokenizer, std::span<const Token> prompt, Write write,
                                       const std::vector<std::string>& stops, std::size_t least,
                                       std::vector<Token> kept)
    : tokenizer_(std::move(tokenizer)),
      write_(std::move(write)),
      least_(least),
      kept_(std::move(kept)),
      decoder_(tokenizer_.decode_state()),
      matcher_(stops) {
  for (const std::string& stop : stops) {
    if (!utf8::is_valid(stop)) {
      throw Error("text.bad-stop-string", "a stop string is not valid UTF-8", "Give stop strings in UTF-8");
    }
  }
  std::string shown;
  for (const Token token : prompt) decode(token, shown);
  decoder_.settle(shown);
  DecodeState(decoder_).finish(prompt_end_);
}

SLM_INLINE bool TextStream::operator()(Token token) {
  if (stopped_) return false;
  ++tokens_;
  std::string text;
  decode(token, text);
  if (!text.empty()) take(text);
  if (!stopped_ && matcher_.active() && may_stop()) look_ahead();
  return !stopped_;
}

SLM_INLINE void TextStream::finish() {
  if (stopped_) return;
  std::string text;
  decoder_.finish(text);
  take(text);
  if (!stopped_) show(matcher_.finish());
}

inline void TextStream::decode(Token token, std::string& out) {
  if (!tokenizer_.is_token(token)) return;
  const bool is_text = !tokenizer_.is_special(token) || std::find(kept_.begin(), kept_.end(), token) != kept_.end();
  if (is_text) decoder_.push(tokenizer_.piece(token), out);
}

inline void TextStream::take(std::string_view text) {
  if (text.starts_with(prompt_end_)) text.remove_prefix(prompt_end_.size());
  prompt_end_.clear();
  ahead_.reset();
  show(matcher_.push(text, may_stop()));
  stopped_ = matcher_.stopped();
}

inline void TextStream::look_ahead() {
  const std::string_view waiting = decoder_.waiting();
  if (waiting.empty()) return;
  if (!ahead_) ahead_ = Ahead{matcher_, 0, {}};
  ahead_->text += ahead_->matcher.push(waiting.substr(ahead_->seen));
  ahead_->seen = waiting.size();
  if (!ahead_->matcher.stopped()) return;
  show(ahead_->text);
  stopped_ = true;
}

SLM_INLINE TextStream::Write TextStream::writer_to(std::ostream& stream) {
  return [&stream](std::string_view text) {
    stream << text << std::flush;
    if (!stream)
      throw Error("text.output-failed", "the generated text could not be written",
                  "Check for a full disk or a closed output");
  };
}

}}
