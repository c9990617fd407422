// NamePattern: matches module names with keys of PEFT's rank_pattern and alpha_pattern.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// A name suffix that starts after a dot, or a regular expression of one, which must match to the end as in Python.
/// Supported: literals, `.`, `\d`, `\w`, `\s`, escaped punctuation, sets, groups, `|`, `*`, `+`, `?`, `^` at the
/// beginning and `$` at the end. All alternatives are followed in parallel, so matching takes at most the product of
/// the two lengths.
class NamePattern {
 public:
  static constexpr std::size_t longest = 2000;

  /// Returns nothing if the expression has other elements or is too long.
  static std::optional<NamePattern> parse(std::string_view source) {
    NamePattern pattern;
    if (source.size() > longest) return std::nullopt;
    if (source.starts_with('^')) pattern.from_beginning_ = true, source.remove_prefix(1);
    if (source.ends_with('$') && !source.ends_with("\\$")) source.remove_suffix(1);
    Parser parser{source, pattern.states_};
    const auto whole = parser.alternatives(0);
    if (!whole || parser.at != source.size()) return std::nullopt;
    pattern.states_.push_back({.kind = State::end});
    pattern.link(*whole, static_cast<int>(pattern.states_.size()) - 1);
    pattern.begin_ = whole->begin;
    return pattern;
  }

