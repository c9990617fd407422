// Values as text: Python's str() and repr(), and JSON.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "slm/text/jinja/characters.hpp"
#include "slm/text/jinja/heap.hpp"
#include "slm/text/jinja/value.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// Python's name of a value's type, for messages.
inline std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::range: return "range";
    case Kind::iterator: return "generator";
    case Kind::view: {
      const auto part = value.view().part;
      return part == ViewObject::Part::keys     ? "dict_keys"
             : part == ViewObject::Part::values ? "dict_values"
                                                : "dict_items";
    }
    case Kind::function: return "function";
    case Kind::method: return "method";
    case Kind::macro: return "Macro";
    case Kind::space: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
  }
  return "object";
}

/// Why an undefined value cannot be used.
inline std::string undefined_message(const Value& value) {
  return value.object() ? std::string{value.text().bytes()} : std::string{"the value is undefined"};
}

/// Refuses an undefined value where one is needed.
inline void need(const Value& value) {
  if (value.is_undefined()) fail(undefined_message(value));
}

/// The shortest text that reads back as the number, in Python's form.
inline std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t mark = shortest.find('e');
  std::string digits;
  for (const char byte : shortest.substr(0, mark)) {
    if (byte >= '0' && byte <= '9') digits += byte;
  }
  const std::string_view power_text = shortest.substr(mark + (shortest[mark + 1] == '+' ? 2 : 1));
  int power = 0;
  std::from_chars(power_text.data(), power_text.data() + power_text.size(), power);
  std::string out = shortest[0] == '-' ? "-" : "";
  if (power < -4 || power >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string shown = std::to_string(std::abs(power));
    return out + (power < 0 ? "e-" : "e+") + (shown.size() < 2 ? "0" : "") + shown;
  }
  if (power < 0) return out + "0." + std::string(static_cast<std::size_t>(-power - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(power) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  return out + digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
}

inline void append_hex(std::string& out, std::uint32_t code, int length) {
  for (int shift = 4 * (length - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[code >> shift & 15];
}

/// Writes values into a text. Brackets and quotes around what the template was given count as given too.
class Printer {
 public:
  Printer(Heap& heap, Text& out) : heap_(heap), out_(out) {}

  void str(const Value& value) {
    switch (value.kind()) {
      case Kind::undefined: return;
      case Kind::string: return put(value.text());
      default: return repr(value);
    }
  }

  void repr(const Value& value) {
    heap_.spend(1);
    switch (value.kind()) {
      case Kind::undefined: return put("Undefined");
      case Kind::none: return put("None");
      case Kind::boolean: return put(value.whole() != 0 ? "True" : "False");
      case Kind::integer: return put(std::to_string(value.whole()));
      case Kind::real: heap_.spend(8); return put(real_text(value.number()));
      case Kind::string: return quoted(value.text());
      case Kind::list: return sequence(value, '[', ']');
      case Kind::tuple: return sequence(value, '(', ')');
      case Kind::dict: return dict(value);
      case Kind::range: return range(value.range());
      case Kind::view: return view(value.view());
      default:
        put("<");
        put(type_name(value));
        put(">");
    }
  }

 private:
  void put(std::string_view text, Origin origin = Origin::written) { heap_.append(out_, text, origin); }
  void put(const Text& text) { heap_.append(out_, text); }
  void mark(std::string_view text) { put(text, Origin::given); }

  void sequence(const Value& value, char open, char close) {
    mark({&open, 1});
    bool first = true;
    for (const Value& item : value.items()) {
      if (!std::exchange(first, false)) mark(", ");
      repr(item);
    }
    if (open == '(' && value.items().size() == 1) mark(",");
    mark({&close, 1});
  }

  void dict(const Value& value) {
    mark("{");
    bool first = true;
    for (const auto& [key, member] : value.dict().items) {
      if (!std::exchange(first, false)) mark(", ");
      repr(key);
      mark(": ");
      repr(member);
    }
    mark("}");
  }

  void range(const RangeObject& range) {
    std::int64_t stop;
    if (__builtin_mul_overflow(range.step, range.count, &stop) || __builtin_add_overflow(range.start, stop, &stop)) {
      stop = range.step > 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
    }
    put("range(" + std::to_string(range.start) + ", " + std::to_string(stop));
    if (range.step != 1) put(", " + std::to_string(range.step));
    put(")");
  }

  void view(const ViewObject& view) {
    const bool items = view.part == ViewObject::Part::items;
    mark(items ? "dict_items([" : view.part == ViewObject::Part::keys ? "dict_keys([" : "dict_values([");
    bool first = true;
    for (const auto& [key, member] : view.dict.dict().items) {
      if (!std::exchange(first, false)) mark(", ");
      if (items) mark("(");
      if (view.part != ViewObject::Part::values) repr(key);
      if (items) mark(", ");
      if (view.part != ViewObject::Part::keys) repr(member);
      if (items) mark(")");
    }
    mark("])");
  }

  void quoted(const Text& text) {
    heap_.spend(text.size() / 2);
    const std::string_view bytes = text.bytes();
    const bool doubled = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
    const char quote = doubled ? '"' : '\'';
    mark({&quote, 1});
    put(changed(text, [quote](std::string& out, char32_t code, std::size_t) {
      if (code == static_cast<char32_t>(quote) || code == '\\') {
        out += '\\';
        out += static_cast<char>(code);
      } else if (code == '\n' || code == '\r' || code == '\t') {
        out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
      } else if (is_printable(code)) {
        utf8::append(out, code);
      } else if (code < 0x100) {
        out += "\\x";
        append_hex(out, code, 2);
      } else if (code < 0x10000) {
        out += "\\u";
        append_hex(out, code, 4);
      } else {
        out += "\\U";
        append_hex(out, code, 8);
      }
    }));
    mark({&quote, 1});
  }

  Heap& heap_;
  Text& out_;
};

/// Python's str() of a value.
inline Text str_of(Heap& heap, const Value& value) {
  Text out;
  Printer(heap, out).str(value);
  return out;
}

/// A value as a string.
inline Value as_string(Heap& heap, const Value& value) {
  return value.is_string() ? value : heap.string(str_of(heap, value));
}

}}}
