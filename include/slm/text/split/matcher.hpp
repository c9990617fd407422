// Matcher: finds the matches of a pre-tokenizer's regular expression. It takes time in proportion to the text, whatever
// the expression and the text are.
//
// A match depends on what follows: the first of several branches counts that can match to the end, and a look-ahead
// asks for more. So a text is read twice. Backwards, an automaton finds for each place which states of the pattern
// match from there; forwards, a match takes the first branch that does, and never goes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace split {

class Matcher {
 public:
  /// The state of each place in a text: memory that is kept from text to text.
  class Places {
    friend class Matcher;
    std::unique_ptr<std::uint16_t[]> states;
    std::size_t size = 0;
  };

  /// Throws Error ("tokenizer.split-pattern") for a pattern outside the dialect, or beyond its limits. `place` names
  /// file and field in the message.
  static std::shared_ptr<const Matcher> compile(std::string_view pattern, std::string_view place);

  const std::string& pattern() const { return pattern_; }

  /// Whether the matches of any text, joined, are the text.
  bool covers() const { return covers_; }

  /// Calls match(begin, end) for each match of a valid text, as Oniguruma's search repeated behind each match finds
  /// them. Of the empty matches those count that do not touch the match before.
  template <class Match>
  void each(std::string_view text, Places& places, Match&& match) const {
    read_backwards(text, places);
    std::size_t last_end = nowhere;
    for (std::size_t position = 0; position <= text.size();) {
      const std::size_t end = match_end(text, places.states.get(), position);
      if (end == nowhere || (end == position && end == last_end)) {
        if (position == text.size()) return;
        position += length_at(text, position);
      } else {
        match(position, end);
        position = last_end = end;
      }
    }
  }

 private:
  friend class MatcherBuilder;

  // Values of forward_ that are no points of the pattern.
  static constexpr std::uint16_t none = 0xFFFF, accepted = 0xFFFE;

  static constexpr std::size_t nowhere = ~std::size_t{0};

  /// Bytes of the character at `position`.
  static std::size_t length_at(std::string_view text, std::size_t position) {
    const auto lead = static_cast<unsigned char>(text[position]);
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  }

  std::uint8_t class_of(char32_t code) const {
    return code < ascii_.size() ? ascii_[code] : pages_[page_of_[code >> 8] * std::size_t{256} + (code & 255)];
  }

  void read_backwards(std::string_view text, Places& places) const;
  std::size_t match_end(std::string_view text, const std::uint16_t* states, std::size_t position) const;
  std::uint8_t class_before(std::string_view text, std::size_t& position) const;

  std::string pattern_;
  bool covers_ = false;
  // Classes of characters that the pattern does not distinguish.
  std::array<std::uint8_t, 128> ascii_{};
  std::vector<std::uint16_t> page_of_;  // by code / 256
  std::vector<std::uint8_t> pages_;
  // The backward automaton: its next state by state, kind of the character before, and class of the character.
  std::vector<std::uint16_t> backward_;
  std::vector<std::uint16_t> ends_;     // its state at the end of a text, by kind of the last character
  std::vector<std::uint8_t> kinds_;     // by class, and of the start of the text; empty: all are of one kind
  std::vector<std::uint16_t> forward_;  // by state and point of the pattern: the point behind the next character
  std::size_t points_ = 0;
  int class_bits_ = 0, kind_bits_ = 0;
};

}}}

#if SLM_COMPILES
#include "slm/text/split/matcher_builder.hpp"
#include "slm/text/split/matching.hpp"
#endif
