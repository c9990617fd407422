// The functions of Matcher that read a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "slm/core/macros.hpp"
#include "slm/text/split/matcher.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace split {

/// The class of the character before `position`, which moves to its start.
SLM_INLINE std::uint8_t Matcher::class_before(std::string_view text, std::size_t& position) const {
  const auto byte = static_cast<unsigned char>(text[--position]);
  if (byte < 0x80) return ascii_[byte];
  while (position > 0 && utf8::is_continuation(text[position])) --position;
  return class_of(utf8::at(text, position));
}

/// The end of the match that begins at `position`, or nowhere.
SLM_INLINE std::size_t Matcher::match_end(std::string_view text, const std::uint16_t* states,
                                          std::size_t position) const {
  const std::uint16_t* const forward = forward_.data();
  const std::size_t points = points_;
  std::uint16_t point = forward[states[position] * points];
  if (point == none) return nowhere;
  while (point != accepted) {
    position += length_at(text, position);
    point = forward[states[position] * points + point];
  }
  return position;
}

/// Fills in the state of each place.
SLM_INLINE void Matcher::read_backwards(std::string_view text, Places& places) const {
  if (places.size <= text.size()) {
    places.size = std::max(text.size() + 1, std::min(2 * places.size, text.size() + 65536));
    places.states = std::make_unique_for_overwrite<std::uint16_t[]>(places.size);
  }
  std::uint16_t* states = places.states.get();
  std::size_t position = text.size();
  if (kinds_.empty()) {
    std::uint16_t state = states[position] = ends_[0];
    const std::uint16_t* const backward = backward_.data();
    const int bits = class_bits_;
    while (position > 0) {
      const auto byte = static_cast<unsigned char>(text[position - 1]);
      const std::uint8_t number = byte < 0x80 ? (--position, ascii_[byte]) : class_before(text, position);
      states[position] = state = backward[std::size_t{state} << bits | number];
    }
    return;
  }
  const auto outside = static_cast<std::uint8_t>(kinds_.size() - 1);
  std::size_t before = position;
  std::uint8_t behind = before > 0 ? class_before(text, before) : outside;
  std::uint16_t state = states[position] = ends_[kinds_[behind]];
  while (position > 0) {
    position = before;
    const std::uint8_t next = before > 0 ? class_before(text, before) : outside;
    const std::size_t row = std::size_t{state} << kind_bits_ | kinds_[next];
    states[position] = state = backward_[row << class_bits_ | behind];
    behind = next;
  }
}

}}}
