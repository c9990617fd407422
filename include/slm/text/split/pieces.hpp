// Cuts a text at the matches of a pattern, in the ways of Hugging Face's Split.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "slm/text/split/matcher.hpp"

namespace slm { inline namespace v0_1 { namespace split {

/// The treatment of matches. A gap is the text between two matches, or before the first, or after the last.
enum class Behavior : std::uint8_t {
  isolated,              // each match is a piece, and so is each gap
  removed,               // the gaps are the pieces
  contiguous,            // neighbouring matches are one piece
  merged_with_previous,  // a match belongs to the gap before it
  merged_with_next,      // and to the gap behind it
};

struct Splitter {
  std::shared_ptr<const Matcher> matcher;
  Behavior behavior = Behavior::isolated;
  bool invert = false;  // gaps are treated as matches, and matches as gaps

  bool operator==(const Splitter& other) const {
    return matcher->pattern() == other.matcher->pattern() && behavior == other.behavior && invert == other.invert;
  }

  /// Calls sink(piece) for each piece that is not empty.
  template <class Sink>
  void operator()(std::string_view text, Matcher::Places& places, Sink&& sink) const {
    const auto put = [&](std::size_t from, std::size_t to) {
      if (to > from) sink(text.substr(from, to - from));
    };
    if (behavior == Behavior::isolated) {
      std::size_t done = 0;
      matcher->each(text, places, [&](std::size_t from, std::size_t to) {
        put(done, from);
        put(from, to);
        done = to;
      });
      return put(done, text.size());
    }
    std::size_t begin = 0, end = 0;  // the piece that may still grow
    bool matched = false;            // whether the last match or gap counted as a match
    const auto take = [&](std::size_t from, std::size_t to, bool is_match) {
      if (behavior == Behavior::removed) return is_match ? void() : put(from, to);
      const bool joins = behavior == Behavior::contiguous             ? is_match == matched
                         : behavior == Behavior::merged_with_previous ? is_match && !matched
                                                                      : !is_match && matched;
      if (!joins) {
        put(begin, end);
        begin = from;
      }
      end = to;
      matched = is_match;
    };
    std::size_t done = 0;
    matcher->each(text, places, [&](std::size_t from, std::size_t to) {
      if (from > done) take(done, from, invert);
      take(from, to, !invert);
      done = to;
    });
    if (text.size() > done) take(done, text.size(), invert);
    put(begin, end);
  }
};

/// The pattern that matches `text`.
inline std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char byte : text) {
    const bool plain = static_cast<unsigned char>(byte) >= 0x80 || byte == '_' || (byte >= '0' && byte <= '9') ||
                       (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
    if (!plain) pattern += '\\';
    pattern += byte;
  }
  return pattern;
}

}}}
