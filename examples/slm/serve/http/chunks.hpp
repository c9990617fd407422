// Bodies in chunks, as strictly as heads: Boost.Beast takes line feeds in the quotes of an extension, where other
// programs see the end of a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace serve {

/// Takes a body out of its chunks, byte by byte. Extensions and trailers are bounded, and dropped. Blanks may stand
/// before an extension (RFC 9112, section 7.1.1) and, as other programs write and read them, behind a size alone.
class ChunkDecoder {
 public:
  enum class State {
    size,
    blank,  // behind the size
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

  /// Appends to `body` what of it is in these bytes, and returns how many of them belong to the chunks.
  std::size_t feed(std::string_view bytes, std::string& body);

  State state() const { return state_; }

 private:
  State take(char byte, std::size_t body_bytes);
  State take_size(char byte);

  enum class Trailer { none, name, value };  // what of a trailer's line has come
  State keep_trailer(Trailer part);

  std::size_t most_;
  State state_ = State::size;
  std::size_t size_ = 0;     // of the chunk, then what is left of it
  std::size_t digits_ = 0;   // of the size
  std::size_t dropped_ = 0;  // bytes of this chunk's extension, or of all trailers
  Trailer trailer_ = Trailer::none;
};

}  // namespace serve
