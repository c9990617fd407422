// TokenDecoder: token texts back to text, one token at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/text/normalizer.hpp"

namespace slm { inline namespace v0_1 {

/// How token texts become text, as a tokenizer file describes it.
struct TokenDecoder {
  enum class Kind {
    joined,      // texts as they are, with `separator` between
    byte_level,  // characters of the byte-level alphabet are bytes
    metaspace,   // `replacement` is a space; in the first token it is nothing
  };
  Kind kind = Kind::joined;
  std::string separator;
  std::string replacement;
  bool drop_first_replacement = true;
  std::vector<Normalizer::Replace> replaces;  // joined: in each token
  bool byte_fallback = false;                 // joined: <0x41> is the byte 41
  std::string strip_content;                  // joined: at most strip_count of these leave the start of the whole text
  std::size_t strip_count = 0;
};

/// Decodes token by token. push() and finish() together append the decoded text of all tokens; push() appends
/// only what later tokens cannot change:
///   - bytes wait until their character is whole;
///   - a run of <0x..> tokens waits for its end: it is text if all of it is UTF-8, else one U+FFFD for each byte.
class DecodeState {
 public:
  explicit DecodeState(const TokenDecoder& decoder) : decoder_(&decoder) {}

  /// `piece`: the token's own text.
  void push(std::string_view piece, std::string& out);

  /// Appends what was held back. The state is then as new.
  void finish(std::string& out);

  /// Call it between two texts, such as a prompt and its answer: appends the whole characters of a run of
  /// byte tokens, which are then text whatever bytes follow.
  void settle(std::string& out);

  /// The whole characters of a run of byte tokens that is held back: finish() would append them now, if no byte that is
  /// not UTF-8 followed. Only grows until the run ends or turns out not to be UTF-8 (then empty).
  std::string_view waiting() const;

  /// The bytes of a token inside a text; some may be part of a character only.
  std::string bytes_of(std::string_view piece) const;

 private:
  std::string with_replacements(std::string_view piece) const;

  void push_joined(std::string_view piece, std::string& out);

  void end_run(std::string& out);

  /// Appends text, leaving out what is to be stripped from the start of the whole.
  void strip(std::string_view text, std::string& out);

  /// The byte that "<0x41>" names, or -1.
  static int byte_of(std::string_view piece);

  const TokenDecoder* decoder_;
  std::string bytes_;      // byte_level: an unfinished character; joined: the run of byte tokens
  std::size_t whole_ = 0;  // bytes_ up to here are whole characters
  bool valid_run_ = true;  // bytes_ are the beginning of valid UTF-8
  bool first_ = true;      // no token yet
  std::size_t stripped_ = 0;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_text_decoder_hpp)
}}}

#if SLM_COMPILES
#include "slm/text/decoder_functions.hpp"
#endif
