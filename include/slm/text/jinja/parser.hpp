// Parses the tags of a template.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/expressions.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void run() {
    program_.body = statements({});
    unknown_.insert(unknown_.begin(), certain_.begin(), certain_.end());
    if (!unknown_.empty()) throw SyntaxFault{unknown_.front().at, unknown_.front().message};
  }

 private:
  using Body = std::vector<NodePtr>;
  using Words = std::initializer_list<std::string_view>;

  /// Tags that are rejected.
  static constexpr std::string_view unsupported[]{"include", "import", "from", "extends"};

  /// Statements up to a tag that begins with one of `ends`, of which the word is the next token.
  Body statements(Words ends) {
    const Deeper deeper(*this);
    const std::uint32_t opened = tag_;
    Body body;
    while (true) {
      const Token first = take();
      switch (first.type) {
        case Type::data: {
          NodePtr node = make(Op::data, first.at);
          node->value = heap_.string(first.text);
          body.push_back(std::move(node));
          break;
        }
        case Type::print_begin: {
          NodePtr value = tuple(false);
          expect(Type::print_end, "the end of the expression");
          body.push_back(make(Op::print, first.at, std::move(value)));
          break;
        }
        case Type::tag_begin: {
          for (const std::string_view end : ends) {
            if (at_name(end)) return body;
          }
          tag_ = first.at;
          statement(body);
          expect(Type::tag_end, "the end of the tag");
          break;
        }
        default:
          if (ends.size() == 0) return body;
          throw SyntaxFault{opened, text("the block is not closed: expected a tag '", *(ends.end() - 1), "'")};
      }
    }
  }

  /// The body of a tag, up to `end`, which is taken.
  Body body(std::string_view end) {
    skip_sign(":");
    expect(Type::tag_end, "the end of the tag");
    Body inside = statements({end});
    take();
    return inside;
  }

  /// The body of a tag with its own scope. An unknown filter in it is a fault.
  Body scope(std::string_view end) {
    const std::size_t before = unknown_.size();
    Body inside = body(end);
    settle(before);
    return inside;
  }

  void settle(std::size_t before) {
    certain_.insert(certain_.end(), unknown_.begin() + static_cast<std::ptrdiff_t>(before), unknown_.end());
    unknown_.resize(before);
  }

  /// The body of a function: `break` does not leave a loop around it.
  Body function(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body inside = scope(end);
    loops_ = loops;
    return inside;
  }

  static void deepen_all(Parser& parser, Node& node, const Body& body) {
    for (const NodePtr& kid : body) parser.deepen(node, *kid);
  }

  void put(Node& node, Body inside) {
    deepen_all(*this, node, inside);
    parts(node).body = std::move(inside);
  }

  void statement(Body& out) {
    if (token().type != Type::name) unexpected("the name of a tag");
    const Token word = take();
    const std::uint32_t at = tag_;
    if (word.text == "if") return out.push_back(branch(at));
    if (word.text == "for") return out.push_back(loop(at));
    if (word.text == "set") return out.push_back(assignment(at));
    if (word.text == "macro") return out.push_back(macro(at));
    if (word.text == "call") return out.push_back(call_block(at));
    if (word.text == "with") return out.push_back(with(at));
    if (word.text == "filter") {
      NodePtr node = make(Op::filter_block, at);
      NodePtr filters = filter(nullptr);
      while (skip_sign("|")) filters = filter(std::move(filters));
      add(*node, std::move(filters));
      put(*node, scope("endfilter"));
      return out.push_back(std::move(node));
    }
    if (word.text == "generation" || word.text == "block") {
      NodePtr node = make(Op::scope, at);
      if (word.text == "block") expect(Type::name, "the name of the block");
      put(*node, body_of_block(word.text == "block"));
      return out.push_back(std::move(node));
    }
    if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) throw SyntaxFault{word.at, text("'", word.text, "' is outside a loop")};
      return out.push_back(make(word.text == "break" ? Op::leave : Op::next, at));
    }
    if (word.text == "print") return out.push_back(make(Op::print, at, tuple(false)));
    if (std::find(std::begin(unsupported), std::end(unsupported), word.text) != std::end(unsupported)) {
      throw SyntaxFault{word.at,
                        text("the tag '", word.text, "' needs other files, which a chat template does not have")};
    }
    throw SyntaxFault{word.at, "unknown tag " + quote(word.text)};
  }

  Body body_of_block(bool named) {
    if (!named) return scope("endgeneration");
    Body inside = function("endblock");
    if (token().type == Type::name) take();
    return inside;
  }

  NodePtr branch(std::uint32_t at) {
    NodePtr node = make(Op::branch, at);
    Parts& inside = parts(*node);
    const std::size_t before = unknown_.size();
    while (true) {
      add(*node, tuple(false, false));
      NodePtr part = make(Op::scope, tag_);
      skip_sign(":");
      expect(Type::tag_end, "the end of the tag");
      put(*part, statements({"elif", "else", "endif"}));
      deepen(*node, *part);
      inside.body.push_back(std::move(part));
      const Token word = take();
      if (word.text == "elif") continue;
      if (word.text == "else") {
        inside.otherwise = body("endif");
        deepen_all(*this, *node, inside.otherwise);
      }
      unknown_.resize(before);  // what an `if` holds is refused when it is reached
      return node;
    }
  }

  NodePtr loop(std::uint32_t at) {
    NodePtr node = make(Op::loop, at);
    const std::size_t before = unknown_.size();
    add(*node, target(true, "in"));
    expect_name("in");
    add(*node, tuple(false, false, "recursive"));
    add(*node, skip_name("if") ? expression() : nullptr);
    parts(*node).recursive = skip_name("recursive");
    skip_sign(":");
    expect(Type::tag_end, "the end of the tag");
    ++loops_;
    put(*node, statements({"else", "endfor"}));
    --loops_;
    if (take().text == "else") {
      parts(*node).otherwise = body("endfor");
      deepen_all(*this, *node, parts(*node).otherwise);
    }
    settle(before);
    return node;
  }

  /// The target of an assignment. several: names separated by commas. end: the word after it.
  NodePtr target(bool several, std::string_view end = {}, bool members = false) {
    const std::uint32_t at = token().at;
    std::vector<NodePtr> kids;
    bool is_tuple = false;
    while (true) {
      if (!kids.empty()) {
        if (!several || !skip_sign(",")) break;
        is_tuple = true;
      }
      if (is_tuple && (at_end_of_tuple(end) || at_sign("="))) break;
      NodePtr one = primary();
      if (members && one->op == Op::name && skip_sign(".")) {
        NodePtr member = make(Op::attribute, at, std::move(one));
        member->value = heap_.string(expect(Type::name, "the name of an attribute").text);
        one = std::move(member);
      } else {
        check_target(*one);
      }
      kids.push_back(std::move(one));
    }
    if (!is_tuple) return std::move(kids[0]);
    NodePtr node = make(Op::tuple, at);
    for (NodePtr& kid : kids) add(*node, std::move(kid));
    return node;
  }

  void check_target(const Node& node) const {
    if (node.op == Op::tuple) {
      for (const NodePtr& kid : node.kids) check_target(*kid);
    } else if (node.op != Op::name) {
      throw SyntaxFault{node.at, "a value can be assigned to a name only"};
    }
  }

  NodePtr assignment(std::uint32_t at) {
    NodePtr node = make(Op::assign, at);
    add(*node, target(true, {}, true));
    if (skip_sign("=")) {
      add(*node, tuple(false));
      return node;
    }
    node->op = Op::assign_block;
    const std::size_t before = unknown_.size();
    NodePtr filters;
    while (skip_sign("|")) filters = filter(std::move(filters));
    add(*node, std::move(filters));
    put(*node, body("endset"));
    settle(before);
    return node;
  }

  NodePtr with(std::uint32_t at) {
    NodePtr node = make(Op::with, at);
    while (token().type != Type::tag_end) {
      if (!node->kids.empty()) expect_sign(",");
      add(*node, target(false));
      expect_sign("=");
      add(*node, expression());
    }
    put(*node, scope("endwith"));
    return node;
  }

  std::uint32_t parameter_name() {
    const Token name = expect(Type::name, "a name");
    for (const std::string_view constant : {"true", "True", "false", "False", "none", "None"}) {
      if (name.text == constant) throw SyntaxFault{name.at, "a value can be assigned to a name only"};
    }
    return program_.symbols.of(name.text);
  }

  void parameters(Node& node) {
    Parts& inside = parts(node);
    expect_sign("(");
    while (!at_sign(")")) {
      if (!inside.names.empty()) expect_sign(",");
      inside.names.push_back(parameter_name());
      if (skip_sign("=")) {
        inside.defaults.push_back(expression());
        deepen(node, *inside.defaults.back());
      } else if (!inside.defaults.empty()) {
        throw SyntaxFault{token().at, "a parameter without default follows one that has a default"};
      }
    }
    take();
  }

  /// The body of a macro, and which of the names that macros have without asking it reads.
  void macro_body(Node& node, std::string_view end) {
    const std::size_t begin = next_;
    put(node, function(end));
    Parts& inside = parts(node);
    for (std::size_t i = begin; i < next_; ++i) {
      if (tokens_[i].type != Type::name) continue;
      inside.takes_list = inside.takes_list || tokens_[i].text == "varargs";
      inside.takes_dict = inside.takes_dict || tokens_[i].text == "kwargs";
      inside.takes_caller = inside.takes_caller || tokens_[i].text == "caller";
    }
  }

  NodePtr macro(std::uint32_t at) {
    NodePtr node = make(Op::macro, at);
    node->symbol = parameter_name();
    node->value = heap_.string(program_.symbols.name(node->symbol));
    parameters(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  NodePtr call_block(std::uint32_t at) {
    NodePtr node = make(Op::call_block, at);
    NodePtr caller = make(Op::macro, at);
    caller->value = heap_.string("caller");
    caller->symbol = program_.symbols.of("caller");
    if (at_sign("(")) parameters(*caller);
    NodePtr call = expression();
    if (call->op != Op::call) throw SyntaxFault{call->at, "expected the call of a macro"};
    macro_body(*caller, "endcall");
    add(*node, std::move(call));
    add(*node, std::move(caller));
    return node;
  }

  std::uint32_t tag_ = 0;  // where the tag that is parsed begins
  int loops_ = 0;          // around it
  std::vector<Unknown> certain_;
};

}}}
