// Compiled: a grammar that is ready for texts. Every expression in it has a text, and no rule calls itself at its
// beginning.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/grammar/automaton.hpp"
#include "slm/grammar/expressions.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

struct Compiled {
  Expressions expressions;
  Expression root = nothing;
  Expression json_character = nothing;  // any character inside of a JSON string
};

/// Adds the expressions of another grammar, and returns its root among them.
inline Expression add(Compiled& to, const Compiled& other) {
  Expressions& expressions = to.expressions;
  const Expressions& source = other.expressions;
  const auto first_rule = static_cast<std::uint32_t>(expressions.rules().size());
  for (std::uint32_t r = 0; r < source.rules().size(); ++r) expressions.add_rule(source.rule_name(r));
  std::vector<Expression> made(source.size(), nothing);
  made[empty] = empty;
  for (Expression e = 2; e < source.size(); ++e) {  // expressions are numbered after their parts
    const Node& node = source.node(e);
    std::vector<Expression> parts;
    switch (node.kind) {
      case Kind::no_text:
      case Kind::empty_text: break;
      case Kind::bytes: made[e] = expressions.bytes(source.set(node)); break;
      case Kind::sequence: made[e] = expressions.sequence(made[node.a], made[node.b]); break;
      case Kind::either:
      case Kind::both:
        for (const Expression part : source.list(node)) parts.push_back(made[part]);
        made[e] = node.kind == Kind::either ? expressions.either(std::move(parts)) : expressions.both(std::move(parts));
        break;
      case Kind::complement: made[e] = expressions.complement(made[node.a]); break;
      case Kind::repeat: made[e] = expressions.repeat(made[node.a], node.least, node.most); break;
      case Kind::multiple: made[e] = expressions.multiple(node.a, node.b); break;
      case Kind::leaf: made[e] = expressions.leaf(made[node.a]); break;
      case Kind::rule: made[e] = expressions.rule(first_rule + node.a); break;
    }
  }
  for (std::uint32_t r = 0; r < source.rules().size(); ++r) {
    expressions.rules()[first_rule + r] = made[source.rules()[r]];
  }
  if (other.json_character != nothing) to.json_character = made[other.json_character];
  return made[other.root];
}

/// Removes what has no text, and checks the rules.
class Finisher {
 public:
  explicit Finisher(Expressions& expressions) : expressions_(expressions), automaton_(expressions) {}

  Expression finish(Expression root) {
    find_productive();
    find_nullable();
    root = rebuild(root);
    if (root == nothing) {
      throw Error("grammar.unsatisfiable", "no text fits the grammar", "Remove the constraints that contradict");
    }
    check_left_recursion(root);
    return root;
  }