  /// Subtracts its work from `budget`; returns false when the budget is exhausted.
  bool matches(std::string_view name, std::int64_t& budget) const {
    std::vector<int> now, next;
    std::vector<std::size_t> seen(states_.size(), none);
    for (std::size_t at = 0; at <= name.size(); ++at) {
      if (at == 0 || (!from_beginning_ && name[at - 1] == '.')) reach(begin_, at, now, seen);
      budget -= static_cast<std::int64_t>(now.size()) + 1;
      if (budget < 0) return false;
      next.clear();
      for (const int index : now) {
        const State& state = states_[static_cast<std::size_t>(index)];
        if (state.kind == State::end && at == name.size()) return true;
        if (state.kind != State::byte || at == name.size()) continue;
        if (state.bytes.test(static_cast<unsigned char>(name[at]))) reach(state.next, at + 1, next, seen);
      }
      std::swap(now, next);
    }
    return false;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  static constexpr int nowhere = -1;

  struct State {
    enum Kind { byte, fork, end } kind = end;
    std::bitset<256> bytes = {};
    int next = nowhere, other = nowhere;  // other: second branch of a fork
  };

  /// A part of the expression: its first state, and its exits, each a state and one of its two branches.
  struct Part {
    int begin = nowhere;
    std::vector<std::pair<int, bool>> ends = {};
  };

  struct Parser {
    static constexpr int deepest = 32;

    std::string_view source;
    std::vector<State>& states;
    std::size_t at = 0;

    bool more() const { return at < source.size(); }
    int add(State state) {
      states.push_back(state);
      return static_cast<int>(states.size()) - 1;
    }
    void link(const Part& part, int to) {
      for (const auto& [state, other] : part.ends) {
        (other ? states[static_cast<std::size_t>(state)].other : states[static_cast<std::size_t>(state)].next) = to;
      }
    }

    std::optional<Part> alternatives(int depth) {
      std::optional<Part> all = sequence(depth);
      while (all && more() && source[at] == '|') {
        ++at;
        const std::optional<Part> second = sequence(depth);
        if (!second) return std::nullopt;
        all->begin = add({.kind = State::fork, .next = all->begin, .other = second->begin});
        all->ends.insert(all->ends.end(), second->ends.begin(), second->ends.end());
      }
      return all;
    }

    std::optional<Part> sequence(int depth) {
      const int nothing = add({.kind = State::fork});  // its second branch is unused
      Part all{nothing, {{nothing, false}}};
      while (more() && source[at] != '|' && source[at] != ')') {
        const std::optional<Part> part = repeated(depth);
        if (!part) return std::nullopt;
        link(all, part->begin);
        all.ends = part->ends;
      }
      return all;
    }

    std::optional<Part> repeated(int depth) {
      std::optional<Part> part = atom(depth);
      if (!part || !more()) return part;
      const char how = source[at];
      if (how != '*' && how != '+' && how != '?') return part;
      ++at;
      if (more() && source[at] == '?') ++at;  // the shortest or the longest match first: both accept the same names
      const int fork = add({.kind = State::fork, .next = part->begin});
      if (how != '?') {
        link(*part, fork);
        return Part{how == '*' ? fork : part->begin, {{fork, true}}};
      }
      part->begin = fork;
      part->ends.emplace_back(fork, true);
      return part;
    }

    std::optional<Part> atom(int depth) {
      const char what = source[at++];
      std::bitset<256> bytes;
      switch (what) {
        case '(': {
          if (source.substr(at).starts_with("?:")) at += 2;
          if (depth == deepest || !more() || source[at] == '?') return std::nullopt;
          const std::optional<Part> inner = alternatives(depth + 1);
          if (!inner || !more() || source[at] != ')') return std::nullopt;
          ++at;
          return inner;
        }
        case '.': bytes.set(); break;
        case '[':
          if (!set_of_bytes(bytes)) return std::nullopt;
          break;
        case '\\':
          if (!escaped(bytes)) return std::nullopt;
          break;
        case '*':
        case '+':
        case '?':
        case '{':
        case '}':
        case '^':
        case '$': return std::nullopt;
        default: bytes.set(static_cast<unsigned char>(what));
      }
      const int state = add({.kind = State::byte, .bytes = bytes});
      return Part{state, {{state, false}}};
    }

    bool escaped(std::bitset<256>& bytes) {
      if (!more()) return false;
      const char what = source[at++];
      const auto set = [&](char first, char last) {
        for (int byte = first; byte <= last; ++byte) bytes.set(static_cast<std::size_t>(byte));
      };
      if (what == 'd' || what == 'w') set('0', '9');
      if (what == 'w') set('a', 'z'), set('A', 'Z'), set('_', '_');
      if (what == 's') set('\t', '\r'), set(' ', ' ');
      if (what == 'd' || what == 'w' || what == 's') return true;
      const bool letter = (what >= 'a' && what <= 'z') || (what >= 'A' && what <= 'Z') || (what >= '0' && what <= '9');
      if (letter) return false;
      bytes.set(static_cast<unsigned char>(what));
      return true;
    }

    bool set_of_bytes(std::bitset<256>& bytes) {
      const bool all_but = more() && source[at] == '^';
      if (all_but) ++at;
      for (bool first = true; more() && (first || source[at] != ']'); first = false) {
        const char from = source[at++];
        if (from == '[') return false;
        if (from == '\\') {
          if (!escaped(bytes)) return false;
          continue;
        }
        if (source.substr(at).starts_with('-') && at + 1 < source.size() && source[at + 1] != ']') {
          const char to = source[at + 1];
          at += 2;
          if (to == '\\' || static_cast<unsigned char>(to) < static_cast<unsigned char>(from)) return false;
          for (int byte = static_cast<unsigned char>(from); byte <= static_cast<unsigned char>(to); ++byte)
            bytes.set(static_cast<std::size_t>(byte));
        } else {
          bytes.set(static_cast<unsigned char>(from));
        }
      }
      if (!more()) return false;
      ++at;
      if (all_but) bytes.flip();
      return true;
    }
  };

  void link(const Part& part, int to) { Parser{{}, states_}.link(part, to); }

  /// Adds a state, and all states reachable without a byte, to those reached before byte `at`.
  void reach(int first, std::size_t at, std::vector<int>& reached, std::vector<std::size_t>& seen) const {
    std::vector<int> open{first};
    while (!open.empty()) {
      const int index = open.back();
      open.pop_back();
      if (index == nowhere || seen[static_cast<std::size_t>(index)] == at) continue;
      seen[static_cast<std::size_t>(index)] = at;
      const State& state = states_[static_cast<std::size_t>(index)];
      if (state.kind != State::fork) {
        reached.push_back(index);
      } else {
        open.insert(open.end(), {state.next, state.other});
      }
    }
  }

  bool from_beginning_ = false;
  std::vector<State> states_;
  int begin_ = nowhere;
};

}}
