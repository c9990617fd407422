// GbnfParser: reads a grammar in llama.cpp's syntax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/characters.hpp"
#include "slm/grammar/cursor.hpp"
#include "slm/grammar/expressions.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class GbnfParser {
 public:
  GbnfParser(Expressions& expressions, std::string_view source)
      : expressions_(expressions), characters_(expressions), cursor_(source, "grammar") {}

  Expression parse() {
    cursor_.check_text(expressions_.limits());
    find_rules();
    const auto root = rules_.find("root");
    if (root == rules_.end()) cursor_.fail_at(0, "no rule is named 'root'");
    const Expression whole = body(root->second);
    // Rules that `root` does not reach, or that were too deep, are read too: their errors count.
    for (auto& [name, rule] : rules_) {
      if (rule.state == State::unread) body(rule);
    }
    return expressions_.leaf(whole);
  }

 private:
  enum class State { unread, open, read };

  struct Rule {
    std::size_t position = 0;  // of its body
    std::string_view name{};
    State state = State::unread;
    std::optional<std::uint32_t> index{};  // of rules that are referred to while they are read
    Expression body = nothing;
  };

  static constexpr int deepest_rules = 100;  // rules within rules that are read at once

  static bool is_name(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '-';
  }

  std::string_view name() {
    const std::size_t begin = cursor_.position();
    while (is_name(cursor_.peek())) cursor_.skip(1);
    if (cursor_.position() == begin) cursor_.fail("expected a name of letters, digits and '-'");
    return cursor_.since(begin);
  }

  void space(bool lines) {
    for (;;) {
      const char next = cursor_.peek();
      if (next == '#') {
        while (!cursor_.at_end() && cursor_.peek() != '\n' && cursor_.peek() != '\r') cursor_.skip(1);
      } else if (next == ' ' || next == '\t' || (lines && (next == '\n' || next == '\r'))) {
        cursor_.skip(1);
      } else {
        return;
      }
    }
  }

  /// The places of all rules. Their bodies are read without meaning.
  void find_rules() {
    space(true);
    while (!cursor_.at_end()) {
      const std::size_t begin = cursor_.position();
      const std::string_view found = name();
      space(false);
      if (!cursor_.looking_at("::=")) cursor_.fail("expected '::=' behind the name of a rule");
      cursor_.skip(3);
      space(true);
      const bool is_new = rules_.try_emplace(found, Rule{cursor_.position(), found}).second;
      if (!is_new) cursor_.fail_at(begin, "this rule is defined twice");
      skip_body();
      space(true);
    }
  }

  /// Moves to the end of a rule's body: a line end outside of groups, literals and classes, not behind '|'.
  void skip_body() {
    int open = 0;
    bool line_may_end = true;
    while (!cursor_.at_end()) {
      const char next = cursor_.peek();
      if (next == ' ' || next == '\t' || next == '#') {
        space(false);
        continue;
      }
      if (next == '\n' || next == '\r') {
        if (open == 0 && line_may_end) return;
        cursor_.skip(1);
        continue;
      }
      line_may_end = next != '|';
      if (next == '"' || next == '[') {
        const std::size_t begin = cursor_.position();
        const char closing = next == '"' ? '"' : ']';
        cursor_.skip(1);
        while (!cursor_.at_end() && cursor_.peek() != closing) cursor_.skip(cursor_.peek() == '\\' ? 2 : 1);
        if (cursor_.at_end()) cursor_.fail_at(begin, text("expected '", closing, "' at its end"));
      }
      open += next == '(' ? 1 : next == ')' && open > 0 ? -1 : 0;
      cursor_.skip(1);
    }
  }

  /// The expression of a rule. Rules that contain themselves become references.
  Expression body(Rule& rule) {
    if (rule.state == State::read && !rule.index) return rule.body;
    const bool deep = rule_depth_ >= deepest_rules || depth_ > expressions_.limits().nesting / 2;
    if (rule.state != State::unread || deep) {
      if (!rule.index) rule.index = expressions_.add_rule(text("rule ", quote(rule.name)));
      return expressions_.rule(*rule.index);
    }
    rule.state = State::open;
    ++rule_depth_;
    const std::size_t before = cursor_.position();
    cursor_.move_to(rule.position);
    rule.body = alternatives(false);
    if (!cursor_.at_end() && cursor_.peek() != '\n' && cursor_.peek() != '\r') cursor_.fail("expected an item");
    cursor_.move_to(before);
    --rule_depth_;
    rule.state = State::read;
    if (!rule.index) return rule.body;
    expressions_.rules()[*rule.index] = expressions_.leaf(rule.body);
    return expressions_.rule(*rule.index);
  }

  Expression alternatives(bool nested) {
    if (++depth_ > expressions_.limits().nesting) cursor_.fail("groups are nested too deep");
    std::vector<Expression> forms{sequence(nested)};
    while (cursor_.take('|')) {
      space(true);
      forms.push_back(sequence(nested));
    }
    --depth_;
    bool regular = true;
    for (const Expression form : forms) regular = regular && expressions_.node(form).regular;
    if (!regular) {
      for (Expression& form : forms) form = expressions_.leaf(form);
    }
    return expressions_.either(std::move(forms));
  }

  Expression sequence(bool nested) {
    std::vector<Expression> items;
    for (;;) {
      expressions_.check_time();
      const char next = cursor_.peek();
      if (next == '"') {
        items.push_back(literal());
      } else if (next == '[') {
        items.push_back(character_class());
      } else if (cursor_.take('.')) {
        items.push_back(characters_.any());
      } else if (next == '(') {
        const std::size_t begin = cursor_.position();
        cursor_.skip(1);
        space(true);
        items.push_back(alternatives(true));
        if (!cursor_.take(')')) cursor_.fail_at(begin, "'(' without ')'");
      } else if (is_name(next)) {
        items.push_back(reference());
      } else if (next == '<' || next == '!') {
        cursor_.fail("references to tokens are not supported", "grammar.unsupported");
      } else if (const auto counts = quantifier()) {
        if (items.empty()) cursor_.fail("nothing to repeat");
        items.back() = expressions_.repeat(items.back(), counts->first, counts->second);
      } else {
        return joined(items);
      }
      space(nested);
    }
  }

  /// Items without rules beside items with rules are terminals.
  Expression joined(const std::vector<Expression>& items) {
    bool regular = true;
    for (const Expression item : items) regular = regular && expressions_.node(item).regular;
    Expression whole = empty;
    for (std::size_t i = items.size(); i > 0;) {
      Expression part = items[--i];
      if (regular || !expressions_.node(part).regular) {
        whole = expressions_.sequence(part, whole);
        continue;
      }
      while (i > 0 && expressions_.node(items[i - 1]).regular) part = expressions_.sequence(items[--i], part);
      whole = expressions_.sequence(expressions_.leaf(part), whole);
    }
    return whole;
  }

  std::optional<std::pair<std::uint32_t, std::uint32_t>> quantifier() {
    if (cursor_.take('*')) return std::pair{0u, unlimited};
    if (cursor_.take('+')) return std::pair{1u, unlimited};
    if (cursor_.take('?')) return std::pair{0u, 1u};
    if (!cursor_.take('{')) return std::nullopt;
    space(true);
    const std::uint32_t least = cursor_.count(expressions_.limits());
    std::uint32_t most = least;
    space(true);
    if (cursor_.take(',')) {
      space(true);
      most = cursor_.peek() == '}' ? unlimited : cursor_.count(expressions_.limits());
      space(true);
    }
    if (!cursor_.take('}')) cursor_.fail("expected '}' behind a count");
    if (most < least) cursor_.fail("the second count is below the first");
    return std::pair{least, most};
  }

  Expression reference() {
    const std::size_t begin = cursor_.position();
    const std::string_view found = name();
    const auto rule = rules_.find(found);
    if (rule == rules_.end()) cursor_.fail_at(begin, text("no rule is named ", quote(found)));
    return body(rule->second);
  }

  char32_t character() {
    const std::size_t begin = cursor_.position();
    const char32_t code = cursor_.character();
    if (code != '\\') return code;
    switch (cursor_.character()) {
      case 'x': return cursor_.hex(2);
      case 'u': return scalar(cursor_.hex(4), begin);
      case 'U': return scalar(cursor_.hex(8), begin);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      case '\\': return '\\';
      case '"': return '"';
      case '[': return '[';
      case ']': return ']';
      default: cursor_.fail_at(begin, "this escape does not exist");
    }
  }

  char32_t scalar(char32_t code, std::size_t begin) const {
    if (code >= 0xD800 && code <= 0xDFFF) cursor_.fail_at(begin, "half of a surrogate pair is no character");
    return code;
  }

  Expression literal() {
    const std::size_t begin = cursor_.position();
    cursor_.skip(1);
    std::vector<Expression> characters;
    while (!cursor_.take('"')) {
      if (cursor_.at_end()) cursor_.fail_at(begin, "a literal without an end");
      characters.push_back(characters_.one(character()));
    }
    Expression whole = empty;
    for (std::size_t i = characters.size(); i-- > 0;) whole = expressions_.sequence(characters[i], whole);
    return whole;
  }

  Expression character_class() {
    const std::size_t begin = cursor_.position();
    cursor_.skip(1);
    const bool negative = cursor_.take('^');
    std::vector<CharSet::Range> ranges;
    while (!cursor_.take(']')) {
      if (cursor_.at_end()) cursor_.fail_at(begin, "'[' without ']'");
      const char32_t first = character();
      char32_t last = first;
      if (cursor_.peek() == '-' && !cursor_.looking_at("-]")) {
        cursor_.skip(1);
        if (cursor_.at_end()) cursor_.fail_at(begin, "'[' without ']'");
        last = character();
      }
      if (last < first) cursor_.fail_at(begin, "a range goes from a higher to a lower character");
      ranges.push_back({first, last});
    }
    const CharSet set(std::move(ranges));
    return characters_.one_of(negative ? set.complement() : set);
  }

  Expressions& expressions_;
  Characters characters_;
  Cursor cursor_;
  std::map<std::string_view, Rule> rules_;
  int depth_ = 0, rule_depth_ = 0;
};

}}}
