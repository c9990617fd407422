// Characters as Python's strings see them: case, what repr() escapes, operations on text by character.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "slm/text/jinja/case_tables.hpp"
#include "slm/text/jinja/lexer.hpp"
#include "slm/text/jinja/text.hpp"
#include "slm/text/unicode.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline bool is_printable(char32_t code) {
  const auto* run =
      std::upper_bound(std::begin(printable_runs), std::end(printable_runs), static_cast<std::uint32_t>(code));
  return (run - std::begin(printable_runs)) % 2 == 1;
}

template <std::size_t Runs, std::size_t Texts>
void append_case(std::string& out, char32_t code, const CaseRun (&runs)[Runs], const CaseText (&texts)[Texts]) {
  const auto* special = std::lower_bound(std::begin(texts), std::end(texts), static_cast<std::uint32_t>(code),
                                         [](const CaseText& entry, std::uint32_t value) { return entry.code < value; });
  if (special != std::end(texts) && special->code == code) {
    out += special->text;
    return;
  }
  const auto* run = std::upper_bound(std::begin(runs), std::end(runs), static_cast<std::uint32_t>(code),
                                     [](std::uint32_t value, const CaseRun& entry) { return value < entry.first; });
  if (run != std::begin(runs)) {
    --run;
    if (code <= run->last && (code - run->first) % run->step == 0) {
      code = static_cast<char32_t>(static_cast<std::int64_t>(code) + run->difference);
    }
  }
  utf8::append(out, code);
}

inline void append_upper(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code);
  } else {
    append_case(out, code, upper_runs, upper_texts);
  }
}

inline void append_lower(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
  } else {
    append_case(out, code, lower_runs, lower_texts);
  }
}

inline bool has_upper(char32_t code) {
  std::string other;
  append_upper(other, code);
  return utf8::at(other, 0) != code;
}
inline bool has_lower(char32_t code) {
  std::string other;
  append_lower(other, code);
  return utf8::at(other, 0) != code;
}

/// The text with change(out, code, position) for each character; what it appends has the character's origin.
template <class Change>
Text changed(const Text& text, Change&& change) {
  Text out;
  std::string piece;
  std::size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    piece.clear();
    while (at < run.end) {
      const std::size_t begin = at;
      const char32_t code = utf8::next(text.bytes(), at);
      change(piece, code, begin);
    }
    out.append(piece, run.origin);
  }
  return out;
}

/// Whether the sigma at `position` ends a word, so that its lower case is another letter.
inline bool is_final_sigma(std::string_view text, std::size_t position) {
  const auto cased = [](char32_t code) { return unicode::is_letter(code); };
  std::size_t next = position;
  utf8::next(text, next);
  const bool before = position > 0 && cased(utf8::at(text, utf8::before(text, position)));
  return before && !(next < text.size() && cased(utf8::at(text, next)));
}

inline Text upper(const Text& text) {
  return changed(text, [](std::string& out, char32_t code, std::size_t) { append_upper(out, code); });
}
inline Text lower(const Text& text) {
  return changed(text, [&](std::string& out, char32_t code, std::size_t at) {
    if (code == 0x3A3 && is_final_sigma(text.bytes(), at)) {
      utf8::append(out, 0x3C2);
    } else {
      append_lower(out, code);
    }
  });
}

}}}
