// Reads a split pattern in the syntax of Oniguruma's Ruby dialect, which Hugging Face's tokenizers use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/split/class_parser.hpp"
#include "slm/text/split/syntax.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 { namespace split {

class Parser {
 public:
  explicit Parser(const PatternErrors& errors) : errors_(errors), cursor_(errors), classes_(cursor_) {}

  Syntax parse() {
    if (errors_.pattern.size() > longest_pattern) {
      errors_.fail(text("it has ", errors_.pattern.size(), " bytes, at most ", longest_pattern, " are supported"));
    }
    if (!utf8::is_valid(errors_.pattern)) errors_.fail("it is not UTF-8");
    syntax_.root = alternatives(false, 0);
    if (!cursor_.done()) cursor_.fail("this parenthesis closes nothing");
    return std::move(syntax_);
  }

 private:
  using Kind = Syntax::Kind;
  using Node = Syntax::Node;
  using Greed = Syntax::Greed;

  std::uint32_t add(Node node, std::size_t position) {
    for (const std::uint32_t child : node.children) {
      node.depth = std::max(node.depth, syntax_.nodes[child].depth + 1);
    }
    if (node.depth > 3 * deepest_nesting) {
      cursor_.fail_at(position, text("nested more than ", deepest_nesting, " deep"));
    }
    node.position = position;
    syntax_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(syntax_.nodes.size() - 1);
  }

  std::uint32_t add_set(CharSet set, std::size_t position, Kind kind = Kind::set, bool negative = false) {
    const auto known = std::find(syntax_.sets.begin(), syntax_.sets.end(), set);
    if (known == syntax_.sets.end() && syntax_.sets.size() == most_sets) {
      cursor_.fail_at(position, text("more than ", most_sets, " different characters and classes"));
    }
    Node node;
    node.kind = kind;
    node.negative = negative;
    node.set = static_cast<std::uint32_t>(known - syntax_.sets.begin());
    if (known == syntax_.sets.end()) syntax_.sets.push_back(std::move(set));
    return add(std::move(node), position);
  }

  std::uint32_t add_parent(Kind kind, std::vector<std::uint32_t> children, std::size_t position) {
    if (children.size() == 1) return children[0];
    Node node;
    node.kind = children.empty() ? Kind::empty : kind;
    node.children = std::move(children);
    return add(std::move(node), position);
  }

  /// Up to the end of the group or of the pattern.
  std::uint32_t alternatives(bool ignore_case, int depth) {
    const std::size_t begin = cursor_.position();
    if (depth > deepest_nesting) cursor_.fail(text("nested more than ", deepest_nesting, " deep"));
    std::vector<std::uint32_t> branches;
    do {
      branches.push_back(sequence(ignore_case, depth));
    } while (cursor_.take("|"));
    return add_parent(Kind::alternatives, std::move(branches), begin);
  }

  std::uint32_t sequence(bool ignore_case, int depth) {
    const std::size_t begin = cursor_.position();
    std::vector<std::uint32_t> parts;
    while (!cursor_.done() && !cursor_.sees("|") && !cursor_.sees(")")) {
      if (cursor_.sees("(?i)") || cursor_.sees("(?-i)")) {  // holds up to the end of the group, its alternatives too
        const bool ignore = cursor_.take("(?i)");
        if (!ignore) cursor_.take("(?-i)");
        parts.push_back(alternatives(ignore, depth + 1));
        break;
      }
      parts.push_back(quantified(ignore_case, depth));
    }
    return add_parent(Kind::sequence, std::move(parts), begin);
  }

  struct Count {
    std::uint32_t least, most;
    bool interval;
  };

  std::uint32_t quantified(bool ignore_case, int depth) {
    std::uint32_t part = atom(ignore_case, depth);
    for (;;) {
      const std::size_t begin = cursor_.position();
      const auto count = quantifier();
      if (!count) return part;
      const Kind repeated = syntax_.nodes[part].kind;
      if (repeated >= Kind::ahead) cursor_.fail_at(begin, "a quantifier behind what matches no character");
      Node node;
      node.kind = Kind::repeat;
      node.least = count->least;
      node.most = count->most;
      // Behind a count '+' repeats once more, and '?' makes a fixed one optional.
      if (!(count->interval && count->least == count->most) && cursor_.take("?")) {
        node.greed = Greed::lazy;
      } else if (!count->interval && cursor_.take("+")) {
        node.greed = Greed::possessive;
        if (repeated != Kind::set) {
          cursor_.fail_at(begin, "a possessive quantifier is supported behind a character or a class only");
        }
      }
      node.children = {part};
      part = add(std::move(node), begin);
    }
  }

