// The functions of DecodeState.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"
#include "slm/text/byte_level.hpp"
#include "slm/text/decoder.hpp"
#include "slm/text/normalizer.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

SLM_INLINE void DecodeState::push(std::string_view piece, std::string& out) {
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

SLM_INLINE void DecodeState::finish(std::string& out) {
  if (decoder_->kind == TokenDecoder::Kind::byte_level) {
    utf8::append_lossy(out, bytes_);
  } else {
    end_run(out);
  }
  *this = DecodeState{*decoder_};
}

SLM_INLINE void DecodeState::settle(std::string& out) {
  if (decoder_->kind != TokenDecoder::Kind::joined || !valid_run_) return;
  strip(std::string_view{bytes_}.substr(0, whole_), out);
  bytes_.erase(0, whole_);
  whole_ = 0;
}

SLM_INLINE std::string_view DecodeState::waiting() const {
  if (decoder_->kind != TokenDecoder::Kind::joined || !valid_run_) return {};
  std::string_view text = std::string_view{bytes_}.substr(0, whole_);
  for (std::size_t i = stripped_; i < decoder_->strip_count && text.starts_with(decoder_->strip_content); ++i) {
    text.remove_prefix(decoder_->strip_content.size());
  }
  return text;
}

SLM_INLINE std::string DecodeState::bytes_of(std::string_view piece) const {
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

inline std::string DecodeState::with_replacements(std::string_view piece) const {
  std::string replaced{piece};
  const std::size_t limit = growth_limit(piece.size());
  for (const auto& replace : decoder_->replaces) {
    replaced = replace_all(replaced, replace.pattern, replace.content, limit);
  }
  return replaced;
}

inline void DecodeState::push_joined(std::string_view piece, std::string& out) {
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

inline void DecodeState::end_run(std::string& out) {
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

inline void DecodeState::strip(std::string_view text, std::string& out) {
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

inline int DecodeState::byte_of(std::string_view piece) {
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

}}
