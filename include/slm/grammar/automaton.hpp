// Automaton: the transitions between expressions, made when a text needs them. The derivative of an expression by a
// byte is the language of what may follow that byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/grammar/expressions.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class Automaton {
 public:
  explicit Automaton(Expressions& expressions) : expressions_(expressions) { set_classes(); }

  /// Classes of bytes that no expression distinguishes.
  std::size_t classes() const { return representatives_.size(); }
  unsigned class_of(unsigned char byte) const { return class_of_[byte]; }
  unsigned char representative(unsigned byte_class) const { return representatives_[byte_class]; }
  unsigned class_size(unsigned byte_class) const { return sizes_[byte_class]; }

  /// The language behind the byte; `nothing` if no text continues so.
  Expression step(Expression e, unsigned char byte) { return step_class(e, class_of_[byte]); }

  Expression step_class(Expression e, unsigned byte_class) {
    if (e < row_of_.size() && row_of_[e] != none) {
      const Expression known = rows_[row_of_[e] + byte_class];
      if (known != none) return known;
    }
    const Expression next = derive(e, byte_class);
    row(e)[byte_class] = next;
    return next;
  }

  /// Whether an expression without rules contains any text.
  bool is_alive(Expression e);

  std::size_t memory() const {
    return rows_.size() * sizeof(Expression) + row_of_.size() * sizeof(std::uint32_t) + alive_.size();
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr int deepest = 2000;

  void set_classes();

  Expression* row(Expression e) {
    if (e >= row_of_.size()) row_of_.resize(std::max<std::size_t>(expressions_.size(), e + 1), none);
    if (row_of_[e] == none) {
      if (memory() + expressions_.memory() > expressions_.limits().memory) fail_limit("memory of the automaton");
      row_of_[e] = static_cast<std::uint32_t>(rows_.size());
      rows_.resize(rows_.size() + classes(), none);
    }
    return &rows_[row_of_[e]];
  }

  /// The derivative, without a look-up of `e` itself.
  Expression derive(Expression e, unsigned byte_class);
  Expression derive_sequence(Expression e, unsigned byte_class);
  Expression derive_parts(const Node& node, unsigned byte_class, bool remember);

  /// The derivative of a part. Cheap ones are not remembered.
  Expression part(Expression e, unsigned byte_class) {
    const Kind kind = expressions_.node(e).kind;
    if (kind <= Kind::bytes || kind == Kind::sequence || kind == Kind::multiple) return derive(e, byte_class);
    return step_class(e, byte_class);
  }

  Expressions& expressions_;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<unsigned char> representatives_;
  std::vector<unsigned> sizes_;        // bytes by class
  std::vector<std::uint32_t> row_of_;  // by expression
  std::vector<Expression> rows_;       // next expressions by class
  std::vector<std::uint8_t> alive_;    // by expression: 0 unknown, 1 alive, 2 not
  int depth_ = 0;
};

inline void Automaton::set_classes() {
  std::array<std::uint16_t, 256> partition{};
  std::size_t count = 1;
  const auto split = [&](const ByteSet& set) {
    std::array<std::uint16_t, 512> renamed;
    renamed.fill(0xFFFF);
    std::size_t next = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::uint16_t& name = renamed[partition[byte] * std::size_t{2} + (set.has(byte) ? 1 : 0)];
      if (name == 0xFFFF) name = static_cast<std::uint16_t>(next++);
      partition[byte] = name;
    }
    count = next;
  };
  for (const ByteSet& set : expressions_.sets()) {
    if (count == 256) break;
    split(set);
  }
  if (count < 256) {
    for (unsigned digit = '0'; digit <= '9'; ++digit) split(ByteSet::range(digit, digit));  // of `multiple`
  }
  representatives_.assign(count, 0);
  sizes_.assign(count, 0);
  for (unsigned byte = 256; byte-- > 0;) {
    class_of_[byte] = static_cast<std::uint8_t>(partition[byte]);
    representatives_[partition[byte]] = static_cast<unsigned char>(byte);
    ++sizes_[partition[byte]];
  }
}

