// JsonText: JSON values with the order of members and the digits of numbers as written, which a schema's meaning needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/cursor.hpp"
#include "slm/grammar/limits.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

struct JsonText {
  enum class Type : std::uint8_t { null, boolean, number, string, array, object };

  Type type = Type::null;
  bool truth = false;              // boolean
  std::uint32_t resource = 0;      // of a schema: the number of its base URI
  std::string text;                // string, or number as written
  std::vector<JsonText> items;     // of arrays; values of objects
  std::vector<std::string> names;  // of objects

  bool is(Type wanted) const { return type == wanted; }
  bool is_object() const { return type == Type::object; }

  const JsonText* find(std::string_view name) const {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return &items[i];
    }
    return nullptr;
  }
};

class JsonReader {
 public:
  JsonReader(std::string_view source, const GrammarLimits& limits) : limits_(limits), cursor_(source, "schema") {}

  JsonText read() {
    cursor_.check_text(limits_);
    JsonText whole = value();
    space();
    if (!cursor_.at_end()) cursor_.fail("text behind the JSON value");
    return whole;
  }

 private:
  using Type = JsonText::Type;

  void space() {
    while (cursor_.peek() == ' ' || cursor_.peek() == '\n' || cursor_.peek() == '\t' || cursor_.peek() == '\r') {
      cursor_.skip(1);
    }
  }

  bool word(std::string_view expected) {
    if (!cursor_.looking_at(expected)) return false;
    cursor_.skip(expected.size());
    return true;
  }

  JsonText value() {
    if (++depth_ > limits_.nesting) fail_limit(text("JSON nested more than ", limits_.nesting, " levels deep"));
    space();
    JsonText made;
    const char next = cursor_.peek();
    if (next == '{') {
      made.type = Type::object;
      object(made);
    } else if (next == '[') {
      made.type = Type::array;
      array(made);
    } else if (next == '"') {
      made.type = Type::string;
      made.text = string();
    } else if (next == '-' || (next >= '0' && next <= '9')) {
      made.type = Type::number;
      made.text = number();
    } else if (word("true") || word("false")) {
      made.type = Type::boolean;
      made.truth = next == 't';
    } else if (!word("null")) {
      cursor_.fail("expected a JSON value");
    }
    --depth_;
    return made;
  }

  void object(JsonText& made) {
    cursor_.skip(1);
    space();
    std::vector<std::string> sorted;
    if (cursor_.take('}')) return;
    do {
      space();
      if (cursor_.peek() != '"') cursor_.fail("expected the name of a member");
      made.names.push_back(string());
      space();
      if (!cursor_.take(':')) cursor_.fail("expected ':' behind a name");
      made.items.push_back(value());
      space();
    } while (cursor_.take(','));
    if (!cursor_.take('}')) cursor_.fail("expected ',' or '}'");
    sorted = made.names;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) cursor_.fail(text("the object before has the name ", quote(*twice), " twice"));
  }

  void array(JsonText& made) {
    cursor_.skip(1);
    space();
    if (cursor_.take(']')) return;
    do {
      made.items.push_back(value());
      space();
    } while (cursor_.take(','));
    if (!cursor_.take(']')) cursor_.fail("expected ',' or ']'");
  }

  void digits() {
    if (cursor_.peek() < '0' || cursor_.peek() > '9') cursor_.fail("expected a digit");
    while (cursor_.peek() >= '0' && cursor_.peek() <= '9') cursor_.skip(1);
  }

  std::string number() {
    const std::size_t begin = cursor_.position();
    cursor_.take('-');
    if (!cursor_.take('0')) digits();
    if (cursor_.take('.')) digits();
    if (cursor_.take('e') || cursor_.take('E')) {
      if (!cursor_.take('+')) cursor_.take('-');
      digits();
    }
    return std::string(cursor_.since(begin));
  }

  std::string string() {
    const std::size_t begin = cursor_.position();
    cursor_.skip(1);
    std::string made;
    while (!cursor_.take('"')) {
      if (cursor_.at_end()) cursor_.fail_at(begin, "a string without an end");
      const std::size_t at = cursor_.position();
      char32_t code = cursor_.character();
      if (code < 0x20) cursor_.fail_at(at, "a control character in a string");
      if (code == '\\') {
        constexpr std::string_view letters = "\"\\/bfnrt", codes = "\"\\/\b\f\n\r\t";
        const std::size_t letter = cursor_.at_end() ? letters.npos : letters.find(cursor_.peek());
        if (letter != letters.npos) {
          code = static_cast<unsigned char>(codes[letter]);
          cursor_.skip(1);
        } else if (cursor_.take('u')) {
          code = cursor_.hex(4);
          if (code >= 0xD800 && code < 0xDC00 && word("\\u")) {
            const char32_t low = cursor_.hex(4);
            if (low < 0xDC00 || low > 0xDFFF) cursor_.fail_at(at, "half of a surrogate pair is no character");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          }
          if (code >= 0xD800 && code <= 0xDFFF) cursor_.fail_at(at, "half of a surrogate pair is no character");
        } else {
          cursor_.fail_at(at, "this escape does not exist");
        }
      }
      utf8::append(made, code);
    }
    return made;
  }

  const GrammarLimits& limits_;
  Cursor cursor_;
  int depth_ = 0;
};

}}}
