// Parses the expressions of a template. Precedence and grammar are those of jinja2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/literals.hpp"
#include "slm/text/jinja/token_parser.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

class ExpressionParser : public TokenParser {
 protected:
  using TokenParser::TokenParser;

  NodePtr expression() {
    const Deeper deeper(*this);
    const std::size_t unknown = unknown_.size();
    NodePtr value = operation(either);
    while (at_name("if")) {
      const std::uint32_t at = take().at;
      NodePtr node = make(Op::condition, at);
      node->at = value->at;
      NodePtr test = operation(either);
      NodePtr other = skip_name("else") ? expression() : nullptr;
      add(*node, std::move(test));
      add(*node, std::move(value));
      add(*node, std::move(other));
      value = std::move(node);
      unknown_.resize(unknown);
    }
    return value;
  }

  /// How tight operators bind.
  enum Level { none, either, both, inversion, comparison, sum, joining, product, power };

  struct Operator {
    Level level = none;
    Sign sign = Sign::add;
    int tokens = 1;
  };

  Operator next_operator() const {
    struct Named {
      std::string_view text;
      Operator found;
    };
    static constexpr Named signs[]{
        {"==", {comparison, Sign::equal}},
        {"!=", {comparison, Sign::unequal}},
        {"<", {comparison, Sign::less}},
        {"<=", {comparison, Sign::less_equal}},
        {">", {comparison, Sign::greater}},
        {">=", {comparison, Sign::greater_equal}},
        {"+", {sum, Sign::add}},
        {"-", {sum, Sign::subtract}},
        {"~", {joining}},
        {"*", {product, Sign::multiply}},
        {"/", {product, Sign::divide}},
        {"//", {product, Sign::floor}},
        {"%", {product, Sign::modulo}},
        {"**", {power}},
    };
    if (token().type == Type::sign) {
      for (const auto& [text, found] : signs) {
        if (token().text == text) return found;
      }
    } else if (token().type == Type::name) {
      if (token().text == "or") return {either};
      if (token().text == "and") return {both};
      if (token().text == "in") return {comparison, Sign::in};
      const bool in_follows = following().type == Type::name && following().text == "in";
      if (token().text == "not" && in_follows) return {comparison, Sign::not_in, 2};
    }
    return {};
  }

  /// Operators that bind at least as tight as `loosest`. Adjacent operators of one level become one node, except
  /// powers.
  NodePtr operation(Level loosest) {
    NodePtr left;
    if (loosest <= inversion && at_name("not")) {
      const Deeper deeper(*this);
      const std::uint32_t at = take().at;
      left = make(Op::invert, at, operation(inversion));
    } else {
      left = unary(true);
    }
    Level level = none;  // of `left`
    while (true) {
      const Operator found = next_operator();
      if (found.level == none || found.level < loosest) return left;
      for (int i = 0; i < found.tokens; ++i) take();
      if (found.level != level || level == power) left = make(op_of(found.level), left->at, std::move(left));
      level = found.level;
      if (level == comparison || level == sum || level == product) parts(*left).signs.push_back(found.sign);
      add(*left, operation(static_cast<Level>(level + 1)));
    }
  }

  static Op op_of(Level level) {
    switch (level) {
      case either: return Op::either;
      case both: return Op::both;
      case comparison: return Op::compare;
      case joining: return Op::join;
      case power: return Op::power;
      default: return Op::chain;
    }
  }