 private:
  void find_productive() {
    const std::size_t count = expressions_.size();
    productive_.assign(count, 0);
    std::vector<std::uint8_t> rules(expressions_.rules().size(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (Expression e = 1; e < count; ++e) {
        expressions_.check_time();
        if (productive_[e] == 0) productive_[e] = is_productive(e, rules);
      }
      for (std::size_t r = 0; r < rules.size(); ++r) {
        if (rules[r] != 0 || productive_[expressions_.rules()[r]] == 0) continue;
        rules[r] = 1;
        changed = true;
      }
    }
  }

  bool is_productive(Expression e, const std::vector<std::uint8_t>& rules) {
    const Node node = expressions_.node(e);
    switch (node.kind) {
      case Kind::no_text: return false;
      case Kind::sequence: return productive_[node.a] != 0 && productive_[node.b] != 0;
      case Kind::either: {
        const auto list = expressions_.list(node);
        return std::any_of(list.begin(), list.end(), [&](Expression part) { return productive_[part] != 0; });
      }
      case Kind::both: return automaton_.is_alive(e);
      case Kind::repeat: return node.least == 0 || productive_[node.a] != 0;
      case Kind::leaf: return productive_[node.a] != 0;
      case Kind::rule: return rules[node.a] != 0;
      case Kind::empty_text:
      case Kind::bytes:
      case Kind::complement:
      case Kind::multiple: break;
    }
    return true;
  }

  void find_nullable() {
    std::vector<std::uint8_t> rules(expressions_.rules().size(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (Expression e = 2; e < expressions_.size(); ++e) {
        expressions_.check_time();
        const Node node = expressions_.node(e);
        if (node.regular || node.nullable) continue;
        bool nullable = false;
        if (node.kind == Kind::sequence) nullable = expressions_.nullable(node.a) && expressions_.nullable(node.b);
        if (node.kind == Kind::repeat) nullable = expressions_.nullable(node.a);
        if (node.kind == Kind::rule) nullable = rules[node.a] != 0;
        if (node.kind == Kind::either) {
          for (const Expression part : expressions_.list(node)) nullable = nullable || expressions_.nullable(part);
        }
        if (nullable) expressions_.set_nullable(e);
      }
      for (std::size_t r = 0; r < rules.size(); ++r) {
        if (rules[r] != 0 || !expressions_.nullable(expressions_.rules()[r])) continue;
        rules[r] = 1;
        changed = true;
      }
    }
  }

  /// Expressions are numbered after their parts.
  Expression rebuild(Expression root) {
    const std::size_t count = productive_.size();
    std::vector<Expression> made(count, nothing);
    made[empty] = empty;
    for (Expression e = 2; e < count; ++e) {
      if (productive_[e] == 0) continue;
      const Node node = expressions_.node(e);
      switch (node.kind) {
        case Kind::sequence: made[e] = expressions_.sequence(made[node.a], made[node.b]); break;
        case Kind::either: {
          std::vector<Expression> parts;
          for (const Expression part : expressions_.list(node)) parts.push_back(made[part]);
          made[e] = expressions_.either(std::move(parts));
          break;
        }
        case Kind::repeat: made[e] = expressions_.repeat(made[node.a], node.least, node.most); break;
        case Kind::leaf: made[e] = expressions_.leaf(made[node.a]); break;
        default: made[e] = e; break;
      }
    }
    for (Expression& body : expressions_.rules()) body = made[body];
    return made[root];
  }

  /// Depth first over what an expression begins with. Reaching an open expression again is left recursion.
  void check_left_recursion(Expression root) const {
    std::vector<std::uint8_t> state(expressions_.size(), 0);  // 1: open, 2: done
    std::vector<std::pair<Expression, std::size_t>> open{{root, 0}};
    state[root] = 1;
    const auto next = [this](const Node& node, std::size_t index) -> Expression {
      switch (node.kind) {
        case Kind::sequence:
          if (index == 0) return node.a;
          return index == 1 && expressions_.nullable(node.a) ? node.b : nothing;
        case Kind::either: return index < node.b ? expressions_.list(node)[index] : nothing;
        case Kind::repeat: return index == 0 ? node.a : nothing;
        case Kind::rule: return index == 0 ? expressions_.rules()[node.a] : nothing;
        default: return nothing;
      }
    };
    walk(open, state, next);
    for (const Expression body : expressions_.rules()) {
      if (body == nothing || state[body] != 0) continue;
      state[body] = 1;
      open.emplace_back(body, 0);
      walk(open, state, next);
    }
  }

  template <class Next>
  void walk(std::vector<std::pair<Expression, std::size_t>>& open, std::vector<std::uint8_t>& state,
            const Next& next) const {
    while (!open.empty()) {
      const auto [e, index] = open.back();
      const Expression part = next(expressions_.node(e), index);
      if (part == nothing) {
        state[e] = 2;
        open.pop_back();
        continue;
      }
      ++open.back().second;
      if (state[part] == 1) {
        const auto rule = std::find_if(open.rbegin(), open.rend(), [this](const auto& level) {
          return expressions_.node(level.first).kind == Kind::rule;
        });
        const Node& node = expressions_.node(rule == open.rend() ? part : rule->first);
        const std::string name = node.kind == Kind::rule ? expressions_.rule_name(node.a) : "a rule";
        throw Error("grammar.left-recursion", text(name, " begins with itself"),
                    "Write the recursion at the end of the rule, or as a repetition");
      }
      if (state[part] == 2) continue;
      state[part] = 1;
      open.emplace_back(part, 0);
    }
  }

  Expressions& expressions_;
  Automaton automaton_;
  std::vector<std::uint8_t> productive_;
};

}}}
