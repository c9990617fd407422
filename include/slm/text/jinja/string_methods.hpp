// Python's methods of strings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/runtime.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja::string_methods {

inline Value made(Runtime& run, const Value& self, Text text) {
  const Value value = run.heap.string(std::move(text));
  return self.is_safe() ? value.safe() : value;
}

/// Without the characters of a set, or white space, at its ends.
inline Text stripped(const Text& text, const Value* set, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  const auto goes = [set](char32_t code) {
    if (set == nullptr) return is_blank(code);
    for (std::size_t at = 0; at < set->bytes().size();) {
      if (utf8::next(set->bytes(), at) == code) return true;
    }
    return false;
  };
  std::size_t begin = 0, end = bytes.size();
  for (std::size_t next = 0; left && begin < end && goes(utf8::next(bytes, next)); next = begin) begin = next;
  while (right && end > begin) {
    const std::size_t last = utf8::before(bytes, end);
    if (!goes(utf8::at(bytes, last))) break;
    end = last;
  }
  return text.part(begin, end);
}

template <bool left, bool right>
Value strip(Runtime& run, const Value& self, const Call& call) {
  const Given given("strip", call, {"chars"});
  const Value* set = given.given(0) ? &given.string(0) : nullptr;
  run.heap.spend(set == nullptr ? self.bytes().size() / 8 : self.characters() * (set->characters() + 8) / 8);
  return made(run, self, stripped(self.text(), set, left, right));
}

inline Value upper(Runtime& run, const Value& self, const Call& call) {
  Given("upper", call, {});
  run.heap.spend_characters(self);
  return made(run, self, jinja::upper(self.text()));
}
inline Value lower(Runtime& run, const Value& self, const Call& call) {
  Given("lower", call, {});
  run.heap.spend_characters(self);
  return made(run, self, jinja::lower(self.text()));
}

inline Text capitalized(const Text& text) {
  std::size_t first = 0;
  if (!text.empty()) utf8::next(text.bytes(), first);
  Text out = jinja::upper(text.part(0, first));
  out.append(jinja::lower(text.part(first, text.size())));
  return out;
}
inline Value capitalize(Runtime& run, const Value& self, const Call& call) {
  Given("capitalize", call, {});
  run.heap.spend_characters(self);
  return made(run, self, capitalized(self.text()));
}

inline Value title(Runtime& run, const Value& self, const Call& call) {
  Given("title", call, {});
  run.heap.spend_characters(self);
  bool inside = false;
  return made(run, self, changed(self.text(), [&inside](std::string& out, char32_t code, std::size_t) {
                inside ? append_lower(out, code) : append_upper(out, code);
                inside = unicode::is_letter(code);
              }));
}

inline Value swapcase(Runtime& run, const Value& self, const Call& call) {
  Given("swapcase", call, {});
  run.heap.spend_characters(self);
  return made(run, self, changed(self.text(), [](std::string& out, char32_t code, std::size_t) {
                has_upper(code) ? append_upper(out, code) : append_lower(out, code);
              }));
}

