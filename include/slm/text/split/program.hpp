// A split pattern as a nondeterministic automaton whose branches are ordered: the first that matches counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/text/split/syntax.hpp"

namespace slm { inline namespace v0_1 { namespace split {

inline constexpr std::size_t most_states = 5000;  // of a pattern with its counts written out

struct Program {
  struct State {
    enum class Kind : std::uint8_t {
      accept,  // state 0, the end of the pattern and of every look-ahead
      set,     // one character of `set`, then `next`
      branch,  // `next`, or else `other`
      ahead,   // `next`, if `other` matches from here; `negative`: if it does not
      edge,    // `next`, if the place is what `edge` says
    };
    Kind kind = Kind::accept;
    Syntax::Kind edge = Syntax::Kind::empty;
    bool negative = false;
    bool loops = false;  // branch: one of its ways leads back here
    bool lazy = false;   // branch that loops: `other` is that way, else `next` is
    int look = 0;        // number of enclosing look-aheads
    std::uint32_t set = 0;
    std::uint32_t next = 0, other = 0;
  };

  std::vector<State> states;
  std::vector<CharSet> sets;
  std::uint32_t start = 0;
  int looks = 0;  // the largest State::look
};

class ProgramWriter {
 public:
  ProgramWriter(Syntax syntax, const PatternErrors& errors) : syntax_(std::move(syntax)), errors_(errors) {}

  Program write() {
    program_.states.emplace_back();  // accept
    program_.start = emit(syntax_.root, 0);
    program_.sets = std::move(syntax_.sets);
    return std::move(program_);
  }

 private:
  using State = Program::State;
  using Kind = Syntax::Kind;

  std::uint32_t add(State state) {
    state.look = look_;
    program_.states.push_back(state);
    return static_cast<std::uint32_t>(program_.states.size() - 1);
  }

  std::uint32_t add_branch(std::uint32_t preferred, std::uint32_t other) {
    State state;
    state.kind = State::Kind::branch;
    state.next = preferred;
    state.other = other;
    return add(state);
  }

  /// The state that matches the node and continues with `next`.
  std::uint32_t emit(std::uint32_t index, std::uint32_t next) {
    const Syntax::Node& node = syntax_.nodes[index];
    if (++emitted_ > 20 * most_states || program_.states.size() > most_states) {
      errors_.at(node.position, text("repeats more than ", most_states, " states"));
    }
    State state;
    state.next = next;
    switch (node.kind) {
      case Kind::empty: return next;
      case Kind::set:
        state.kind = State::Kind::set;
        state.set = node.set;
        return add(state);
      case Kind::sequence:
        for (std::size_t i = node.children.size(); i-- > 0;) next = emit(node.children[i], next);
        return next;
      case Kind::alternatives: {
        std::uint32_t chosen = emit(node.children.back(), next);
        for (std::size_t i = node.children.size() - 1; i-- > 0;) {
          const std::uint32_t branch = emit(node.children[i], next);
          chosen = add_branch(branch, chosen);
        }
        return chosen;
      }
      case Kind::repeat: return emit_repeat(node, next);
      case Kind::ahead: return look_ahead(node.children[0], node.negative, next);
      default:
        state.kind = State::Kind::edge;
        state.edge = node.kind;
        state.negative = node.negative;
        state.set = node.set;
        return add(state);
    }
  }

  std::uint32_t look_ahead(std::uint32_t content, bool negative, std::uint32_t next) {
    State state;
    state.kind = State::Kind::ahead;
    state.negative = negative;
    state.next = next;
    program_.looks = std::max(program_.looks, ++look_);
    state.other = emit(content, 0);
    --look_;
    return add(state);
  }

  /// A possessive quantifier never ends before a character that it could take.
  std::uint32_t emit_repeat(const Syntax::Node& node, std::uint32_t next) {
    const std::uint32_t content = node.children[0];
    const bool lazy = node.greed == Syntax::Greed::lazy;
    const std::uint32_t early =
        node.greed == Syntax::Greed::possessive ? look_ahead(content, true, next) : next;  // the end before the maximum
    std::uint32_t entry = next;
    if (node.most == Syntax::endless) {
      State loop;
      loop.kind = State::Kind::branch;
      loop.loops = true;
      loop.lazy = lazy;
      entry = add(loop);
      const std::uint32_t body = emit(content, entry);
      program_.states[entry].next = lazy ? early : body;
      program_.states[entry].other = lazy ? body : early;
    } else {
      for (std::uint32_t i = node.least; i < node.most; ++i) {
        const std::uint32_t body = emit(content, entry);
        entry = lazy ? add_branch(early, body) : add_branch(body, early);
      }
    }
    for (std::uint32_t i = 0; i < node.least; ++i) entry = emit(content, entry);
    return entry;
  }

  Syntax syntax_;
  const PatternErrors& errors_;
  Program program_;
  int look_ = 0;
  std::size_t emitted_ = 0;
};

}}}
