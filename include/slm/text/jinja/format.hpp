// Python's formatting: "%s" % value, "{}".format(value), strftime; and the escapes of HTML.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/equality.hpp"
#include "slm/text/jinja/print.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

inline Text escaped(const Text& text) {
  return changed(text, [](std::string& out, char32_t code, std::size_t) {
    switch (code) {
      case '&': out += "&amp;"; return;
      case '<': out += "&lt;"; return;
      case '>': out += "&gt;"; return;
      case '\'': out += "&#39;"; return;
      case '"': out += "&#34;"; return;
      default: utf8::append(out, code);
    }
  });
}

/// A number with a given count of digits after the point, in the form of %f, %e or %g.
inline std::string real_formatted(double value, char form, int precision) {
  std::string buffer(static_cast<std::size_t>(precision) + 400, '\0');
  const auto chars = form == 'e'   ? std::chars_format::scientific
                     : form == 'g' ? std::chars_format::general
                                   : std::chars_format::fixed;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, chars, precision).ptr;
  buffer.resize(static_cast<std::size_t>(end - buffer.data()));
  return buffer;
}

/// The options between the percent sign or the colon and the letter of a format.
struct Form {
  bool left = false, zeros = false, plus = false, blank = false, other = false;
  std::int64_t width = 0, precision = -1;
};

inline std::int64_t read_number(Heap& heap, std::string_view text, std::size_t& at) {
  std::int64_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + (text[at] - '0');
    if (number > heap.limits().width) {
      fail_limit("a format's width or precision is above " + std::to_string(heap.limits().width));
    }
  }
  return number;
}

inline std::string whole_text(std::int64_t value, int base, bool upper) {
  std::array<char, 70> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, base).ptr;
  std::string out(buffer.data(), end);
  if (upper) {
    for (char& byte : out) byte = byte >= 'a' && byte <= 'z' ? static_cast<char>(byte - 32) : byte;
  }
  return out;
}

/// The digits of a number under %d, %x, %f and the like, with a sign but without padding.
inline std::string number_formatted(const Value& value, char letter, const Form& form) {
  if (!value.is_number()) fail(text("the format '", letter, "' needs a number, found type ", type_name(value)));
  std::string out;
  const char kind = static_cast<char>(letter | 0x20);
  if (kind == 'f' || kind == 'e' || kind == 'g') {
    out = real_formatted(value.number(), kind, form.precision < 0 ? 6 : static_cast<int>(form.precision));
  } else {
    std::int64_t whole = value.whole();
    if (value.is(Kind::real)) {
      if (!(std::abs(value.number()) < 9e18)) fail("the number does not fit into 64 bits");
      whole = static_cast<std::int64_t>(value.number());
    }
    out = whole_text(whole, kind == 'x' ? 16 : kind == 'o' ? 8 : 10, letter == 'X');
    if (form.other && kind == 'x') out.insert(out[0] == '-' ? 1 : 0, "0x");
  }
  if (out[0] != '-' && (form.plus || form.blank)) out.insert(0, form.plus ? "+" : " ");
  return out;
}

/// Puts `text` between repetitions of one character.
inline void append_filled(Heap& heap, Text& out, const Text& text, const Text& fill, std::int64_t left,
                          std::int64_t right) {
  Text side;
  for (std::int64_t i = 0; i < std::max(left, right); ++i) side.append(fill);
  heap.spend_bytes(8 * side.size());
  heap.append(out, side, std::size_t{0}, static_cast<std::size_t>(left) * fill.size());
  heap.append(out, text);
  heap.append(out, side, std::size_t{0}, static_cast<std::size_t>(right) * fill.size());
}

/// Puts `text` into a field.
inline void append_padded(Heap& heap, Text& out, const Text& text, const Form& form, bool is_number) {
  const auto length = static_cast<std::int64_t>(utf8::count(text.bytes()));
  const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(0, form.width - length));
  if (missing > 0 && is_number && form.zeros && !form.left) {
    const bool has_sign = text.bytes()[0] == '-' || text.bytes()[0] == '+' || text.bytes()[0] == ' ';
    heap.append(out, text, std::size_t{0}, std::size_t{has_sign ? 1u : 0u});
    heap.append(out, std::string(missing, '0'), Origin::written);
    heap.append(out, text, std::size_t{has_sign ? 1u : 0u}, text.size());
    return;
  }
  if (!form.left) heap.append(out, std::string(missing, ' '), Origin::written);
  heap.append(out, text);
  if (form.left) heap.append(out, std::string(missing, ' '), Origin::written);
}

/// format % value; named: the arguments by name, where there are some.
inline Text percent_formatted(Heap& heap, const Text& format, const Value& value, const Value* named) {
  const std::string_view source = format.bytes();
  std::size_t used = 0;
  const bool several = value.is(Kind::tuple);
  const auto take = [&]() -> const Value& {
    if (several ? used >= value.items().size() : used > 0) fail("there are fewer values than the format needs");
    ++used;
    return several ? value.items()[used - 1] : value;
  };
  Text out;
  for (std::size_t at = 0; at < source.size();) {
    const std::size_t percent = std::min(source.find('%', at), source.size());
    heap.spend(8);
    heap.append(out, format, at, percent);
    if (percent == source.size()) break;
    at = percent + 1;
    const Value* chosen = nullptr;
    if (at < source.size() && source[at] == '(') {
      const std::size_t close = source.find(')', at);
      if (close == source.npos) fail("a format is incomplete");
      const Value& dict = named != nullptr ? *named : value;
      if (!dict.is(Kind::dict)) fail("a format with names needs a dict");
      chosen = find(heap, dict, heap.string(source.substr(at + 1, close - at - 1)));
      if (chosen == nullptr)
        fail("a format names " + quote(source.substr(at + 1, close - at - 1)) + ", which is missing");
      at = close + 1;
      ++used;
    }
    Form form;
    for (; at < source.size(); ++at) {
      if (source[at] == '-')
        form.left = true;
      else if (source[at] == '0')
        form.zeros = true;
      else if (source[at] == '+')
        form.plus = true;
      else if (source[at] == ' ')
        form.blank = true;
      else if (source[at] == '#')
        form.other = true;
      else
        break;
    }
    form.width = read_number(heap, source, at);
    if (at < source.size() && source[at] == '.') form.precision = read_number(heap, source, ++at);
    if (at >= source.size()) fail("a format is incomplete");
    const char letter = source[at++];
    if (letter == '%') {
      heap.append(out, "%", format.origin_at(at - 1));
      continue;
    }
    const Value& shown = chosen != nullptr ? *chosen : take();
    switch (letter) {
      case 's':
      case 'r':
      case 'c': {
        Text text;
        if (letter == 'r') {
          Printer(heap, text).repr(shown);
        } else {
          Printer(heap, text).str(shown);
        }
        if (form.precision >= 0) {
          std::size_t end = 0;
          for (std::int64_t i = 0; i < form.precision && end < text.size(); ++i) utf8::next(text.bytes(), end);
          text.resize(end);
        }
        append_padded(heap, out, text, form, false);
        break;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G': {
        need(shown);
        append_padded(heap, out, Text(number_formatted(shown, letter, form), Origin::written), form, true);
        break;
      }
      default: fail("unsupported format character " + quote({&letter, 1}));
    }
  }
  const bool checked = named == nullptr && !value.is(Kind::dict) && !value.is(Kind::list) && !value.is_undefined();
  if (checked && (several ? used < value.items().size() : used == 0)) {
    fail("there are more values than the format needs");
  }
  return out;
}

}}}
