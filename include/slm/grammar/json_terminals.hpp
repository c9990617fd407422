// JsonTerminals: the terminals of JSON, as docs/structured.md describes the texts that slm writes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/automaton.hpp"
#include "slm/grammar/characters.hpp"
#include "slm/grammar/decimal.hpp"
#include "slm/grammar/expressions.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/json_text.hpp"
#include "slm/grammar/regex_parser.hpp"
#include "slm/grammar/text_list.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class JsonTerminals {
 public:
  JsonTerminals(Expressions& expressions, const JsonOptions& options)
      : expressions_(expressions), characters_(expressions, Spelling::json), space_(white_space(options)) {
    quote_ = expressions.byte('"');
    comma_ = around(',');
    colon_ = around(':');
    any_string_ = string(characters_.any_text());
  }

  Expressions& expressions() { return expressions_; }
  Characters& characters() { return characters_; }
  Expression comma() const { return comma_; }
  Expression colon() const { return colon_; }
  Expression any_string() const { return any_string_; }

  /// A bracket, and white space on its inner side.
  Expression open(char bracket) {
    return expressions_.leaf(expressions_.sequence(expressions_.byte(static_cast<unsigned char>(bracket)), space_));
  }
  Expression close(char bracket) {
    return expressions_.leaf(expressions_.sequence(space_, expressions_.byte(static_cast<unsigned char>(bracket))));
  }
  Expression word(std::string_view text) { return expressions_.leaf(expressions_.literal(text)); }

  /// A string with this content.
  Expression string(Expression content) { return expressions_.leaf(expressions_.sequence({quote_, content, quote_})); }

  /// One of several values, with white space and all spellings of characters.
  Expression one_of(const std::vector<const JsonText*>& values) {
    std::vector<std::string> texts;
    std::vector<Expression> forms;
    for (const JsonText* value : values) {
      expressions_.check_time();
      if (value->is(JsonText::Type::array) || value->is_object() || has_spellings(*value)) {
        forms.push_back(written(*value));
      } else {
        texts.push_back(compact(*value));
      }
    }
    if (!texts.empty()) forms.push_back(expressions_.leaf(one_of_texts(expressions_, std::move(texts))));
    return expressions_.either(std::move(forms));
  }

  /// The shortest text of a value.
  static std::string compact(const JsonText& value) {
    switch (value.type) {
      case JsonText::Type::null: return "null";
      case JsonText::Type::boolean: return value.truth ? "true" : "false";
      case JsonText::Type::number: return Decimal::parse(value.text).text();
      case JsonText::Type::string: return quoted(value.text);
      case JsonText::Type::array:
      case JsonText::Type::object: break;
    }
    const bool object = value.is_object();
    std::string text(1, object ? '{' : '[');
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) text += ',';
      if (object) text += quoted(value.names[i]) + ":";
      text += compact(value.items[i]);
    }
    return text + (object ? '}' : ']');
  }

  static std::string quoted(std::string_view content) {
    std::string text = "\"";
    for (const char byte : content) {
      constexpr std::string_view codes = "\b\f\n\r\t\"\\", letters = "bfnrt\"\\";
      const std::size_t letter = codes.find(byte);
      const auto code = static_cast<unsigned char>(byte);
      if (letter != codes.npos) {
        text += {'\\', letters[letter]};
      } else if (code < 0x20 || code == 0x7F) {
        constexpr std::string_view digits = "0123456789ABCDEF";
        text += {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
      } else {
        text += byte;
      }
    }
    return text + '"';
  }

 private:
  Expression white_space(const JsonOptions& options) {
    if (options.compact) return empty;
    Characters plain(expressions_);
    const std::string pattern = options.whitespace_pattern.value_or("(| |\\n{1,2}[ \\t]{0,20})");
    const Expression space = RegexParser(expressions_, plain, pattern, "white space pattern").whole();
    ByteSet allowed;
    for (const char byte : std::string_view(" \t\n\r")) allowed.add(static_cast<unsigned char>(byte));
    const Expression only = expressions_.repeat(expressions_.bytes(allowed), 0, unlimited);
    const Expression other = expressions_.both({space, expressions_.complement(only)});
    if (Automaton(expressions_).is_alive(other)) {
      throw Error("grammar.unsupported", text("the white space pattern ", quote(pattern), " matches other characters"),
                  "Use only space, tab, line feed and carriage return");
    }
    return space;
  }

  Expression around(char separator) {
    return expressions_.leaf(
        expressions_.sequence({space_, expressions_.byte(static_cast<unsigned char>(separator)), space_}));
  }

  /// Whether control characters give the text several forms.
  static bool has_spellings(const JsonText& value) {
    if (!value.is(JsonText::Type::string)) return false;
    for (const char byte : value.text) {
      const auto code = static_cast<unsigned char>(byte);
      if (code < 0x20 || code == 0x7F) return true;
    }
    return false;
  }

  Expression written(const JsonText& value) {
    if (value.is(JsonText::Type::string)) return string(characters_.literal(value.text));
    if (!value.is(JsonText::Type::array) && !value.is_object()) return word(compact(value));
    const bool object = value.is_object();
    const char opening = object ? '{' : '[', closing = object ? '}' : ']';
    if (value.items.empty()) return expressions_.sequence(open(opening), word(std::string_view(&closing, 1)));
    Expression whole = close(closing);
    for (std::size_t i = value.items.size(); i-- > 0;) {
      whole = expressions_.sequence(written(value.items[i]), whole);
      if (object) whole = expressions_.sequence({string(characters_.literal(value.names[i])), colon_, whole});
      whole = expressions_.sequence(i == 0 ? open(opening) : comma_, whole);
    }
    return whole;
  }

  Expressions& expressions_;
  Characters characters_;
  Expression space_, quote_ = nothing, comma_ = nothing, colon_ = nothing, any_string_ = nothing;
};

}}}