/// The pieces between white space, at most `most` cuts.
inline std::vector<Text> split_at_blanks(Heap& heap, const Text& text, std::int64_t most, bool from_right) {
  std::vector<Text> pieces;
  const std::string_view bytes = text.bytes();
  std::size_t begin = skip_blanks(bytes, 0), end = strip_blanks(bytes, begin, bytes.size());
  const std::size_t first = begin, last = bytes.size();
  if (from_right) {
    for (; end > first && most != 0; --most) {
      std::size_t word = end;
      while (word > first && !is_blank(utf8::at(bytes, utf8::before(bytes, word)))) word = utf8::before(bytes, word);
      heap.spend(4 + (end - word) / 4);
      pieces.push_back(text.part(word, end));
      end = strip_blanks(bytes, first, word);
    }
    if (end > first) pieces.push_back(text.part(0, end));
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
  for (; begin < end && most != 0; --most) {
    std::size_t word = begin;
    for (std::size_t next = word; word < end && !is_blank(utf8::next(bytes, next)); word = next) {
    }
    heap.spend(4 + (word - begin) / 4);
    pieces.push_back(text.part(begin, word));
    begin = skip_blanks(bytes, word);
  }
  if (begin < last) pieces.push_back(text.part(begin, last));
  return pieces;
}

inline std::vector<Text> split_at(Heap& heap, const Text& text, std::string_view separator, std::int64_t most,
                                  bool from_right) {
  if (separator.empty()) fail("the separator is empty");
  std::vector<Text> pieces;
  const std::string_view bytes = text.bytes();
  const Search search(heap, separator, from_right);
  if (from_right) {
    std::size_t end = bytes.size();
    for (; most != 0; --most) {
      const std::size_t at = search.in(bytes, 0, end);
      if (at == bytes.npos) break;
      heap.spend(4);
      pieces.push_back(text.part(at + separator.size(), end));
      end = at;
    }
    pieces.push_back(text.part(0, end));
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }
  std::size_t begin = 0;
  for (; most != 0; --most) {
    const std::size_t at = search.in(bytes, begin, bytes.size());
    if (at == bytes.npos) break;
    heap.spend(4);
    pieces.push_back(text.part(begin, at));
    begin = at + separator.size();
  }
  pieces.push_back(text.part(begin, bytes.size()));
  return pieces;
}

inline Value as_list(Runtime& run, std::vector<Text> pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (Text& piece : pieces) items.push_back(run.heap.string(std::move(piece)));
  return run.heap.list(std::move(items));
}

/// Bounds how much memory the pieces of a text take before they are counted.
inline void check_pieces(Runtime& run, const Value& self) {
  run.heap.spend(self.bytes().size() / 8);
  if (self.bytes().size() > run.heap.limits().memory / 160) fail_limit("a text is too long to be split");
}

template <bool from_right>
Value split(Runtime& run, const Value& self, const Call& call) {
  const Given given("split", call, {"sep", "maxsplit"});
  check_pieces(run, self);
  const std::int64_t most = given.whole(1, -1);
  if (!given.given(0)) return as_list(run, split_at_blanks(run.heap, self.text(), most, from_right));
  return as_list(run, split_at(run.heap, self.text(), given.string(0).bytes(), most, from_right));
}

inline Value splitlines(Runtime& run, const Value& self, const Call& call) {
  const Given given("splitlines", call, {"keepends"});
  check_pieces(run, self);
  const bool keeps = given.flag(0);
  std::vector<Text> lines;
  const std::string_view bytes = self.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t code = utf8::next(bytes, at);
    if (!((code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
          code == 0x2029)) {
      continue;
    }
    if (code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    run.heap.spend(4);
    lines.push_back(self.text().part(begin, keeps ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(self.text().part(begin, bytes.size()));
  return as_list(run, std::move(lines));
}

template <bool from_right>
Value partition(Runtime& run, const Value& self, const Call& call) {
  const Given given("partition", call, {"sep"});
  const std::string_view separator = given.string(0).bytes(), bytes = self.bytes();
  if (separator.empty()) fail("the separator is empty");
  const std::size_t at = Search(run.heap, separator, from_right).in(bytes);
  Heap& heap = run.heap;
  if (at == bytes.npos) {
    const Value empty = heap.string("");
    return from_right ? heap.tuple({empty, empty, self}) : heap.tuple({self, empty, empty});
  }
  const std::size_t end = at + separator.size();
  return heap.tuple({heap.string(self.text().part(0, at)), heap.string(self.text().part(at, end)),
                     heap.string(self.text().part(end, bytes.size()))});
}

/// The bytes of the characters [start, end) that the arguments `first` and `first + 1` name.
inline std::pair<std::size_t, std::size_t> bounds(Heap& heap, const Value& self, const Given& given,
                                                  std::size_t first) {
  const auto length = static_cast<std::int64_t>(self.characters());
  const auto place = [&](std::size_t index, std::int64_t otherwise) {
    std::int64_t at = given.given(index) ? given.whole(index) : otherwise;
    if (at < 0) at = std::max<std::int64_t>(0, at + length);
    return place_of(heap, self, static_cast<std::size_t>(std::min(at, length)));
  };
  const std::size_t begin = place(first, 0);
  return {begin, std::max(begin, place(first + 1, length))};
}

template <bool ends>
Value starts_or_ends(Runtime& run, const Value& self, const Call& call) {
  const Given given(ends ? "endswith" : "startswith", call, {"prefix", "start", "end"});
  const auto [begin, end] = bounds(run.heap, self, given, 1);
  const std::string_view bytes = self.bytes().substr(begin, end - begin);
  const auto fits = [&](const Value& value) {
    if (!value.is_string()) fail(text("expected a string or a tuple of them, found type ", type_name(value)));
    run.heap.spend(1 + std::min(bytes.size(), value.bytes().size()) / 16);
    return ends ? bytes.ends_with(value.bytes()) : bytes.starts_with(value.bytes());
  };
  const Value& wanted = given.at(0);
  need(wanted);
  if (!wanted.is(Kind::tuple)) return Value::boolean(fits(wanted));
  return Value::boolean(std::any_of(wanted.items().begin(), wanted.items().end(), fits));
}

template <bool from_right, bool must>
Value find(Runtime& run, const Value& self, const Call& call) {
  const Given given("find", call, {"sub", "start", "end"});
  const auto [begin, end] = bounds(run.heap, self, given, 1);
  const std::size_t at = Search(run.heap, given.string(0).bytes(), from_right).in(self.bytes(), begin, end);
  if (at != Search::none) {
    run.heap.spend(at / 16);
    return Value::integer(static_cast<std::int64_t>(utf8::count(self.bytes().substr(0, at))));
  }
  if (must) fail("the text does not contain what is looked for");
  return Value::integer(-1);
}

inline Value count(Runtime& run, const Value& self, const Call& call) {
  const Given given("count", call, {"sub", "start", "end"});
  const auto [begin, end] = bounds(run.heap, self, given, 1);
  const std::string_view bytes = self.bytes().substr(begin, end - begin), wanted = given.string(0).bytes();
  run.heap.spend_bytes(bytes.size());
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(utf8::count(bytes)) + 1);
  std::int64_t found = 0;
  const Search search(run.heap, wanted);
  for (std::size_t at = 0; (at = search.in(bytes, at, bytes.size())) != Search::none; at += wanted.size()) ++found;
  return Value::integer(found);
}

inline Text replaced(Heap& heap, const Text& text, std::string_view old, const Text& by, std::int64_t most) {
  Text out;
  const std::string_view bytes = text.bytes();
  const Search search(heap, old);
  std::size_t begin = 0;
  for (; most != 0; --most) {
    std::size_t at = search.in(bytes, begin, bytes.size()), end = at + old.size();
    if (old.empty()) {
      at = end = begin;
      if (begin < bytes.size()) utf8::next(bytes, end);
    }
    if (at == bytes.npos) break;
    heap.append(out, text, begin, at);
    heap.append(out, by);
    if (old.empty()) {
      heap.append(out, text, at, end);
      if (begin == bytes.size()) return out;
    }
    begin = end;
  }
  heap.append(out, text, begin, bytes.size());
  return out;
}

inline Value replace(Runtime& run, const Value& self, const Call& call) {
  const Given given("replace", call, {"old", "new", "count"});
  return made(run, self,
              replaced(run.heap, self.text(), given.string(0).bytes(), given.string(1).text(), given.whole(2, -1)));
}

inline Value join(Runtime& run, const Value& self, const Call& call) {
  const Value parts = sequence_of(run.heap, Given("join", call, {"iterable"}).at(0));
  Text out;
  for (std::size_t i = 0; i < parts.items().size(); ++i) {
    const Value& part = parts.items()[i];
    if (!part.is_string()) fail(text("expected strings to join, found type ", type_name(part), " at ", i));
    if (i > 0) run.heap.append(out, self.text());
    run.heap.append(out, part.text());
  }
  return made(run, self, std::move(out));
}

template <bool suffix>
Value remove(Runtime& run, const Value& self, const Call& call) {
  const std::string_view part = Given("removeprefix", call, {"prefix"}).string(0).bytes(), bytes = self.bytes();
  run.heap.spend_bytes(std::min(part.size(), bytes.size()));
  const bool fits = !part.empty() && (suffix ? bytes.ends_with(part) : bytes.starts_with(part));
  if (!fits) return self;
  return made(run, self,
              suffix ? self.text().part(0, bytes.size() - part.size()) : self.text().part(part.size(), bytes.size()));
}

/// Whether all characters are of a kind, and there are some.
template <class Is>
Value all(Runtime& run, const Value& self, const Call& call, Is&& is) {
  Given("is...", call, {});
  run.heap.spend_characters(self);
  const std::string_view bytes = self.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    if (!is(utf8::next(bytes, at))) return Value::boolean(false);
  }
  return Value::boolean(!bytes.empty());
}
inline Value all_alpha(Runtime& run, const Value& self, const Call& call) {
  return all(run, self, call, unicode::is_letter);
}
inline Value all_digit(Runtime& run, const Value& self, const Call& call) {
  return all(run, self, call, unicode::is_number);
}
inline Value all_space(Runtime& run, const Value& self, const Call& call) { return all(run, self, call, is_blank); }
inline Value all_alnum(Runtime& run, const Value& self, const Call& call) {
  return all(run, self, call, [](char32_t code) { return unicode::is_letter(code) || unicode::is_number(code); });
}
inline Value all_ascii(Runtime& run, const Value& self, const Call& call) {
  return all(run, self, call, [](char32_t code) { return code < 0x80; });
}

/// Whether there is a character that has a case, and none of the other case.
inline bool is_cased(Heap& heap, const Value& self, bool upper) {
  for (int i = 0; i < 4; ++i) heap.spend_characters(self);
  bool found = false;
  const std::string_view bytes = self.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    const char32_t code = utf8::next(bytes, at);
    if (upper ? has_upper(code) : has_lower(code)) return false;
    found = found || has_upper(code) || has_lower(code);
  }
  return found;
}
template <bool upper>
Value is_case(Runtime& run, const Value& self, const Call& call) {
  Given("isupper", call, {});
  return Value::boolean(is_cased(run.heap, self, upper));
}

}}}
