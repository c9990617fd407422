// The base of the parsers: the tokens of a template, its nodes, and the depth of nesting.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/jinja/heap.hpp"
#include "slm/text/jinja/lexer.hpp"
#include "slm/text/jinja/syntax.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

class TokenParser {
 public:
  TokenParser(Program& program, std::vector<Token> tokens, const Limits& limits)
      : program_(program), tokens_(std::move(tokens)), limits_(limits) {}

 protected:
  using Type = Token::Type;

  /// Counts how deep the parser is in the source.
  class Deeper {
   public:
    Deeper(TokenParser& parser) : depth_(parser.depth_) {
      if (depth_ >= parser.limits_.nesting || parser.stack_.is_used_up()) parser.too_deep();
      ++depth_;
    }
    ~Deeper() { --depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    int& depth_;
  };

  [[noreturn]] void too_deep() const {
    throw SyntaxFault{token().at, text("expressions or blocks nest more than ", limits_.nesting, " levels deep"),
                      TemplateError::Kind::limit};
  }

  const Token& token() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token take() {
    const Token taken = token();
    if (taken.type != Type::end) ++next_;
    return taken;
  }
  bool at_sign(std::string_view sign) const { return token().type == Type::sign && token().text == sign; }
  bool at_name(std::string_view name) const { return token().type == Type::name && token().text == name; }
  bool skip_sign(std::string_view sign) { return at_sign(sign) && (take(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (take(), true); }

  static std::string described(const Token& token) {
    switch (token.type) {
      case Type::end: return "the end of the template";
      case Type::print_end: return "the end of the expression";
      case Type::tag_end: return "the end of the tag";
      default: return quote(token.text);
    }
  }
  [[noreturn]] void unexpected(std::string_view expected) const {
    throw SyntaxFault{token().at, text("found ", described(token()), ", expected ", expected)};
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) unexpected(text("'", sign, "'"));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(text("'", name, "'"));
  }
  Token expect(Type type, std::string_view what) {
    if (token().type != type) unexpected(what);
    return take();
  }

  NodePtr make(Op op, std::uint32_t at) {
    if (++nodes_ > limits_.nodes) {
      throw SyntaxFault{at, text("the template has more than ", limits_.nodes, " parts"), TemplateError::Kind::limit};
    }
    auto node = std::make_unique<Node>();
    node->op = op;
    node->at = at;
    return node;
  }

  void add(Node& node, NodePtr kid) {
    if (kid) deepen(node, *kid);
    node.kids.push_back(std::move(kid));
  }

  void deepen(Node& node, const Node& kid) const {
    if (kid.depth >= limits_.nesting || kid.depth >= 250) too_deep();
    node.depth = std::max(node.depth, static_cast<std::uint8_t>(kid.depth + 1));
  }

  NodePtr make(Op op, std::uint32_t at, NodePtr&& first, NodePtr&& second = {}) {
    NodePtr node = make(op, at);
    add(*node, std::move(first));
    if (second) add(*node, std::move(second));
    return node;
  }

  static Parts& parts(Node& node) {
    if (!node.parts) node.parts = std::make_unique<Parts>();
    return *node.parts;
  }

  /// A filter or test that does not exist is a fault of the source, except where an `if` may leave it unused.
  struct Unknown {
    std::uint32_t at;
    std::string message;
  };
  void note_unknown(Node& node, const std::string& name, std::string_view what) {
    node.value = heap_.string(name);
    if (node.entry == 0) unknown_.push_back({node.at, text("there is no ", what, " named ", quote(name))});
  }

  Program& program_;
  std::vector<Token> tokens_;
  Limits limits_;
  StackGuard stack_{limits_};
  Heap heap_;
  std::size_t next_ = 0;
  std::size_t nodes_ = 0;
  int depth_ = 0;
  std::vector<Unknown> unknown_;
};

}}}