inline Expression Automaton::derive(Expression e, unsigned byte_class) {
  struct Level {
    int& depth;
    explicit Level(int& of) : depth(of) {
      if (++depth > deepest) {
        --depth;
        fail_limit("depth of an expression");
      }
    }
    ~Level() { --depth; }
  } level(depth_);
  const Node node = expressions_.node(e);
  const unsigned byte = representatives_[byte_class];
  switch (node.kind) {
    case Kind::no_text:
    case Kind::empty_text: return nothing;
    case Kind::bytes: return expressions_.set(node).has(byte) ? empty : nothing;
    case Kind::sequence: return derive_sequence(e, byte_class);
    case Kind::either: {
      std::vector<Expression> parts;
      for (std::size_t i = 0; i < node.b; ++i) {
        const Expression next = part(expressions_.list(node)[i], byte_class);
        if (next != nothing) parts.push_back(next);
      }
      return expressions_.either(std::move(parts));
    }
    case Kind::both: {
      std::vector<Expression> parts;
      for (std::size_t i = 0; i < node.b; ++i) {
        parts.push_back(part(expressions_.list(node)[i], byte_class));
        if (parts.back() == nothing) return nothing;
      }
      const Expression next = expressions_.both(std::move(parts));
      return is_alive(next) ? next : nothing;
    }
    case Kind::complement: return expressions_.complement(part(node.a, byte_class));
    case Kind::repeat: {
      const Expression next = part(node.a, byte_class);
      if (next == nothing) return nothing;
      const std::uint32_t most = node.most == unlimited ? unlimited : node.most - 1;
      return expressions_.sequence(next, expressions_.repeat(node.a, node.least == 0 ? 0 : node.least - 1, most));
    }
    case Kind::multiple: {
      if (byte < '0' || byte > '9') return nothing;
      return expressions_.multiple(node.a,
                                   static_cast<std::uint32_t>((node.b * std::uint64_t{10} + (byte - '0')) % node.a));
    }
    case Kind::leaf: return expressions_.leaf(part(node.a, byte_class));
    case Kind::rule: return part(expressions_.rules()[node.a], byte_class);
  }
  return nothing;
}

inline Expression Automaton::derive_sequence(Expression e, unsigned byte_class) {
  Expression first = nothing;
  std::vector<Expression> others;
  const auto add = [&](Expression next) {
    if (next == nothing) return;
    first == nothing ? void(first = next) : others.push_back(next);
  };
  for (;;) {
    const Node node = expressions_.node(e);
    if (node.kind != Kind::sequence) {
      add(part(e, byte_class));
      break;
    }
    expressions_.check_time();
    const Expression next = part(node.a, byte_class);
    if (next != nothing) add(expressions_.sequence(next, node.b));
    if (!expressions_.nullable(node.a)) break;
    e = node.b;
  }
  if (others.empty()) return first;
  others.push_back(first);
  return expressions_.either(std::move(others));
}

inline bool Automaton::is_alive(Expression e) {
  const auto known = [this](Expression x) -> std::uint8_t& {
    if (x >= alive_.size()) alive_.resize(std::max<std::size_t>(expressions_.size(), x + 1), 0);
    return alive_[x];
  };
  const Kind kind = expressions_.node(e).kind;
  if (kind == Kind::no_text) return false;
  if (kind != Kind::both) return true;  // other expressions without a text are `nothing`
  if (known(e) != 0) return known(e) == 1;
  struct Reached {
    Expression expression;
    std::size_t from;
  };
  std::vector<Reached> reached{{e, 0}};
  known(e) = 2;   // until a text is found
  struct Reset {  // an error leaves nothing decided
    Automaton& automaton;
    const std::vector<Reached>& reached;
    bool decided = false;
    ~Reset() {
      if (decided) return;
      for (const Reached& one : reached) automaton.alive_[one.expression] = 0;
    }
  } reset{*this, reached};
  const auto found = [&](std::size_t at) {
    reset.decided = true;
    for (;; at = reached[at].from) {
      known(reached[at].expression) = 1;
      if (at == 0) break;
    }
    for (const Reached& other : reached) {
      if (known(other.expression) == 2) known(other.expression) = 0;
    }
    return true;
  };
  for (std::size_t at = 0; at < reached.size(); ++at) {
    const Expression from = reached[at].expression;
    if (expressions_.nullable(from)) return found(at);
    const Node node = expressions_.node(from);
    for (unsigned byte_class = 0; byte_class < classes(); ++byte_class) {
      std::vector<Expression> parts;
      for (std::size_t i = 0; i < node.b; ++i) {
        parts.push_back(part(expressions_.list(node)[i], byte_class));
        if (parts.back() == nothing) break;
      }
      const Expression next = parts.back() == nothing ? nothing : expressions_.both(std::move(parts));
      if (next == nothing) continue;
      if (expressions_.node(next).kind != Kind::both || known(next) == 1) return found(at);
      if (known(next) != 0) continue;
      known(next) = 2;
      reached.push_back({next, at});
    }
  }
  reset.decided = true;
  return false;
}

}}}
