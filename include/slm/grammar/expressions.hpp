// Expressions: languages over bytes, as nodes of one shared graph. Equal expressions have equal numbers.
//
// An expression is a regular expression with intersection and complement, plus references to rules, which make it a
// context-free grammar. The state of a text is an expression too: the language of all continuations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/grammar/byte_set.hpp"
#include "slm/grammar/limits.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

using Expression = std::uint32_t;

inline constexpr Expression nothing = 0;  // the empty language
inline constexpr Expression empty = 1;    // only the empty text
inline constexpr std::uint32_t unlimited = ~std::uint32_t{0};

enum class Kind : std::uint8_t {
  no_text,
  empty_text,
  bytes,       // one byte of a set: a
  sequence,    // a, then b; a is no sequence
  either,      // one of several
  both,        // all of several; without rules
  complement,  // every text that is not in a; only inside of both
  repeat,      // a, least to most times
  multiple,    // decimal digits whose value v has (b * 10^digits + v) divisible by a
  leaf,        // a, without rules: a terminal of the grammar
  rule,        // the rule a
};

struct Node {
  Kind kind = Kind::no_text;
  bool nullable = false;  // contains the empty text
  bool regular = true;    // contains no rule
  bool text = false;      // every text in it consists of characters: see set_characters()
  std::uint32_t a = 0, b = 0;
  std::uint32_t least = 0, most = 0;
};

/// Expressions of a grammar. Public members: one constructor for each kind of node.
class Expressions {
 public:
  explicit Expressions(const GrammarLimits& limits) : limits_(limits), slots_(1024, none) {
    nodes_.push_back({});
    nodes_.push_back({.kind = Kind::empty_text, .nullable = true, .text = true});
  }

  const GrammarLimits& limits() const { return limits_; }
  void set_deadline(const Deadline& deadline) { deadline_ = deadline; }
  void check_time() { deadline_.check(); }

  std::size_t size() const { return nodes_.size(); }
  const Node& node(Expression e) const { return nodes_[e]; }
  bool nullable(Expression e) const { return nodes_[e].nullable; }
  const ByteSet& set(const Node& node) const { return sets_[node.a]; }
  const std::vector<ByteSet>& sets() const { return sets_; }
  std::span<const Expression> list(const Node& node) const { return {lists_.data() + node.a, node.b}; }
  std::size_t memory() const {
    return nodes_.size() * sizeof(Node) + lists_.size() * sizeof(Expression) + sets_.size() * sizeof(ByteSet) +
           slots_.size() * sizeof(std::uint32_t);
  }

  Expression bytes(const ByteSet& set) {
    if (set == ByteSet{}) return nothing;
    const auto found = std::find(sets_.begin(), sets_.end(), set);
    const auto index = static_cast<std::uint32_t>(found - sets_.begin());
    if (found == sets_.end()) sets_.push_back(set);
    return intern({.kind = Kind::bytes, .a = index});
  }
  Expression byte(unsigned byte) { return bytes(ByteSet::range(byte, byte)); }

  Expression literal(std::string_view text) {
    Expression whole = empty;
    for (std::size_t i = text.size(); i-- > 0;) whole = sequence(byte(static_cast<unsigned char>(text[i])), whole);
    return whole;
  }

  Expression sequence(Expression a, Expression b) {
    if (a == nothing || b == nothing) return nothing;
    if (b == empty) return a;
    std::size_t begin = spine_.size();
    for (; nodes_[a].kind == Kind::sequence; a = nodes_[a].b) spine_.push_back(nodes_[a].a);
    if (a != empty) b = pair(a, b);
    for (; spine_.size() > begin; spine_.pop_back()) b = pair(spine_.back(), b);
    return b;
  }
  Expression sequence(std::initializer_list<Expression> parts) {
    Expression whole = empty;
    for (auto part = parts.end(); part != parts.begin();) whole = sequence(*--part, whole);
    return whole;
  }

  Expression either(std::vector<Expression> parts);
  Expression both(std::vector<Expression> parts);

  Expression complement(Expression e) {
    if (nodes_[e].kind == Kind::complement) return nodes_[e].a;
    return intern({.kind = Kind::complement, .nullable = !nullable(e), .regular = nodes_[e].regular, .a = e});
  }

  Expression optional(Expression e) { return either({e, empty}); }

  Expression repeat(Expression e, std::uint32_t least, std::uint32_t most) {
    if (most == 0 || e == empty) return empty;
    if (e == nothing) return least == 0 ? empty : nothing;
    if (least == 1 && most == 1) return e;
    const Node& node = nodes_[e];
    if (node.kind == Kind::repeat && node.least == 0 && node.most == unlimited) return e;
    return intern({.kind = Kind::repeat,
                   .nullable = least == 0 || node.nullable,
                   .regular = node.regular,
                   .text = node.text,
                   .a = e,
                   .least = least,
                   .most = most});
  }

