// Masks: which tokens of a vocabulary may follow. A walk over the tree of tokens skips whatever an expression refuses.
// Inside of texts that accept nearly everything, most tokens are decided beforehand: see heavy().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "slm/grammar/automaton.hpp"
#include "slm/grammar/compiled.hpp"
#include "slm/grammar/trie_state.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

class Masks {
 public:
  Masks(Expressions& expressions, Automaton& automaton, Expression json_character, const TrieState& trie)
      : expressions_(expressions),
        automaton_(automaton),
        json_character_(json_character),
        quote_(expressions.byte('"')),
        trie_(trie),
        path_(trie.deepest + std::size_t{1}) {}

  const TrieState& trie() const { return trie_; }
  std::size_t memory() const { return (masks_.size() + leaves_.size()) * trie_.words() * sizeof(std::uint64_t); }

  /// The ordinary tokens that may follow; the reference holds until the next call.
  const Bits& of(Expression state) {
    const auto known = masks_.find(state);
    if (known != masks_.end()) return known->second;
    if (memory() > expressions_.limits().memory / 2) {
      masks_.clear();
      leaves_.clear();
    }
    Bits bits(trie_.words());
    seen_.clear();
    light_.clear();
    add(state, bits);
    const Expression rest = expressions_.either(light_);
    if (rest != nothing) walk(rest, 0, static_cast<std::uint32_t>(trie_.nodes.size()), 0, bits);
    return masks_.insert_or_assign(state, std::move(bits)).first->second;
  }

 private:
  static constexpr int deepest = 2000;
  static constexpr unsigned heavy_bytes = 64;  // bytes that a heavy expression accepts

  struct Leaf {
    Bits bits;                         // tokens inside of the leaf
    std::vector<std::uint32_t> exits;  // nodes where it may end, with nodes below
  };

  /// Splits the alternatives of a state: heavy leaves at once, others into light_.
  void add(Expression e, std::span<std::uint64_t> bits) {
    if (!seen_.insert(e).second) return;
    if (depth_ > deepest) fail_limit("depth of an expression");
    struct Level {
      int& depth;
      explicit Level(int& of) : depth(of) { ++depth; }
      ~Level() { --depth; }
    } level(depth_);
    const Node node = expressions_.node(e);
    const bool sequence = node.kind == Kind::sequence;
    const Expression behind = sequence ? node.b : empty;
    const Node head = sequence ? expressions_.node(node.a) : node;
    switch (head.kind) {
      case Kind::either: {
        const auto list = expressions_.list(head);
        const std::vector<Expression> parts(list.begin(), list.end());
        for (const Expression part : parts) add(expressions_.sequence(part, behind), bits);
        return;
      }
      case Kind::rule: return add(expressions_.sequence(expressions_.rules()[head.a], behind), bits);
      case Kind::repeat: {
        if (head.regular) break;
        const std::uint32_t most = head.most == unlimited ? unlimited : head.most - 1;
        const Expression rest = expressions_.repeat(head.a, head.least == 0 ? 0 : head.least - 1, most);
        add(expressions_.sequence({head.a, rest, behind}), bits);
        if (head.nullable) add(behind, bits);
        return;
      }
      case Kind::leaf: {
        const Expression leaf = sequence ? node.a : e;
        if (!is_heavy(leaf)) break;
        heavy(leaf, behind, bits);
        if (head.nullable && behind != empty) add(behind, bits);
        return;
      }
      default: break;
    }
    light_.push_back(e);
  }

  bool is_heavy(Expression e) {
    unsigned bytes = 0;
    for (unsigned byte_class = 0; byte_class < automaton_.classes(); ++byte_class) {
      if (automaton_.step_class(e, byte_class) != nothing) bytes += automaton_.class_size(byte_class);
    }
    return bytes >= heavy_bytes;
  }

  void heavy(Expression leaf, Expression behind, std::span<std::uint64_t> bits) {
    if (const auto string = json_string(leaf)) return in_string(*string, leaf, behind, bits);
    const Leaf& known = leaf_of(leaf);
    unite(bits, known.bits);
    if (behind == empty) return;
    for (const std::uint32_t exit : known.exits) {
      walk(behind, exit + 1, trie_.nodes[exit].end, trie_.nodes[exit].depth, bits);
    }
  }

  const Leaf& leaf_of(Expression leaf) {
    const auto known = leaves_.find(leaf);
    if (known != leaves_.end()) return known->second;
    Leaf made{Bits(trie_.words()), {}};
    const auto nodes = static_cast<std::uint32_t>(trie_.nodes.size());
    each_reached(leaf, 0, nodes, 0, [&](std::uint32_t i, const TrieNode& node, Expression next) {
      trie_.each_token(node, [&](Token token) { set_bit(made.bits, token); });
      if (node.end > i + 1 && expressions_.nullable(next)) made.exits.push_back(i);
    });
    return leaves_.emplace(leaf, std::move(made)).first->second;
  }