  std::optional<Count> quantifier() {
    if (cursor_.take("*")) return Count{0, Syntax::endless, false};
    if (cursor_.take("+")) return Count{1, Syntax::endless, false};
    if (cursor_.take("?")) return Count{0, 1, false};
    if (!cursor_.sees("{")) return std::nullopt;
    const std::size_t begin = cursor_.position();
    const std::string_view rest = cursor_.rest();
    std::size_t position = 1;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      std::optional<std::uint32_t> value;
      for (; position < rest.size() && rest[position] >= '0' && rest[position] <= '9'; ++position) {
        value = std::min(value.value_or(0) * 10 + static_cast<std::uint32_t>(rest[position] - '0'), most_repeats + 1);
      }
      return value;
    };
    const auto least = number();
    auto most = least;
    if (position < rest.size() && rest[position] == ',') {
      ++position;
      most = number();
      if (!least && !most) return std::nullopt;
    }
    if ((!least && !most) || position == rest.size() || rest[position] != '}') return std::nullopt;  // a plain brace
    if (least.value_or(0) > most_repeats || most.value_or(0) > most_repeats) {
      cursor_.fail_at(begin, text("a count above ", most_repeats));
    }
    if (most && *most < least.value_or(0)) cursor_.fail_at(begin, "a count whose upper bound is below its lower one");
    cursor_.skip(position + 1);
    return Count{least.value_or(0), most.value_or(Syntax::endless), true};
  }

  std::uint32_t atom(bool ignore_case, int depth) {
    const std::size_t begin = cursor_.position();
    if (cursor_.take("(")) return group(ignore_case, depth, begin);
    if (cursor_.take("[")) return add_set(classes_.parse(ignore_case, depth), begin);
    if (cursor_.take(".")) return add_set(CharSet({{'\n', '\n'}}).complement(), begin);
    if (cursor_.take("^")) return edge(Kind::line_start, false, begin);
    if (cursor_.take("$")) return edge(Kind::line_end, false, begin);
    if (cursor_.take("\\b")) return edge(Kind::word_edge, false, begin);
    if (cursor_.take("\\B")) return edge(Kind::word_edge, true, begin);
    if (cursor_.take("\\A")) return edge(Kind::text_start, false, begin);
    if (cursor_.take("\\z")) return edge(Kind::text_end, false, begin);
    for (const char* quantifier : {"*", "+", "?"}) {
      if (cursor_.sees(quantifier)) cursor_.fail("this quantifier has nothing to repeat");
    }
    ClassItem item;
    if (cursor_.take("\\")) {
      item = classes_.escape(false);
    } else {
      item.code = cursor_.next("a character");
    }
    CharSet set = item.code ? CharSet({{*item.code, *item.code}}) : std::move(item.set);
    return add_set(ignore_case && item.code ? folded_set(set) : std::move(set), begin);
  }

  std::uint32_t edge(Kind kind, bool negative, std::size_t position) {
    Node node;
    node.kind = kind;
    node.negative = negative;
    return add(std::move(node), position);
  }

  /// The cursor is behind the '('.
  std::uint32_t group(bool ignore_case, int depth, std::size_t begin) {
    enum { plain, ahead, not_ahead, behind, not_behind } kind = plain;
    if (cursor_.take("?")) {
      if (cursor_.take("=")) {
        kind = ahead;
      } else if (cursor_.take("!")) {
        kind = not_ahead;
      } else if (cursor_.take("<=")) {
        kind = behind;
      } else if (cursor_.take("<!")) {
        kind = not_behind;
      } else if (cursor_.take("i:")) {
        ignore_case = true;
      } else if (cursor_.take("-i:")) {
        ignore_case = false;
      } else if (!cursor_.take(":")) {
        cursor_.fail_at(begin, "this kind of group is not supported");
      }
    }
    const std::uint32_t content = alternatives(ignore_case, depth + 1);
    if (!cursor_.take(")")) cursor_.fail_at(begin, "this group has no end");
    const bool negative = kind == not_ahead || kind == not_behind;
    if (kind == behind || kind == not_behind) {
      const Node& node = syntax_.nodes[content];
      if (node.kind != Kind::set) cursor_.fail_at(begin, "a look-behind is supported for one character only");
      return add_set(syntax_.sets[node.set], begin, Kind::behind, negative);
    }
    if (kind == plain) return content;
    Node node;
    node.kind = Kind::ahead;
    node.negative = negative;
    node.children = {content};
    return add(std::move(node), begin);
  }

  const PatternErrors& errors_;
  Cursor cursor_;
  ClassParser classes_;
  Syntax syntax_;
};

}}}
