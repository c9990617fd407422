// The syntax tree of a split pattern, and the errors of patterns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/text/split/char_set.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace split {

// Limits of a pattern. The published ones stay far below all of them.
inline constexpr std::size_t longest_pattern = 4096;  // bytes
inline constexpr int deepest_nesting = 100;           // groups, classes and stacked quantifiers
inline constexpr std::uint32_t most_repeats = 1000;   // of one counted quantifier
inline constexpr std::size_t most_sets = 200;         // different character classes

/// Where a pattern comes from and what is wrong with it.
struct PatternErrors {
  std::string place;  // file and field
  std::string_view pattern;

  /// `position`: byte in the pattern, which is valid UTF-8 up to there.
  [[noreturn]] void at(std::size_t position, std::string_view what) const {
    position = std::min(position, pattern.size());
    fail(text("character ", utf8::count(pattern.substr(0, position)) + 1, ": ", what));
  }

  [[noreturn]] void fail(std::string_view what) const {
    std::string shown;
    utf8::append_lossy(shown, pattern.substr(0, 300));
    for (char& byte : shown) {
      if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) byte = '?';
    }
    throw Error("tokenizer.split-pattern",
                text(place, ": the regular expression '", shown, pattern.size() > 300 ? "...'" : "'", ", ", what),
                "Use a model whose tokenizer has a supported pattern (docs/models.md, Tokenizers), or encode the text "
                "elsewhere and pass token ids");
  }
};

struct Syntax {
  enum class Kind : std::uint8_t {
    empty,
    set,
    sequence,
    alternatives,
    repeat,
    ahead,       // (?=...), or (?!...) if negative
    behind,      // (?<=.) of one character; negative: (?<!.)
    word_edge,   // \b; negative: \B
    line_start,  // ^
    line_end,    // $
    text_start,  // \A
    text_end,    // \z
  };
  enum class Greed : std::uint8_t { greedy, lazy, possessive };
  static constexpr std::uint32_t endless = ~std::uint32_t{0};

  struct Node {
    Kind kind = Kind::empty;
    bool negative = false;
    Greed greed = Greed::greedy;
    std::uint32_t set = 0;  // index in sets
    std::uint32_t least = 0, most = 0;
    int depth = 1;
    std::size_t position = 0;  // in the pattern
    std::vector<std::uint32_t> children;
  };

  std::vector<Node> nodes;
  std::vector<CharSet> sets;
  std::uint32_t root = 0;
};

}}}
