// SuffixAutomaton: all substrings of a growing text, and the latest end of each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// Blumer's automaton: amortised constant time per token; n tokens need at most 2n states and 3n edges. A state
/// represents the substrings with the same set of end positions: its longest one, and the suffixes of that which are
/// longer than the longest one of its link.
class SuffixAutomaton {
 public:
  /// longest: maximum match length in tokens. Updating the latest ends costs up to that many steps per token.
  explicit SuffixAutomaton(int longest) : longest_(std::max(longest, 0)) { clear(); }

  /// A match of `length` tokens that ends before index `end` of the text.
  struct Match {
    int length = 0;
    std::size_t end = 0;
  };

  /// State of a reader: its last `length` tokens are the longest suffix of its input that occurs in the text.
  struct Cursor {
    std::uint32_t state = root;
    int length = 0;
  };

  std::span<const Token> text() const { return text_; }
  std::size_t states() const { return states_.size(); }
  std::size_t edges() const { return edges_.size(); }

  void clear() {
    text_.clear();
    states_.assign(1, State{});
    edges_.clear();
    std::fill(slots_.begin(), slots_.end(), none);
    last_ = root;
    end_ = {};
  }

  /// Appends a token. Returns the latest earlier occurrence of the longest suffix of the text that occurred before.
  Match append(Token token) {
    if (text_.size() == capacity_) grow();
    end_ = read(end_, token);
    const Match earlier = match(end_);
    extend(token);
    end_.state = holder(end_.state, end_.length);  // its state may have been split
    for (std::uint32_t state = end_.state; state != root; state = states_[state].link)
      states_[state].end = text_.size();
    return earlier;
  }

  Cursor read(Cursor at, Token token) const {
    std::uint32_t edge = find(at.state, token);
    while (edge == none && at.state != root) {
      at.state = states_[at.state].link;
      at.length = states_[at.state].length;
      edge = find(at.state, token);
    }
    if (edge == none) return {};
    at.length = std::min(at.length + 1, longest_);
    at.state = holder(edges_[edge].to, at.length);
    return at;
  }

  /// The latest occurrence of a cursor's match in the text.
  Match match(Cursor at) const { return {at.length, states_[at.state].end}; }

 private:
  static constexpr std::uint32_t root = 0, none = ~std::uint32_t{0};

  struct State {
    int length = 0;  // of its longest substring
    std::uint32_t link = none;
    std::uint32_t first_edge = none;
    std::size_t end = 0;  // latest end of its substrings of at most longest_ tokens
  };
  struct Edge {
    std::uint32_t from;
    Token token;
    std::uint32_t to;
    std::uint32_t next;  // next edge of the same state
  };

  /// The state, `state` or one on its link path, that contains the suffix of `length` tokens.
  std::uint32_t holder(std::uint32_t state, int length) const {
    while (state != root && states_[states_[state].link].length >= length) state = states_[state].link;
    return state;
  }

  void extend(Token token) {
    text_.push_back(token);
    const auto made = static_cast<std::uint32_t>(states_.size());
    states_.push_back({static_cast<int>(text_.size()), root, none, text_.size()});
    std::uint32_t from = last_;
    last_ = made;
    std::uint32_t edge = none;
    while (from != none && (edge = find(from, token)) == none) {
      add_edge(from, token, made);
      from = states_[from].link;
    }
    if (from == none) return;
    const std::uint32_t to = edges_[edge].to;
    if (states_[to].length == states_[from].length + 1) {
      states_[made].link = to;
      return;
    }
    // The shorter substrings of `to` now have one more end position than the others, so they form a new state.
    const auto split = static_cast<std::uint32_t>(states_.size());
    states_.push_back({states_[from].length + 1, states_[to].link, none, states_[to].end});
    for (std::uint32_t e = states_[to].first_edge; e != none; e = edges_[e].next) {
      add_edge(split, edges_[e].token, edges_[e].to);
    }
    for (; from != none && (edge = find(from, token)) != none && edges_[edge].to == to; from = states_[from].link) {
      edges_[edge].to = split;
    }
    states_[to].link = states_[made].link = split;
  }

  void add_edge(std::uint32_t from, Token token, std::uint32_t to) {
    const auto added = static_cast<std::uint32_t>(edges_.size());
    edges_.push_back({from, token, to, states_[from].first_edge});
    states_[from].first_edge = added;
    slots_[slot_of(from, token)] = added;
  }

  std::uint32_t find(std::uint32_t from, Token token) const {
    return slots_.empty() ? none : slots_[slot_of(from, token)];
  }

  /// Open-addressing hash table: returns the edge's slot, or the free slot for it.
  std::size_t slot_of(std::uint32_t from, Token token) const {
    const std::uint64_t key = std::uint64_t{from} << 32 | static_cast<std::uint32_t>(token);
    std::size_t slot = static_cast<std::size_t>(key * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1);
    while (slots_[slot] != none && (edges_[slots_[slot]].from != from || edges_[slots_[slot]].token != token)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  /// Allocates for twice the tokens, so that append() rarely allocates. On failure, nothing has changed.
  void grow() {
    const std::size_t capacity = std::max<std::size_t>(2 * capacity_, 256);
    text_.reserve(capacity);
    states_.reserve(2 * capacity);
    edges_.reserve(3 * capacity);
    slots_ = std::vector<std::uint32_t>(std::bit_ceil(4 * capacity), none);
    capacity_ = capacity;
    for (std::uint32_t edge = 0; edge < edges_.size(); ++edge) {
      slots_[slot_of(edges_[edge].from, edges_[edge].token)] = edge;
    }
  }

  int longest_;
  std::vector<Token> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> slots_;  // edges by state and token
  std::uint32_t last_ = root;         // the state of the whole text
  Cursor end_;                        // the longest suffix of the text that occurred before
  std::size_t capacity_ = 0;          // tokens that fit without allocation
};

}}
