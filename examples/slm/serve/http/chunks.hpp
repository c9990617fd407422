// Decodes chunked bodies strictly: Boost.Beast accepts line feeds in quoted extensions, which other programs read as
// the end of a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace serve {

/// Decodes a chunked body byte by byte. Extensions and trailers are limited in size and discarded. Accepts blanks
/// before an extension (RFC 9112, section 7.1.1) and, like other programs, after a size alone.
class ChunkDecoder {
 public:
  enum class State {
    size,
    blank,  // after the size
    extension,
    size_end,
    data,
    data_end,
    data_line_feed,
    trailer,
    trailer_end,
    complete,
    damaged,
    too_large
  };

  explicit ChunkDecoder(std::size_t most_body_bytes) : most_(most_body_bytes) {}

  /// Appends the body data in these bytes to `body`. Returns how many bytes belong to the chunks.
  std::size_t feed(std::string_view bytes, std::string& body);

  State state() const { return state_; }

 private:
  State take(char byte, std::size_t body_bytes);
  State take_size(char byte);

  enum class Trailer { none, name, value };  // position in a trailer line
  State keep_trailer(Trailer part);

  std::size_t most_;
  State state_ = State::size;
  std::size_t size_ = 0;     // of the chunk, then its remaining bytes
  std::size_t digits_ = 0;   // of the size
  std::size_t dropped_ = 0;  // bytes of this chunk's extension, or of all trailers
  Trailer trailer_ = Trailer::none;
};

}  // namespace serve