  Expression multiple(std::uint32_t divisor, std::uint32_t remainder) {
    return intern({.kind = Kind::multiple, .nullable = remainder == 0, .a = divisor, .b = remainder});
  }

  /// A terminal. Expressions with rules stay as they are.
  Expression leaf(Expression e) {
    const Node& node = nodes_[e];
    if (node.kind <= Kind::empty_text || node.kind == Kind::leaf || !node.regular) return e;
    return intern({.kind = Kind::leaf, .nullable = node.nullable, .text = node.text, .a = e});
  }

  Expression rule(std::uint32_t index) { return intern({.kind = Kind::rule, .regular = false, .a = index}); }

  /// Notes the expression of any character. Then alternatives that are part of another one can be found.
  void set_characters(Expression any) {
    set_text(any);
    any_text_ = repeat(any, 0, unlimited);
  }
  /// Notes that all texts of an expression consist of such characters.
  void set_text(Expression e) { nodes_[e].text = true; }

  /// `name` stands for the rule in errors.
  std::uint32_t add_rule(std::string name) {
    rules_.push_back(nothing);
    rule_names_.push_back(std::move(name));
    return static_cast<std::uint32_t>(rules_.size() - 1);
  }
  std::vector<Expression>& rules() { return rules_; }
  const std::vector<Expression>& rules() const { return rules_; }
  const std::string& rule_name(std::uint32_t index) const { return rule_names_[index]; }
  /// Corrects `nullable` when the bodies of all rules are known.
  void set_nullable(Expression e) { nodes_[e].nullable = true; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  Expression pair(Expression a, Expression b) {
    return intern({.kind = Kind::sequence,
                   .nullable = nodes_[a].nullable && nodes_[b].nullable,
                   .regular = nodes_[a].regular && nodes_[b].regular,
                   .text = nodes_[a].text && nodes_[b].text,
                   .a = a,
                   .b = b});
  }

  Expression intern(const Node& node, std::span<const Expression> parts = {});
  void remove_contained(std::vector<Expression>& parts);
  void join_repeats(std::vector<Expression>& parts);
  void flatten(Kind kind, std::vector<Expression>& parts) const;

  bool equals(const Node& x, const Node& y, std::span<const Expression> parts) const {
    if (x.kind != y.kind) return false;
    if (x.kind == Kind::either || x.kind == Kind::both) return std::ranges::equal(list(x), parts);
    return x.a == y.a && x.b == y.b && x.least == y.least && x.most == y.most;
  }

  std::size_t hash(const Node& node, std::span<const Expression> parts) const {
    std::uint64_t hash = static_cast<std::uint64_t>(node.kind);
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29; };
    if (node.kind == Kind::either || node.kind == Kind::both) {
      for (const Expression part : parts) mix(part);
    } else {
      mix(node.a | std::uint64_t{node.b} << 32);
      if (node.kind == Kind::repeat) mix(node.least | std::uint64_t{node.most} << 32);
    }
    return static_cast<std::size_t>(hash ^ hash >> 32);
  }

  GrammarLimits limits_;
  Deadline deadline_;
  std::vector<Node> nodes_;
  std::vector<Expression> lists_;
  std::vector<ByteSet> sets_;
  std::vector<Expression> rules_;  // bodies
  std::vector<std::string> rule_names_;
  std::vector<std::uint32_t> slots_;  // open addressing, at most half full
  std::vector<Expression> spine_;     // scratch of sequence()
  Expression any_text_ = nothing;
};

inline Expression Expressions::intern(const Node& made, std::span<const Expression> parts) {
  std::size_t slot = hash(made, parts) & (slots_.size() - 1);
  for (; slots_[slot] != none; slot = (slot + 1) & (slots_.size() - 1)) {
    if (equals(nodes_[slots_[slot]], made, parts)) return slots_[slot];
  }
  deadline_.check();
  if (nodes_.size() >= limits_.states) fail_limit(text("more than ", limits_.states, " expressions"));
  if (memory() > limits_.memory) fail_limit(text("more than ", limits_.memory, " bytes"));
  const auto index = static_cast<Expression>(nodes_.size());
  nodes_.push_back(made);
  if (made.kind == Kind::either || made.kind == Kind::both) {
    nodes_[index].a = static_cast<std::uint32_t>(lists_.size());
    nodes_[index].b = static_cast<std::uint32_t>(parts.size());
    lists_.insert(lists_.end(), parts.begin(), parts.end());
  }
  slots_[slot] = index;
  if (nodes_.size() * 2 > slots_.size()) {
    slots_.assign(slots_.size() * 2, none);
    for (Expression e = 2; e < nodes_.size(); ++e) {
      const Node& node = nodes_[e];
      const bool listed = node.kind == Kind::either || node.kind == Kind::both;
      std::size_t place = hash(node, listed ? list(node) : std::span<const Expression>{}) & (slots_.size() - 1);
      while (slots_[place] != none) place = (place + 1) & (slots_.size() - 1);
      slots_[place] = e;
    }
  }
  return index;
}

