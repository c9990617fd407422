// CharSet: a set of code points, and those sets that regular expressions name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/unicode.hpp"
#include "slm/text/unicode_properties.hpp"

namespace slm { inline namespace v0_1 { namespace split {

class CharSet {
 public:
  struct Range {
    char32_t first, last;  // both belong to the set
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t last_code = 0x10FFFF;

  CharSet() = default;
  explicit CharSet(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    std::size_t kept = 0;
    for (const Range& range : ranges_) {
      if (kept > 0 && range.first <= ranges_[kept - 1].last + 1) {
        ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
      } else {
        ranges_[kept++] = range;
      }
    }
    ranges_.resize(kept);
  }

  /// Sorted, with at least one code point between two ranges.
  const std::vector<Range>& ranges() const { return ranges_; }

  bool contains(char32_t code) const {
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), code,
                                         [](char32_t value, const Range& range) { return value < range.first; });
    return behind != ranges_.begin() && code <= std::prev(behind)->last;
  }

  CharSet complement() const {
    std::vector<Range> gaps;
    char32_t next = 0;
    for (const Range& range : ranges_) {
      if (range.first > next) gaps.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= last_code) gaps.push_back({next, last_code});
    return CharSet(std::move(gaps));
  }

  CharSet united(const CharSet& other) const {
    std::vector<Range> all = ranges_;
    all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
    return CharSet(std::move(all));
  }

  CharSet intersected(const CharSet& other) const { return complement().united(other.complement()).complement(); }

  bool operator==(const CharSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// The code points of the runs in a packed table whose value is wanted(value).
template <class Wanted>
CharSet runs_where(std::string_view table, Wanted&& wanted) {
  std::vector<CharSet::Range> ranges;
  char32_t begin = 0, value = 0;
  const auto end_run = [&](char32_t end) {
    if (end > begin && wanted(value)) ranges.push_back({begin, end - 1});
  };
  for (std::size_t position = 0; position < table.size();) {
    const char32_t code = begin + unicode::unpack(table, position);
    end_run(code);
    begin = code;
    value = unicode::unpack(table, position);
  }
  end_run(CharSet::last_code + 1);
  return CharSet(std::move(ranges));
}

/// The general categories whose names begin so: "L", "Lu".
inline CharSet category_set(std::string_view prefix) {
  return runs_where(unicode::category_runs,
                    [&](char32_t value) { return unicode::category_names[value].starts_with(prefix); });
}

/// `\s`: White_Space.
inline CharSet space_set() { return CharSet({{0x09, 0x0D}, {0x85, 0x85}}).united(category_set("Z")); }

/// `[\w]`: letters, marks, Nd, Nl, Pc and alphabetic symbols.
inline CharSet word_set() {
  const CharSet symbols({{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}});
  return symbols.united(runs_where(unicode::category_runs, [](char32_t value) {
    const std::string_view name = unicode::category_names[value];
    return name[0] == 'L' || name[0] == 'M' || name == "Nd" || name == "Nl" || name == "Pc";
  }));
}

/// `\w` outside of a class, and what `\b` looks for: Oniguruma adds the fractions and superscripts of Latin-1.
inline CharSet plain_word_set() { return word_set().united(CharSet({{0xB2, 0xB3}, {0xB9, 0xB9}, {0xBC, 0xBE}})); }

/// `[[:punct:]]`: punctuation and symbols.
inline CharSet punctuation_set() { return category_set("P").united(category_set("S")); }

/// `\h`: hexadecimal digits.
inline CharSet hex_set() { return CharSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}}); }

/// The set that `\p{name}` means: a general category, a script, or Any. Case, spaces, '_' and '-' do not count.
inline std::optional<CharSet> property_set(std::string_view name) {
  const auto plain = [](std::string_view written) {
    std::string letters;
    for (const char byte : written) {
      if (byte == ' ' || byte == '_' || byte == '-') continue;
      letters += byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
    }
    return letters;
  };
  const std::string wanted = plain(name);
  if (wanted.empty()) return std::nullopt;
  static constexpr std::pair<std::string_view, std::string_view> majors[] = {
      {"letter", "L"}, {"mark", "M"},      {"number", "N"},           {"punctuation", "P"},     {"symbol", "S"},
      {"other", "C"},  {"separator", "Z"}, {"uppercaseletter", "Lu"}, {"lowercaseletter", "Ll"}};
  for (const auto& [word, category] : majors) {
    if (wanted == word) return category_set(category);
  }
  if (wanted == "any") return CharSet({{0, CharSet::last_code}});
  if (wanted == "lc") return category_set("Lu").united(category_set("Ll")).united(category_set("Lt"));
  for (const std::string_view category : unicode::category_names) {
    if (wanted == plain(category)) return category_set(category);
    if (wanted == plain(category.substr(0, 1))) return category_set(category.substr(0, 1));
  }
  for (char32_t script = 1; script < std::size(unicode::script_names); ++script) {
    if (wanted == plain(unicode::script_names[script])) {
      return runs_where(unicode::script_runs, [&](char32_t value) { return value == script; });
    }
  }
  return std::nullopt;
}

/// The set, and every character that simple case folding makes equal to one of it.
inline CharSet folded_set(const CharSet& set) {
  struct Fold {
    char32_t code, folded;
  };
  std::vector<Fold> folds;
  char32_t code = 0;
  for (std::size_t position = 0; position < unicode::case_folds.size();) {
    code += unicode::unpack(unicode::case_folds, position);
    const char32_t distance = unicode::unpack(unicode::case_folds, position);
    folds.push_back({code, distance & 1 ? code - (distance >> 1) : code + (distance >> 1)});
  }
  std::vector<CharSet::Range> targets;
  for (const Fold& fold : folds) {
    if (set.contains(fold.code) || set.contains(fold.folded)) targets.push_back({fold.folded, fold.folded});
  }
  const CharSet equal(std::move(targets));
  std::vector<CharSet::Range> added = equal.ranges();
  for (const Fold& fold : folds) {
    if (equal.contains(fold.folded)) added.push_back({fold.code, fold.code});
  }
  return set.united(CharSet(std::move(added)));
}

}}}