  /// The rest of a JSON string: least to most characters, without the texts `except`, and the quote.
  struct JsonString {
    std::uint32_t least, most;
    Expression except;  // or nothing
  };

  std::optional<JsonString> json_string(Expression leaf) const {
    const Node whole = expressions_.node(expressions_.node(leaf).a);
    if (json_character_ == nothing || whole.kind != Kind::sequence || whole.b != quote_) return std::nullopt;
    const Node content = expressions_.node(whole.a);
    if (content.kind == Kind::repeat && content.a == json_character_) {
      if (content.most != unlimited && content.most < trie_.longest_counted &&
          content.most + std::size_t{1} >= trie_.strings.inside.size()) {
        return std::nullopt;
      }
      return JsonString{content.least, content.most, nothing};
    }
    if (content.kind != Kind::both || content.b != 2) return std::nullopt;
    const auto parts = expressions_.list(content);
    for (std::size_t i = 0; i < 2; ++i) {
      const Node any = expressions_.node(parts[i]), other = expressions_.node(parts[1 - i]);
      if (any.kind == Kind::repeat && any.a == json_character_ && any.least == 0 && any.most == unlimited &&
          other.kind == Kind::complement) {
        return JsonString{0, unlimited, other.a};
      }
    }
    return std::nullopt;
  }

  void in_string(const JsonString& string, Expression leaf, Expression behind, std::span<std::uint64_t> bits) {
    const auto& tokens = trie_.strings;
    const std::size_t most = std::min<std::size_t>(string.most, tokens.inside.size() - 1);
    removed_.clear();
    if (string.except == nothing) {
      unite(bits, tokens.inside[most]);
    } else {
      Bits inside = tokens.inside[most];
      remove_exceptions(leaf, inside);
      unite(bits, inside);
    }
    std::size_t next_removed = 0;
    for (const StringTokens::Closing& closing : tokens.closings) {
      if (closing.characters < string.least || closing.characters > string.most) continue;
      while (next_removed < removed_.size() && removed_[next_removed].second <= closing.node) ++next_removed;
      if (next_removed < removed_.size() && removed_[next_removed].first <= closing.node) continue;
      const TrieNode& node = trie_.nodes[closing.node];
      trie_.each_token(node, [&](Token token) { set_bit(bits, token); });
      if (behind != empty) walk(behind, closing.node + 1, node.end, node.depth, bits);
    }
  }

  /// Compares a string with exceptions to one without, where they differ.
  void remove_exceptions(Expression leaf, std::span<std::uint64_t> inside) {
    const Expression any = expressions_.repeat(json_character_, 0, unlimited);
    std::vector<Expression> all(path_.size());
    path_[0] = leaf;
    all[0] = expressions_.leaf(expressions_.sequence(any, quote_));
    for (std::uint32_t i = 0; i < trie_.nodes.size();) {
      const TrieNode& node = trie_.nodes[i];
      const Expression with = automaton_.step(all[node.depth - 1], node.byte);
      const Expression without = with == nothing ? nothing : automaton_.step(path_[node.depth - 1], node.byte);
      if (with == without) {
        i = node.end;
      } else if (without == nothing) {
        for (std::uint32_t below = i; below < node.end; ++below) {
          trie_.each_token(trie_.nodes[below], [&](Token token) { clear_bit(inside, token); });
        }
        removed_.emplace_back(i, node.end);
        i = node.end;
      } else {
        path_[node.depth] = without;
        all[node.depth] = with;
        ++i;
      }
    }
  }

  /// Calls use(i, node, expression after it) for the nodes of [begin, end) that the automaton reaches. They are below a
  /// node of the given depth, where `state` begins.
  template <class Use>
  void each_reached(Expression state, std::uint32_t begin, std::uint32_t end, std::uint32_t depth, Use use) {
    path_[depth] = state;
    for (std::uint32_t i = begin; i < end;) {
      const TrieNode& node = trie_.nodes[i];
      const Expression next = automaton_.step(path_[node.depth - 1], node.byte);
      if (next == nothing) {
        i = node.end;
        continue;
      }
      path_[node.depth] = next;
      use(i, node, next);
      ++i;
    }
  }

  /// Adds the tokens of those nodes.
  void walk(Expression state, std::uint32_t begin, std::uint32_t end, std::uint32_t depth,
            std::span<std::uint64_t> bits) {
    expressions_.check_time();
    each_reached(state, begin, end, depth, [&](std::uint32_t, const TrieNode& node, Expression) {
      trie_.each_token(node, [&](Token token) { set_bit(bits, token); });
    });
  }

  Expressions& expressions_;
  Automaton& automaton_;
  Expression json_character_, quote_;
  const TrieState& trie_;
  std::vector<Expression> path_;  // states by depth
  std::unordered_map<Expression, Bits> masks_;
  std::unordered_map<Expression, Leaf> leaves_;
  std::unordered_set<Expression> seen_;
  std::vector<Expression> light_;
  int depth_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> removed_;
};

}}}