/// Replaces parts of the given kind by their parts.
inline void Expressions::flatten(Kind kind, std::vector<Expression>& parts) const {
  for (std::size_t i = 0; i < parts.size();) {
    const Node& node = nodes_[parts[i]];
    if (node.kind != kind) {
      ++i;
      continue;
    }
    parts[i] = parts.back();
    parts.pop_back();
    const auto inner = list(node);
    parts.insert(parts.end(), inner.begin(), inner.end());
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
}

/// Of `x{0,m} y` and `x{0,n} y`, the longer one contains the other.
inline void Expressions::join_repeats(std::vector<Expression>& parts) {
  struct Repeat {
    Expression repeated, behind;
    std::uint32_t most;
    Expression part;
  };
  std::vector<Repeat> repeats;
  for (const Expression part : parts) {
    const Node& node = nodes_[part];
    const Node& head = node.kind == Kind::sequence ? nodes_[node.a] : node;
    if (head.kind != Kind::repeat || head.least != 0) continue;
    repeats.push_back({head.a, node.kind == Kind::sequence ? node.b : empty, head.most, part});
  }
  if (repeats.size() < 2) return;
  std::sort(repeats.begin(), repeats.end(), [](const Repeat& x, const Repeat& y) {
    return std::tie(x.repeated, x.behind, x.most) < std::tie(y.repeated, y.behind, y.most);
  });
  for (std::size_t i = 0; i + 1 < repeats.size(); ++i) {
    if (repeats[i].repeated == repeats[i + 1].repeated && repeats[i].behind == repeats[i + 1].behind) {
      std::erase(parts, repeats[i].part);
    }
  }
}

/// Beside any text before y, other texts before any text before y add nothing.
inline void Expressions::remove_contained(std::vector<Expression>& parts) {
  const auto is_any = [this](Expression part) {
    const Node& node = nodes_[part];
    return part == any_text_ || (node.kind == Kind::sequence && node.a == any_text_);
  };
  std::vector<Expression> wide;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(wide), is_any);
  if (wide.empty()) return;
  const auto contained = [&](Expression part) {
    if (nodes_[part].text && std::find(wide.begin(), wide.end(), any_text_) != wide.end()) return part != any_text_;
    for (Expression rest = part; nodes_[rest].kind == Kind::sequence && nodes_[nodes_[rest].a].text;) {
      rest = nodes_[rest].b;
      if (std::find(wide.begin(), wide.end(), rest) != wide.end()) return true;
    }
    return false;
  };
  std::erase_if(parts, contained);
}

inline Expression Expressions::either(std::vector<Expression> parts) {
  flatten(Kind::either, parts);
  if (!parts.empty() && parts.front() == nothing) parts.erase(parts.begin());
  // One set of bytes; repetitions of the same expression from 0 are one.
  ByteSet joined;
  std::size_t kept = 0, sets = 0;
  Expression only = nothing;
  bool has_empty = false, nullable_part = false;
  for (const Expression part : parts) {
    const Node& node = nodes_[part];
    if (node.kind == Kind::empty_text) {
      has_empty = true;
    } else if (node.kind == Kind::bytes) {
      joined |= set(node);
      only = part;
      ++sets;
    } else {
      nullable_part = nullable_part || node.nullable;
      parts[kept++] = part;
    }
  }
  parts.resize(kept);
  if (sets > 0) parts.push_back(sets == 1 ? only : bytes(joined));
  // An empty alternative stays beside rules, which may turn out not to be nullable.
  if (has_empty && !nullable_part) parts.push_back(empty);
  if (parts.size() > 1) join_repeats(parts);
  if (parts.size() > 1 && any_text_ != nothing) remove_contained(parts);
  if (parts.empty()) return nothing;
  if (parts.size() == 1) return parts.front();
  if (parts.size() > limits_.alternatives) fail_limit(text("more than ", limits_.alternatives, " alternatives"));
  std::sort(parts.begin(), parts.end());
  Node made{.kind = Kind::either, .text = true};
  for (const Expression part : parts) {
    made.nullable = made.nullable || nodes_[part].nullable;
    made.regular = made.regular && nodes_[part].regular;
    made.text = made.text && nodes_[part].text;
  }
  return intern(made, parts);
}

inline Expression Expressions::both(std::vector<Expression> parts) {
  flatten(Kind::both, parts);
  if (!parts.empty() && parts.front() == nothing) return nothing;
  const Expression any = complement(nothing);
  std::erase(parts, any);
  if (parts.empty()) return any;
  if (parts.size() == 1) return parts.front();
  Node made{.kind = Kind::both, .nullable = true};
  for (const Expression part : parts) {
    const Node& node = nodes_[part];
    made.nullable = made.nullable && node.nullable;
    made.text = made.text || node.text;
    if (node.kind == Kind::complement && std::binary_search(parts.begin(), parts.end(), node.a)) return nothing;
  }
  if (parts.front() == empty) return made.nullable ? empty : nothing;
  return intern(made, parts);
}

}}}
