// TextStream: prints tokens as text while they are generated, in whole characters, up to a stop string.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
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
#include "slm/text/tokenizer.hpp"

namespace slm { inline namespace v0_1 {

/// A sink for a decoder. All text written until finish() is what the tokens add to the prompt's text, cut before the
/// first stop string: many tokenizers write a space before each word and drop the one that begins a text, so that
/// tokens decoded by themselves would lose the space that parts them from the prompt. Special tokens are left out. Text
/// is held back while later tokens may still change it: an unfinished character, a run of <0x..> byte tokens (which
/// counts as a whole), the beginning of a stop string.
class TextStream {
 public:
  using Write = std::function<void(std::string_view)>;

  /// prompt: the tokens before the text; may be empty. Calls write(text) with valid UTF-8. Empty stop
  /// strings are ignored, and so are those that end with one of the first `least` tokens. kept: special tokens that
  /// are text, such as tags of an AnswerFormat.
  TextStream(Tokenizer tokenizer, std::span<const Token> prompt, Write write,
             const std::vector<std::string>& stops = {}, std::size_t least = 0, std::vector<Token> kept = {});

  /// Writes to a stream, which must outlive this, and flushes it. Throws Error when the stream fails (a full disk).
  TextStream(Tokenizer tokenizer, std::span<const Token> prompt, std::ostream& stream,
             const std::vector<std::string>& stops = {})
      : TextStream(std::move(tokenizer), prompt, writer_to(stream), stops) {}

  /// Takes the next token. False when a stop string is complete: no more tokens are wanted, and none is written.
  bool operator()(Token token);

  /// Writes what is held back; called once, after the last token.
  void finish();

  /// True once a stop string was found.
  bool stopped() const { return stopped_; }
  /// Which it is.
  const std::string& stop_string() const { return ahead_ ? ahead_->matcher.found() : matcher_.found(); }

 private:
  /// The matcher's result for the waiting run of byte tokens.
  struct Ahead {
    StopMatcher matcher;
    std::size_t seen = 0;  // bytes of the run that the matcher has read
    std::string text;      // what it let through
  };

  void decode(Token token, std::string& out);

  /// Text that no token changes any more.
  void take(std::string_view text);

  bool may_stop() const { return tokens_ > least_; }

  /// A newline is such a byte token in Llama-2's vocabulary: a stop string must not wait for the token behind it. While
  /// the run is UTF-8, it is what the text would be if generation ended here, so a stop string in it counts at once.
  void look_ahead();

  void show(const std::string& text) {
    if (!text.empty()) write_(text);
  }

  static Write writer_to(std::ostream& stream);

  Tokenizer tokenizer_;
  Write write_;
  std::size_t least_, tokens_ = 0;
  std::vector<Token> kept_;
  DecodeState decoder_;
  std::string prompt_end_;  // what the prompt's unfinished character is if it stays so; until the first text
  StopMatcher matcher_;
  std::optional<Ahead> ahead_;
  bool stopped_ = false;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_text_stream_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/text_stream_functions.hpp"
#endif
