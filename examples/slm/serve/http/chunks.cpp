#include "http/chunks.hpp"

#include <utility>

#include "http/escapes.hpp"
#include "http/head.hpp"

namespace serve {
namespace {

constexpr std::size_t most_digits = 8;
constexpr std::size_t most_extension_bytes = 64;
constexpr std::size_t most_trailer_bytes = 4 << 10;

bool is_blank(char byte) { return byte == ' ' || byte == '\t'; }

bool is_plain(char byte) { return (static_cast<unsigned char>(byte) >= 0x20 && byte != 0x7f) || byte == '\t'; }

}  // namespace

std::size_t ChunkDecoder::feed(std::string_view bytes, std::string& body) {
  std::size_t taken = 0;
  while (taken < bytes.size() && state_ < State::complete) {
    if (state_ == State::data) {
      const auto piece = bytes.substr(taken, size_);
      body += piece;
      taken += piece.size();
      size_ -= piece.size();
      if (size_ == 0) state_ = State::data_end;
    } else {
      state_ = take(bytes[taken++], body.size());
    }
  }
  return taken;
}

ChunkDecoder::State ChunkDecoder::take(char byte, std::size_t body_bytes) {
  switch (state_) {
    case State::size: return take_size(byte);
    case State::blank:
      if (byte == ';') return State::extension;
      if (byte == '\r') return State::size_end;
      return is_blank(byte) && ++dropped_ <= most_extension_bytes ? State::blank : State::damaged;
    case State::extension:
      if (byte == '\r') return State::size_end;
      return is_plain(byte) && ++dropped_ <= most_extension_bytes ? State::extension : State::damaged;
    case State::size_end:
      if (byte != '\n') return State::damaged;
      digits_ = dropped_ = 0;
      if (size_ == 0) return State::trailer;
      return size_ <= most_ - body_bytes ? State::data : State::too_large;
    case State::data_end: return byte == '\r' ? State::data_line_feed : State::damaged;
    case State::data_line_feed: return byte == '\n' ? State::size : State::damaged;
    case State::trailer:
      if (byte == '\r' && trailer_ == Trailer::none) return State::trailer_end;
      if (byte == ':' && trailer_ == Trailer::name) return keep_trailer(Trailer::value);
      if (trailer_ != Trailer::value) return is_token_byte(byte) ? keep_trailer(Trailer::name) : State::damaged;
      if (byte == '\r') return State::trailer_end;
      return is_plain(byte) ? keep_trailer(Trailer::value) : State::damaged;
    case State::trailer_end:
      if (byte != '\n') return State::damaged;
      return std::exchange(trailer_, Trailer::none) == Trailer::none ? State::complete : State::trailer;
    default: return state_;
  }
}

ChunkDecoder::State ChunkDecoder::keep_trailer(Trailer part) {
  trailer_ = part;
  return ++dropped_ <= most_trailer_bytes ? State::trailer : State::damaged;
}

ChunkDecoder::State ChunkDecoder::take_size(char byte) {
  if (const int digit = hex_value(byte); digit >= 0) {
    size_ = size_ * 16 + static_cast<std::size_t>(digit);
    return ++digits_ <= most_digits ? State::size : State::damaged;
  }
  if (digits_ == 0) return State::damaged;
  state_ = State::blank;
  return take(byte, 0);
}

}  // namespace serve