  NodePtr unary(bool filters) {
    NodePtr value;
    if (at_sign("-") || at_sign("+")) {
      const Deeper deeper(*this);
      const Token sign = take();
      value = make(sign.text == "-" ? Op::negate : Op::plus, sign.at, unary(false));
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return filters ? filtered(std::move(value)) : std::move(value);
  }

  NodePtr constant(Value value, std::uint32_t at) {
    NodePtr node = make(Op::constant, at);
    node->value = std::move(value);
    return node;
  }

  NodePtr primary() {
    const Token first = token();
    if (first.type == Type::name) {
      take();
      if (first.text == "true" || first.text == "True") return constant(Value::boolean(true), first.at);
      if (first.text == "false" || first.text == "False") return constant(Value::boolean(false), first.at);
      if (first.text == "none" || first.text == "None") return constant(Value::none(), first.at);
      const auto code = static_cast<unsigned char>(first.text[0]);
      if (code >= '0' && code <= '9')
        throw SyntaxFault{first.at, "the name " + quote(first.text) + " begins with a digit"};
      NodePtr node = make(Op::name, first.at);
      node->symbol = program_.symbols.of(first.text);
      return node;
    }
    if (first.type == Type::string) {
      std::string joined;
      while (token().type == Type::string) joined += unescaped(take());
      return constant(heap_.string(joined), first.at);
    }
    if (first.type == Type::integer) return take(), constant(Value::integer(integer_of(first)), first.at);
    if (first.type == Type::real) return take(), constant(Value::real(real_of(first)), first.at);
    const Deeper deeper(*this);
    if (skip_sign("(")) {
      NodePtr value = tuple(true);
      expect_sign(")");
      return value;
    }
    if (skip_sign("[")) {
      NodePtr list = make(Op::list, first.at);
      while (!at_sign("]")) {
        if (!list->kids.empty()) expect_sign(",");
        if (at_sign("]")) break;
        add(*list, expression());
      }
      take();
      return list;
    }
    if (skip_sign("{")) {
      NodePtr dict = make(Op::dict, first.at);
      while (!at_sign("}")) {
        if (!dict->kids.empty()) expect_sign(",");
        if (at_sign("}")) break;
        add(*dict, expression());
        expect_sign(":");
        add(*dict, expression());
      }
      take();
      return dict;
    }
    unexpected("an expression");
  }

  bool at_end_of_tuple(std::string_view end) const {
    return token().type == Type::print_end || token().type == Type::tag_end || at_sign(")") ||
           (!end.empty() && at_name(end));
  }

  /// One expression, or several with commas between. in_parentheses: there may be none. conditions: whether `a if b`
  /// is allowed in it. end: a word that ends it.
  NodePtr tuple(bool in_parentheses, bool conditions = true, std::string_view end = {}) {
    const std::uint32_t at = token().at;
    NodePtr node;
    std::vector<NodePtr> kids;
    bool is_tuple = false;
    while (true) {
      if (!kids.empty()) {
        if (!skip_sign(",")) break;
        is_tuple = true;
      }
      if (at_end_of_tuple(end)) break;
      kids.push_back(conditions ? expression() : operation(either));
    }
    if (!is_tuple && kids.size() == 1) return std::move(kids[0]);
    if (kids.empty() && !in_parentheses) unexpected("an expression");
    node = make(Op::tuple, at);
    for (NodePtr& kid : kids) add(*node, std::move(kid));
    return node;
  }

  NodePtr postfix(NodePtr value) {
    while (true) {
      if (at_sign(".") || at_sign("[")) {
        value = subscript(std::move(value));
      } else if (at_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  NodePtr filtered(NodePtr value) {
    while (true) {
      if (at_sign("|")) {
        take();
        value = filter(std::move(value));
      } else if (at_name("is")) {
        value = test(std::move(value));
      } else if (at_sign("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  NodePtr subscript(NodePtr value) {
    const std::uint32_t at = value->at;
    if (skip_sign(".")) {
      const Token name = take();
      if (name.type == Type::name) {
        NodePtr node = make(Op::attribute, at, std::move(value));
        node->value = heap_.string(name.text);
        return node;
      }
      --next_;
      if (name.type != Type::integer) unexpected("a name or a number behind the dot");
      take();
      return make(Op::item, at, std::move(value), constant(Value::integer(integer_of(name)), name.at));
    }
    const Deeper deeper(*this);
    expect_sign("[");
    std::vector<NodePtr> kids;
    while (!at_sign("]")) {
      if (!kids.empty()) expect_sign(",");
      kids.push_back(index());
    }
    if (kids.empty()) unexpected("an index");
    take();
    if (kids.size() == 1) return make(Op::item, at, std::move(value), std::move(kids[0]));
    NodePtr several = make(Op::tuple, at);
    for (NodePtr& kid : kids) add(*several, std::move(kid));
    return make(Op::item, at, std::move(value), std::move(several));
  }

  NodePtr index() {
    const std::uint32_t at = token().at;
    NodePtr start = at_sign(":") ? nullptr : expression();
    if (!at_sign(":")) return start;
    NodePtr node = make(Op::slice, at);
    add(*node, std::move(start));
    for (int part = 0; part < 2; ++part) {
      NodePtr bound;
      if (skip_sign(":") && !at_sign(":") && !at_sign("]") && !at_sign(",")) bound = expression();
      add(*node, std::move(bound));
    }
    return node;
  }

  NodePtr call(NodePtr callee) {
    const std::uint32_t at = callee->at;
    NodePtr node = make(Op::call, at, std::move(callee));
    arguments(*node);
    return node;
  }

  void arguments(Node& node) {
    const Deeper deeper(*this);
    expect_sign("(");
    Arguments& found = parts(node).arguments;
    bool first = true;
    const auto wrong = [&] { throw SyntaxFault{token().at, "the order of the arguments is wrong"}; };
    while (!at_sign(")")) {
      if (!first) {
        expect_sign(",");
        if (at_sign(")")) break;
      }
      first = false;
      NodePtr* place = nullptr;
      if (skip_sign("*")) {
        if (found.list || found.dict) wrong();
        place = &found.list;
      } else if (skip_sign("**")) {
        if (found.dict) wrong();
        place = &found.dict;
      } else if (token().type == Type::name && following().type == Type::sign && following().text == "=") {
        if (found.dict) wrong();
        found.named.emplace_back(take().text, nullptr);
        take();
        place = &found.named.back().second;
      } else {
        if (found.list || found.dict || !found.named.empty()) wrong();
        found.positional.emplace_back();
        place = &found.positional.back();
      }
      NodePtr value = expression();
      deepen(node, *value);
      *place = std::move(value);
    }
    take();
  }

  std::string dotted_name(std::string_view what) {
    std::string name{expect(Type::name, what).text};
    while (skip_sign(".")) name += text(".", expect(Type::name, what).text);
    return name;
  }

  /// Behind the bar. Without a value it filters a block.
  NodePtr filter(NodePtr value) {
    const std::uint32_t at = token().at;
    const std::string name = dotted_name("the name of a filter");
    NodePtr node = make(Op::filter, at);
    add(*node, std::move(value));
    node->entry = filter_named(name);
    note_unknown(*node, name, "filter");
    if (at_sign("(")) arguments(*node);
    return node;
  }

  NodePtr test(NodePtr value) {
    const std::uint32_t at = take().at;
    const bool inverted = skip_name("not");
    const std::string name = dotted_name("the name of a test");
    NodePtr node = make(Op::test, at);
    node->at = value->at;
    add(*node, std::move(value));
    node->entry = test_named(name);
    note_unknown(*node, name, "test");
    const Type type = token().type;
    if (at_sign("(")) {
      arguments(*node);
    } else if ((type == Type::name || type == Type::string || type == Type::integer || type == Type::real ||
                at_sign("[") || at_sign("{")) &&
               !at_name("else") && !at_name("or") && !at_name("and")) {
      if (at_name("is")) throw SyntaxFault{token().at, "a test cannot follow a test: use parentheses"};
      NodePtr argument = postfix(primary());
      deepen(*node, *argument);
      parts(*node).arguments.positional.push_back(std::move(argument));
    }
    if (!inverted) return node;
    return make(Op::invert, node->at, std::move(node));
  }
};

}}}
