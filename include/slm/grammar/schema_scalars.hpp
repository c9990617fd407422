// SchemaScalars: the numbers and strings that a schema allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/grammar/decimal.hpp"
#include "slm/grammar/formats.hpp"
#include "slm/grammar/json_terminals.hpp"
#include "slm/grammar/regex_parser.hpp"
#include "slm/grammar/schema_keywords.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class SchemaScalars {
 public:
  explicit SchemaScalars(JsonTerminals& terminals)
      : terminals_(terminals), expressions_(terminals.expressions()), numbers_(expressions_) {}

  Expression number(const Atoms& atoms, bool integer) {
    std::vector<Expression> all;
    for (const Atom& atom : atoms) {
      bound(atom, "minimum", "exclusiveMinimum", true, all);
      bound(atom, "maximum", "exclusiveMaximum", false, all);
      if (const JsonText* divisor = atom.node->find("multipleOf")) multiple(atom, *divisor, all);
    }
    all.push_back(numbers_.any(integer, !all.empty()));
    return expressions_.leaf(expressions_.both(std::move(all)));
  }

  Expression string(const Atoms& atoms) {
    Characters& characters = terminals_.characters();
    const Counts lengths(atoms, "minLength", "maxLength", expressions_.limits());
    if (lengths.least > lengths.most) return nothing;
    std::vector<Expression> all;
    for (const Atom& atom : atoms) {
      if (const JsonText* pattern = atom.node->find("pattern")) {
        const std::string written = text_of(atom, "pattern", *pattern);
        const std::string place = text("json_schema", excerpt(child_path(atom.path, "pattern")));
        all.push_back(RegexParser(expressions_, characters, written, place).search());
      }
      if (const JsonText* format = atom.node->find("format")) {
        const std::string path = child_path(atom.path, "format");
        const auto pattern = format_pattern(text_of(atom, "format", *format));
        if (!pattern && atom.node->find("type") == nullptr) continue;  // a comment, as in the standard
        if (!pattern) {
          fail_schema(path, text("the format ", quote(format->text), " is not supported"), "grammar.unsupported");
        }
        all.push_back(RegexParser(expressions_, characters, *pattern, text("json_schema", excerpt(path))).whole());
        if (format->text == "hostname") all.push_back(expressions_.repeat(characters.any(), 1, 253));
      }
    }
    if (all.empty() || lengths.least > 0 || lengths.most != unlimited) {
      all.push_back(expressions_.repeat(characters.any(), lengths.least, lengths.most));
    }
    return terminals_.string(expressions_.both(std::move(all)));
  }

 private:
  void bound(const Atom& atom, const char* word, const char* strict_word, bool low, std::vector<Expression>& all) {
    const auto value = [&](const char* keyword) {
      const JsonText* found = atom.node->find(keyword);
      if (found != nullptr && !found->is(JsonText::Type::number) && !found->is(JsonText::Type::boolean)) {
        fail_schema(child_path(atom.path, keyword), "expected a number");
      }
      return found;
    };
    const JsonText *inclusive = value(word), *exclusive = value(strict_word);
    const bool draft_4 = exclusive != nullptr && exclusive->is(JsonText::Type::boolean);
    const auto add = [&](const JsonText& limit, bool strict) {
      const Decimal number = Decimal::parse(limit.text);
      all.push_back(low ? numbers_.at_least(number, strict) : numbers_.at_most(number, strict));
    };
    if (inclusive != nullptr) {
      if (!inclusive->is(JsonText::Type::number)) fail_schema(child_path(atom.path, word), "expected a number");
      add(*inclusive, draft_4 && exclusive->truth);
    }
    if (exclusive != nullptr && !draft_4) add(*exclusive, true);
  }

  void multiple(const Atom& atom, const JsonText& value, std::vector<Expression>& all) {
    const std::string path = child_path(atom.path, "multipleOf");
    if (!value.is(JsonText::Type::number)) fail_schema(path, "expected a number");
    const Decimal divisor = Decimal::parse(value.text);
    if (divisor.negative || divisor.is_zero()) fail_schema(path, "expected a number above 0");
    const bool power = divisor.whole == "0" && divisor.fraction.find_first_not_of('0') + 1 == divisor.fraction.size() &&
                       divisor.fraction.back() == '1';
    if (power) {
      all.push_back(numbers_.with_places(static_cast<std::uint32_t>(divisor.fraction.size())));
    } else if (divisor.is_integer() && divisor.whole.size() <= 6) {
      all.push_back(numbers_.multiple_of(static_cast<std::uint32_t>(std::stoul(divisor.whole))));
    } else {
      fail_schema(path, "'multipleOf' is supported for integers below a million and for 0.1, 0.01, ...",
                  "grammar.unsupported");
    }
  }

  JsonTerminals& terminals_;
  Expressions& expressions_;
  NumberTexts numbers_;
};

}}}
