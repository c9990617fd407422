// Character classes and NFC, from the generated tables.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/unicode_tables.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace unicode {

/// The classes of characters; the numbers are those of the generated table.
enum class Class : std::uint8_t {
  other,
  letter,       // L
  number_word,  // Nd, Nl: numbers that are word characters too
  number,       // No
  space,        // White_Space
  word,         // M, Pc, join controls, alphabetic symbols: word characters and nothing else
};

constexpr Class search_class(char32_t code) {
  const auto* run =
      std::upper_bound(std::begin(class_runs), std::end(class_runs), static_cast<std::uint32_t>(code) * 8 + 7);
  return run == std::begin(class_runs) ? Class::other : static_cast<Class>(run[-1] & 7u);
}

/// Classes of all one- and two-byte characters.
inline constexpr auto direct_classes = [] {
  std::array<Class, 0x800> table{};
  for (char32_t code = 0; code < table.size(); ++code) table[code] = search_class(code);
  return table;
}();

constexpr Class class_of(char32_t code) {
  return code < direct_classes.size() ? direct_classes[code] : search_class(code);
}

inline bool is_letter(char32_t code) { return class_of(code) == Class::letter; }
inline bool is_space(char32_t code) { return class_of(code) == Class::space; }
inline bool is_number(char32_t code) {
  const Class kind = class_of(code);
  return kind == Class::number_word || kind == Class::number;
}
/// The characters that `\w` matches.
inline bool is_word(char32_t code) {
  const Class kind = class_of(code);
  return kind == Class::letter || kind == Class::number_word || kind == Class::word;
}

/// One number of a packed table: 5 bits a character, the low bits first, 32 added where more follow.
inline char32_t unpack(std::string_view table, std::size_t& position) {
  char32_t number = 0;
  for (int shift = 0;; shift += 5) {
    const char symbol = table[position++];
    const auto digit = static_cast<char32_t>((symbol == '~' ? '\\' : symbol == '}' ? '?' : symbol) - '#');
    number |= (digit & 31) << shift;
    if (digit < 32) return number;
  }
}

/// The tables of NFC, unpacked once.
class Normalization {
 public:
  static const Normalization& tables() {
    static const Normalization unpacked;
    return unpacked;
  }

  /// Combining class, plus 256 where NFC may change the character or join it to the one before.
  unsigned run_value(char32_t code) const {
    if (code < 0x300) return 0;
    const auto run = std::upper_bound(runs_.begin(), runs_.end(), std::pair{code, ~0u});
    return run == runs_.begin() ? 0 : run[-1].second;
  }
  unsigned combining_class(char32_t code) const { return run_value(code) & 255u; }

  /// Appends the full canonical decomposition.
  void decompose(char32_t code, std::u32string& out) const {
    if (code >= hangul && code < hangul + hangul_count) {
      const char32_t index = code - hangul;
      out.push_back(lead_jamo + index / (vowels * tails));
      out.push_back(vowel_jamo + index % (vowels * tails) / tails);
      if (index % tails != 0) out.push_back(tail_jamo + index % tails);
      return;
    }
    const auto found = std::lower_bound(decompositions_.begin(), decompositions_.end(), code,
                                        [](const Decomposition& entry, char32_t value) { return entry.code < value; });
    if (found == decompositions_.end() || found->code != code) {
      out.push_back(code);
      return;
    }
    decompose(found->first, out);  // the tables nest four deep at most
    if (found->second != 0) out.push_back(found->second);
  }

  /// The character that two compose to, or 0.
  char32_t compose(char32_t first, char32_t second) const {
    if (first >= lead_jamo && first < lead_jamo + leads && second >= vowel_jamo && second < vowel_jamo + vowels) {
      return hangul + ((first - lead_jamo) * vowels + (second - vowel_jamo)) * tails;
    }
    if (first >= hangul && first < hangul + hangul_count && (first - hangul) % tails == 0 && second > tail_jamo &&
        second < tail_jamo + tails) {
      return first + (second - tail_jamo);
    }
    const Decomposition key{0, first, second};
    const auto found = std::lower_bound(compositions_.begin(), compositions_.end(), key, by_parts);
    return found != compositions_.end() && !by_parts(key, *found) ? found->code : 0;
  }

