// TokenDecoder: token texts back to text, one token at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/byte_level.hpp"
#include "slm/text/normalizer.hpp"
#include "slm/text/utf8.hpp"

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
  void push(std::string_view piece, std::string& out) {
    switch (decoder_->kind) {
      case TokenDecoder::Kind::byte_level: {
        byte_level::append_bytes(bytes_, piece);
        bytes_.erase(0, utf8::append_lossy(out, bytes_, true));
        break;
      }
      case TokenDecoder::Kind::metaspace: {
        const bool drop = first_ && decoder_->drop_first_replacement;
        out += replace_all(piece, decoder_->replacement, drop ? "" : " ");
        break;
      }
      case TokenDecoder::Kind::joined: push_joined(piece, out); break;
    }
    first_ = false;
  }

  /// Appends what was held back. The state is then as new.
  void finish(std::string& out) {
    if (decoder_->kind == TokenDecoder::Kind::byte_level) {
      utf8::append_lossy(out, bytes_);
    } else {
      end_run(out);
    }
    *this = DecodeState{*decoder_};
  }

  /// Call it between two texts, such as a prompt and its answer: appends the whole characters of a run of
  /// byte tokens, which are then text whatever bytes follow.
  void settle(std::string& out) {
    if (decoder_->kind != TokenDecoder::Kind::joined || !valid_run_) return;
    strip(std::string_view{bytes_}.substr(0, whole_), out);
    bytes_.erase(0, whole_);
    whole_ = 0;
  }

  /// The whole characters of a run of byte tokens that is held back: finish() would append them now, if no byte that is
  /// not UTF-8 followed. Only grows until the run ends or turns out not to be UTF-8 (then empty).
  std::string_view waiting() const {
    if (decoder_->kind != TokenDecoder::Kind::joined || !valid_run_) return {};
    std::string_view text = std::string_view{bytes_}.substr(0, whole_);
    for (std::size_t i = stripped_; i < decoder_->strip_count && text.starts_with(decoder_->strip_content); ++i) {
      text.remove_prefix(decoder_->strip_content.size());
    }
    return text;
  }

  /// The bytes of a token inside a text; some may be part of a character only.
  std::string bytes_of(std::string_view piece) const {
    std::string bytes;
    switch (decoder_->kind) {
      case TokenDecoder::Kind::byte_level: byte_level::append_bytes(bytes, piece); break;
      case TokenDecoder::Kind::metaspace: bytes = replace_all(piece, decoder_->replacement, " "); break;
      case TokenDecoder::Kind::joined: {
        const std::string replaced = with_replacements(piece);
        const int byte = decoder_->byte_fallback ? byte_of(replaced) : -1;
        bytes = byte < 0 ? replaced : std::string(1, static_cast<char>(static_cast<unsigned char>(byte)));
        break;
      }
    }
    return bytes;
  }

 private:
  std::string with_replacements(std::string_view piece) const {
    std::string replaced{piece};
    const std::size_t limit = growth_limit(piece.size());
    for (const auto& replace : decoder_->replaces) {
      replaced = replace_all(replaced, replace.pattern, replace.content, limit);
    }
    return replaced;
  }

  void push_joined(std::string_view piece, std::string& out) {
    if (!first_ && !decoder_->separator.empty()) out += decoder_->separator;
    std::string replaced;
    if (!decoder_->replaces.empty()) piece = replaced = with_replacements(piece);
    const int byte = decoder_->byte_fallback ? byte_of(piece) : -1;
    if (byte < 0) {
      end_run(out);
      strip(piece, out);
      return;
    }
    bytes_.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    if (!valid_run_) return;
    const utf8::Sequence sequence = utf8::examine(std::string_view{bytes_}.substr(whole_));
    if (sequence.kind == utf8::Sequence::whole) whole_ = bytes_.size();
    if (sequence.kind == utf8::Sequence::invalid) valid_run_ = false;
  }

  void end_run(std::string& out) {
    if (bytes_.empty()) return;
    if (valid_run_ && whole_ == bytes_.size()) {
      strip(bytes_, out);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) strip(utf8::replacement, out);
    }
    bytes_.clear();
    whole_ = 0;
    valid_run_ = true;
  }

  /// Appends text, leaving out what is to be stripped from the start of the whole.
  void strip(std::string_view text, std::string& out) {
    while (stripped_ < decoder_->strip_count && !text.empty()) {
      if (!text.starts_with(decoder_->strip_content)) {
        stripped_ = decoder_->strip_count;
        break;
      }
      text.remove_prefix(decoder_->strip_content.size());
      ++stripped_;
    }
    out += text;
  }

  /// The byte that "<0x41>" names, or -1.
  static int byte_of(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    const auto digit = [](char symbol) {
      if (symbol >= '0' && symbol <= '9') return symbol - '0';
      if (symbol >= 'A' && symbol <= 'F') return symbol - 'A' + 10;
      if (symbol >= 'a' && symbol <= 'f') return symbol - 'a' + 10;
      return -1;
    };
    const int high = digit(piece[3]);
    const int low = digit(piece[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }

  const TokenDecoder* decoder_;
  std::string bytes_;      // byte_level: an unfinished character; joined: the run of byte tokens
  std::size_t whole_ = 0;  // bytes_ up to here are whole characters
  bool valid_run_ = true;  // bytes_ are the beginning of valid UTF-8
  bool first_ = true;      // no token yet
  std::size_t stripped_ = 0;
};

}}
