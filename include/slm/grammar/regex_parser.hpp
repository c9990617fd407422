// RegexParser: reads a regular expression (docs/structured.md has the dialect).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/characters.hpp"
#include "slm/grammar/cursor.hpp"
#include "slm/grammar/regex_classes.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class RegexParser {
 public:
  /// `place` names the pattern in errors.
  RegexParser(Expressions& expressions, Characters& characters, std::string_view pattern, std::string place)
      : expressions_(expressions), characters_(characters), cursor_(pattern, std::move(place)) {}

  /// The texts that match as a whole.
  Expression whole() {
    const Anchored parsed = parse();
    return expressions_.either({parsed.begin(), parsed.end()});
  }

  /// The texts that contain a match.
  Expression search() {
    const Anchored parsed = parse();
    const Expression any = characters_.any_text();
    return expressions_.either({expressions_.sequence({any, parsed[0], any}),
                                expressions_.sequence(any, parsed[at_end]),
                                expressions_.sequence(parsed[at_begin], any), parsed[at_begin | at_end]});
  }

 private:
  /// Expressions by the anchors that they used.
  static constexpr unsigned at_begin = 1, at_end = 2;
  using Anchored = std::array<Expression, 4>;

  struct Flags {
    bool ignore_case = false, dot_all = false;
  };

  Anchored parse() {
    cursor_.check_text(expressions_.limits());
    while (cursor_.looking_at("(?")) {  // flags of the whole pattern
      const std::size_t begin = cursor_.position();
      cursor_.skip(2);
      Flags flags = flags_;
      while (read_flag(flags)) {
      }
      if (cursor_.position() == begin + 2 || !cursor_.take(')')) {
        cursor_.move_to(begin);
        break;
      }
      flags_ = flags;
    }
    const Anchored parsed = alternatives();
    if (!cursor_.at_end()) cursor_.fail("')' without '('");
    return parsed;
  }

  bool read_flag(Flags& flags) {
    if (cursor_.take('i')) return flags.ignore_case = true;
    if (cursor_.take('s')) return flags.dot_all = true;
    return false;
  }

  Anchored alternatives() {
    if (++depth_ > expressions_.limits().nesting) cursor_.fail("groups are nested too deep");
    std::array<std::vector<Expression>, 4> found;
    do {
      const Anchored branch = sequence();
      for (std::size_t i = 0; i < 4; ++i) found[i].push_back(branch[i]);
    } while (cursor_.take('|'));
    --depth_;
    Anchored joined;
    for (std::size_t i = 0; i < 4; ++i) joined[i] = expressions_.either(std::move(found[i]));
    return joined;
  }

  Anchored sequence() {
    std::vector<Anchored> parts;
    while (!cursor_.at_end() && cursor_.peek() != '|' && cursor_.peek() != ')') {
      expressions_.check_time();
      parts.push_back(repeated());
    }
    Anchored whole{empty, nothing, nothing, nothing};
    for (std::size_t i = parts.size(); i-- > 0;) whole = joined(parts[i], whole);
    return whole;
  }

  /// One behind the other. Before '^' and behind '$' only an empty text can be.
  Anchored joined(const Anchored& first, const Anchored& second) {
    std::array<std::vector<Expression>, 4> found;
    for (unsigned f = 0; f < 4; ++f) {
      for (unsigned s = 0; s < 4; ++s) {
        Expression before = first[f], behind = second[s];
        if (before == nothing || behind == nothing) continue;
        if ((s & at_begin) != 0) before = expressions_.nullable(before) ? empty : nothing;
        if ((f & at_end) != 0) behind = expressions_.nullable(behind) ? empty : nothing;
        found[f | s].push_back(expressions_.sequence(before, behind));
      }
    }
    Anchored whole;
    for (std::size_t i = 0; i < 4; ++i) whole[i] = expressions_.either(std::move(found[i]));
    return whole;
  }

  static bool has_anchor(const Anchored& part) {
    return part[1] != nothing || part[2] != nothing || part[3] != nothing;
  }

  Anchored repeated() {
    const std::size_t begin = cursor_.position();
    Anchored item = atom();
    const auto counts = quantifier();
    if (!counts) return item;
    const auto [least, most] = *counts;
    if (has_anchor(item)) {
      if (least > 1 || most > 1) cursor_.fail_at(begin, "an anchor cannot be repeated", "grammar.unsupported");
      if (least == 0) item[0] = expressions_.optional(item[0]);
      if (most == 0) item = {empty, nothing, nothing, nothing};
      return item;
    }
    item[0] = expressions_.repeat(item[0], least, most);
    if (cursor_.peek() == '+' && !cursor_.at_end()) {
      cursor_.fail("possessive quantifiers are not supported", "grammar.unsupported");
    }
    cursor_.take('?');  // lazy: the same language
    if (quantifier()) cursor_.fail("nothing to repeat");
    return item;
  }

  std::optional<std::pair<std::uint32_t, std::uint32_t>> quantifier() {
    if (cursor_.take('*')) return std::pair{0u, unlimited};
    if (cursor_.take('+')) return std::pair{1u, unlimited};
    if (cursor_.take('?')) return std::pair{0u, 1u};
    if (!cursor_.take('{')) return std::nullopt;
    const std::uint32_t least = cursor_.count(expressions_.limits());
    std::uint32_t most = least;
    if (cursor_.take(',')) most = cursor_.peek() == '}' ? unlimited : cursor_.count(expressions_.limits());
    if (!cursor_.take('}')) cursor_.fail("expected '}' behind a count");
    if (most < least) cursor_.fail("the second count is below the first");
    return std::pair{least, most};
  }

  Anchored atom() {
    if (cursor_.take('^')) return {nothing, empty, nothing, nothing};
    if (cursor_.take('$')) return {nothing, nothing, empty, nothing};
    if (cursor_.peek() == '(') return group();
    if (cursor_.take('.')) {
      const CharSet line_feed({{'\n', '\n'}});
      return plain(flags_.dot_all ? Characters::all() : line_feed.complement());
    }
    const char next = cursor_.peek();
    if (next == '*' || next == '+' || next == '?' || next == '{') cursor_.fail("nothing to repeat");
    return plain(RegexClasses(cursor_).item());
  }

  Anchored plain(const CharSet& set) {
    return {characters_.one_of(flags_.ignore_case ? split::folded_set(set) : set), nothing, nothing, nothing};
  }

  Anchored group() {
    const std::size_t begin = cursor_.position();
    cursor_.skip(1);
    const Flags before = flags_;
    if (cursor_.take('?')) {
      if (cursor_.looking_at("=") || cursor_.looking_at("!") || cursor_.looking_at("<=") || cursor_.looking_at("<!")) {
        cursor_.fail_at(begin, "look-around is not supported", "grammar.unsupported");
      }
      if (cursor_.looking_at(">")) cursor_.fail_at(begin, "atomic groups are not supported", "grammar.unsupported");
      if (cursor_.looking_at("P=")) cursor_.fail_at(begin, "back-references are not supported", "grammar.unsupported");
      if (cursor_.looking_at("(")) cursor_.fail_at(begin, "conditionals are not supported", "grammar.unsupported");
      if (cursor_.looking_at("R") || cursor_.looking_at("&")) {
        cursor_.fail_at(begin, "recursion is not supported", "grammar.unsupported");
      }
      if (cursor_.looking_at("<") || cursor_.looking_at("P<")) {
        while (cursor_.peek() != '<') cursor_.skip(1);
        cursor_.skip(1);
        cursor_.name('>');
      } else if (!cursor_.take(':')) {
        if (!read_flag(flags_)) cursor_.fail_at(begin, "this kind of group does not exist");
        while (read_flag(flags_)) {
        }
        if (!cursor_.take(':')) cursor_.fail_at(begin, "this kind of group does not exist");
      }
    }
    const Anchored inner = alternatives();
    if (!cursor_.take(')')) cursor_.fail_at(begin, "'(' without ')'");
    flags_ = before;
    return inner;
  }

  Expressions& expressions_;
  Characters& characters_;
  Cursor cursor_;
  Flags flags_;
  int depth_ = 0;
};

}}}