 private:
  struct Decomposition {
    char32_t code, first, second;
  };
  static constexpr char32_t hangul = 0xAC00, hangul_count = 11172, lead_jamo = 0x1100, leads = 19, vowel_jamo = 0x1161,
                            vowels = 21, tail_jamo = 0x11A7, tails = 28;

  static bool by_parts(const Decomposition& a, const Decomposition& b) {
    return std::pair{a.first, a.second} < std::pair{b.first, b.second};
  }

  Normalization() {
    std::size_t position = 0;
    char32_t code = 0;
    while (position < decompositions.size()) {
      code += unpack(decompositions, position);
      const char32_t first = unpack(decompositions, position);
      const char32_t second = unpack(decompositions, position);
      decompositions_.push_back({code, first, second >> 1});
      if (second & 1) compositions_.push_back(decompositions_.back());
    }
    std::sort(compositions_.begin(), compositions_.end(), by_parts);
    code = 0;
    for (position = 0; position < nfc_runs.size();) {
      code += unpack(nfc_runs, position);
      runs_.emplace_back(code, static_cast<unsigned>(unpack(nfc_runs, position)));
    }
  }

  std::vector<Decomposition> decompositions_;        // by code
  std::vector<Decomposition> compositions_;          // by first, second
  std::vector<std::pair<char32_t, unsigned>> runs_;  // first code point, value
};

/// True when NFC leaves the (valid) text as it is; may be false for some text that NFC would leave, too.
inline bool is_nfc_at_a_glance(std::string_view text) {
  const Normalization& tables = Normalization::tables();
  unsigned last_class = 0;
  for (std::size_t position = 0; position < text.size();) {
    if (utf8::are_ascii(text, position)) {
      position += 8;
      last_class = 0;
      continue;
    }
    if (static_cast<unsigned char>(text[position]) < 0xCC) {  // below U+0300: never changed, class 0
      position += static_cast<unsigned char>(text[position]) < 0x80 ? 1 : 2;
      last_class = 0;
      continue;
    }
    const unsigned value = tables.run_value(utf8::next(text, position));
    if (value >= 256 || (value != 0 && value < last_class)) return false;
    last_class = value;
  }
  return true;
}

/// Unicode Normalization Form C of a valid text, in time O(n log n).
inline std::string nfc(std::string_view text) {
  if (is_nfc_at_a_glance(text)) return std::string{text};
  const Normalization& tables = Normalization::tables();
  std::u32string characters;
  characters.reserve(text.size());
  for (std::size_t position = 0; position < text.size();) tables.decompose(utf8::next(text, position), characters);

  // Canonical order: by combining class, with marks of one class in their order. A mark's class, position and code
  // point are one number, which sorts like that.
  constexpr int place_bits = 35, code_bits = 21;
  std::vector<std::uint64_t> marks;
  for (std::size_t begin = 0; begin < characters.size(); ++begin) {
    if (tables.combining_class(characters[begin]) == 0) continue;
    marks.clear();
    std::size_t end = begin;
    for (; end < characters.size(); ++end) {
      const unsigned order = tables.combining_class(characters[end]);
      if (order == 0) break;
      marks.push_back((std::uint64_t{order} << place_bits | marks.size()) << code_bits | characters[end]);
    }
    std::sort(marks.begin(), marks.end());
    for (std::size_t i = 0; i < marks.size(); ++i) {
      characters[begin + i] = static_cast<char32_t>(marks[i] & ((1u << code_bits) - 1));
    }
    begin = end - 1;
  }

  // Composition: each character joins the last starter unless one of the same or a higher class is between them.
  std::size_t kept = 0;
  std::size_t starter = characters.size();  // none yet
  unsigned last_class = 0;
  for (const char32_t code : characters) {
    const unsigned order = tables.combining_class(code);
    if (starter < kept && (kept == starter + 1 || last_class < order)) {
      if (const char32_t joined = tables.compose(characters[starter], code)) {
        characters[starter] = joined;
        continue;
      }
    }
    if (order == 0) starter = kept;
    last_class = order;
    characters[kept++] = code;
  }

  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < kept; ++i) utf8::append(out, characters[i]);
  return out;
}

}}}
