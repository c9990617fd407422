// Makes the tables of a Matcher from its pattern.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/split/matcher.hpp"
#include "slm/text/split/parser.hpp"
#include "slm/text/split/program.hpp"

namespace slm { inline namespace v0_1 { namespace split {

// Limits of the tables; the published patterns stay far below all of them.
inline constexpr std::size_t most_classes = 250;
inline constexpr std::size_t most_automaton_states = 8192;
inline constexpr std::size_t most_table_entries = std::size_t{1} << 22;  // of two bytes, in each table
inline constexpr std::size_t most_work = 100'000'000;                    // visits of states

class MatcherBuilder {
 public:
  MatcherBuilder(std::string_view pattern, std::string_view place) : errors_{std::string{place}, pattern} {
    matcher_ = std::make_shared<Matcher>();
    matcher_->pattern_ = pattern;
  }

  std::shared_ptr<const Matcher> build() {
    program_ = ProgramWriter(Parser(errors_).parse(), errors_).write();
    divide_characters();
    divide_kinds();
    order_states();
    make_backward();
    make_forward();
    return matcher_;
  }

 private:
  using State = Program::State;
  using Kind = State::Kind;
  using Bits = std::vector<std::uint64_t>;  // of states

  static bool has(const Bits& bits, std::size_t index) { return bits[index / 64] >> (index % 64) & 1; }
  static void set(Bits& bits, std::size_t index) { bits[index / 64] |= std::uint64_t{1} << (index % 64); }

  void spend(std::size_t visits) {
    work_ += visits;
    if (work_ > most_work) errors_.fail("needs more work than a pattern may");
  }

  /// Where the bits are in the list; they are added where they are not.
  static std::size_t number_in(std::vector<Bits>& list, const Bits& bits) {
    const auto known = std::find(list.begin(), list.end(), bits);
    const auto number = static_cast<std::size_t>(known - list.begin());
    if (known == list.end()) list.push_back(bits);
    return number;
  }

  std::uint32_t set_index(const CharSet& wanted) {
    const auto known = std::find(program_.sets.begin(), program_.sets.end(), wanted);
    const auto index = static_cast<std::uint32_t>(known - program_.sets.begin());
    if (known == program_.sets.end()) program_.sets.push_back(wanted);
    return index;
  }

  bool uses(Syntax::Kind edge) const {
    return std::any_of(program_.states.begin(), program_.states.end(),
                       [edge](const State& state) { return state.kind == Kind::edge && state.edge == edge; });
  }

  /// Numbers the classes of characters that belong to the same sets.
  void divide_characters() {
    if (uses(Syntax::Kind::word_edge)) words_ = set_index(plain_word_set());
    if (uses(Syntax::Kind::line_start) || uses(Syntax::Kind::line_end)) lines_ = set_index(CharSet({{'\n', '\n'}}));
    const std::size_t sets = program_.sets.size();
    std::vector<std::uint64_t> borders{sets, std::uint64_t{CharSet::last_code + 1} << 32 | sets};  // code, then set
    for (std::size_t index = 0; index < sets; ++index) {
      for (const auto& range : program_.sets[index].ranges()) {
        borders.push_back(std::uint64_t{range.first} << 32 | index);
        borders.push_back(std::uint64_t{range.last + 1} << 32 | index);
      }
    }
    std::sort(borders.begin(), borders.end());
    const auto code_of = [&](std::size_t border) { return static_cast<std::size_t>(borders[border] >> 32); };
    Bits member(sets / 64 + 1);
    std::vector<std::uint8_t> classes(CharSet::last_code + 1);
    for (std::size_t i = 0; code_of(i) <= CharSet::last_code;) {
      const std::size_t begin = code_of(i);
      for (; code_of(i) == begin; ++i) {
        const auto index = static_cast<std::uint32_t>(borders[i]);
        if (index != sets) member[index / 64] ^= std::uint64_t{1} << (index % 64);
      }
      const std::size_t number = number_in(members_, member);
      if (number == most_classes) errors_.fail("distinguishes too many classes of characters");
      std::fill(classes.data() + begin, classes.data() + code_of(i), static_cast<std::uint8_t>(number));
    }
    std::copy_n(classes.begin(), matcher_->ascii_.size(), matcher_->ascii_.begin());
    std::vector<std::uint8_t>& pages = matcher_->pages_;
    for (std::size_t begin = 0; begin < classes.size(); begin += 256) {
      std::size_t known = pages.size();  // the newest one first: neighbours are alike
      while (known > 0 && std::memcmp(pages.data() + known - 256, classes.data() + begin, 256) != 0) known -= 256;
      if (known == 0) {
        pages.resize(pages.size() + 256);
        std::memcpy(pages.data() + pages.size() - 256, classes.data() + begin, 256);
        known = pages.size();
      }
      matcher_->page_of_.push_back(static_cast<std::uint16_t>(known / 256 - 1));
    }
    matcher_->class_bits_ = static_cast<int>(std::bit_width(members_.size() - 1));
  }

  /// Numbers the kinds of characters before a position that the edges of the pattern distinguish.
  void divide_kinds() {
    std::vector<std::uint32_t> asked;
    bool asks = false;
    for (const State& state : program_.states) {
      if (state.kind != Kind::edge) continue;
      asks = asks || state.edge != Syntax::Kind::line_end;
      if (state.edge == Syntax::Kind::word_edge) asked.push_back(words_);
      if (state.edge == Syntax::Kind::line_start) asked.push_back(lines_);
      if (state.edge == Syntax::Kind::behind) asked.push_back(state.set);
    }
    const std::size_t start = members_.size();
    if (!asks) {
      before_ = {start};
      return;
    }
    std::vector<Bits> kinds;
    for (std::size_t number = 0; number < start; ++number) {
      Bits kind(program_.sets.size() / 64 + 1);
      for (const std::uint32_t index : asked) {
        if (has(members_[number], index)) set(kind, index);
      }
      matcher_->kinds_.push_back(static_cast<std::uint8_t>(number_in(kinds, kind)));
      if (kinds.size() > before_.size()) before_.push_back(number);
    }
    matcher_->kinds_.push_back(static_cast<std::uint8_t>(before_.size()));
    before_.push_back(start);
    matcher_->kind_bits_ = static_cast<int>(std::bit_width(before_.size() - 1));
  }

  void order_states() {
    unread_.resize(static_cast<std::size_t>(program_.looks) + 1);
    for (std::uint32_t index = 0; index < program_.states.size(); ++index) {
      const State& state = program_.states[index];
      if (state.kind == Kind::set) {
        reading_.push_back(index);
      } else if (state.kind != Kind::accept) {
        unread_[static_cast<std::size_t>(state.look)].push_back(index);
      }
    }
  }

  /// Whether the place between two classes is an edge; members_.size() stands for the start and the end of the text.
  bool is_edge(const State& state, std::size_t before, std::size_t behind) const {
    const std::size_t outside = members_.size();
    const auto in = [&](std::size_t number, std::uint32_t index) {
      return number != outside && has(members_[number], index);
    };
    switch (state.edge) {
      case Syntax::Kind::word_edge: return (in(before, words_) != in(behind, words_)) != state.negative;
      case Syntax::Kind::line_start: return before == outside || (in(before, lines_) && behind != outside);
      case Syntax::Kind::line_end: return behind == outside || in(behind, lines_);
      case Syntax::Kind::text_start: return before == outside;
      case Syntax::Kind::text_end: return behind == outside;
      default: return in(before, state.set) != state.negative;
    }
  }

  /// Adds those states that match without reading a character, from the innermost look-ahead to the pattern itself.
  void close(Bits& bits, std::size_t before, std::size_t behind) {
    set(bits, 0);
    for (std::size_t look = unread_.size(); look-- > 0;) {
      for (bool changed = true; changed;) {
        changed = false;
        spend(unread_[look].size());
        for (const std::uint32_t index : unread_[look]) {
          const State& state = program_.states[index];
          if (has(bits, index)) continue;
          const bool matches = state.kind == Kind::branch  ? has(bits, state.next) || has(bits, state.other)
                               : !has(bits, state.next)    ? false
                               : state.kind == Kind::ahead ? has(bits, state.other) != state.negative
                                                           : is_edge(state, before, behind);
          if (!matches) continue;
          set(bits, index);
          changed = true;
        }
      }
    }
  }

  /// The automaton's state of these bits, added where there is none yet.
  std::uint16_t number_of(const Bits& bits) {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : bits) hash = (hash ^ word ^ hash >> 31) * 0x9E3779B97F4A7C15u;
    std::size_t slot = static_cast<std::size_t>(hash >> 32) % numbers_.size();
    while (numbers_[slot] != 0 && automaton_[numbers_[slot] - 1u] != bits) slot = (slot + 1) % numbers_.size();
    if (numbers_[slot] == 0) {
      if (automaton_.size() == most_automaton_states) errors_.fail("needs too many states");
      automaton_.push_back(bits);
      numbers_[slot] = static_cast<std::uint16_t>(automaton_.size());
    }
    return static_cast<std::uint16_t>(numbers_[slot] - 1);
  }

  void make_backward() {
    const std::size_t outside = members_.size(), words = program_.states.size() / 64 + 1;
    for (const std::size_t before : before_) {
      Bits bits(words);
      close(bits, before, outside);
      matcher_->ends_.push_back(number_of(bits));
    }
    const std::size_t row = std::size_t{1} << (matcher_->class_bits_ + matcher_->kind_bits_);
    std::vector<std::uint32_t> leading;  // those that match if the character is one of theirs
    for (std::size_t number = 0; number < automaton_.size(); ++number) {
      if ((number + 1) * row > most_table_entries) errors_.fail("needs too large a table");
      matcher_->backward_.resize((number + 1) * row);
      leading.clear();
      spend(reading_.size());
      for (const std::uint32_t index : reading_) {
        if (has(automaton_[number], program_.states[index].next)) leading.push_back(index);
      }
      for (std::size_t kind = 0; kind < before_.size(); ++kind) {
        for (std::size_t behind = 0; behind < outside; ++behind) {
          Bits bits(words);
          spend(leading.size() + words);
          for (const std::uint32_t index : leading) {
            if (has(members_[behind], program_.states[index].set)) set(bits, index);
          }
          close(bits, before_[kind], behind);
          const std::uint16_t next = number_of(bits);
          matcher_->backward_[number * row + (kind << matcher_->class_bits_) + behind] = next;
          before_text_.resize(automaton_.size());
          before_text_[next] = true;
        }
      }
    }
  }

  /// Points are the starts of the pattern's remainders: of all of it (0), and behind each character.
  void make_forward() {
    std::vector<std::uint32_t> points{program_.start};
    std::vector<std::uint16_t> point_of(program_.states.size(), Matcher::none);
    point_of[program_.start] = 0;
    for (const std::uint32_t index : reading_) {
      const State& state = program_.states[index];
      if (state.look != 0 || point_of[state.next] != Matcher::none) continue;
      point_of[state.next] = static_cast<std::uint16_t>(points.size());
      points.push_back(state.next);
    }
    const std::size_t row = matcher_->points_ = points.size();
    if (automaton_.size() * row > most_table_entries) errors_.fail("needs too large a table");
    matcher_->forward_.assign(automaton_.size() * row, Matcher::none);
    matcher_->covers_ = true;
    for (std::size_t number = 0; number < automaton_.size(); ++number) {
      for (std::size_t point = 0; point < points.size(); ++point) {
        std::uint16_t& entry = matcher_->forward_[number * row + point];
        if (has(automaton_[number], points[point])) {
          const State& reached = program_.states[first_match(points[point], automaton_[number])];
          entry = reached.kind == Kind::accept ? Matcher::accepted : point_of[reached.next];
        }
        if (before_text_[number] && point == 0 && entry >= Matcher::accepted) matcher_->covers_ = false;
      }
    }
  }

  /// The accepting or reading state that the first branches lead to which match. A loop that comes back without having
  /// read anything ends.
  std::uint32_t first_match(std::uint32_t from, const Bits& matching) {
    waiting_.assign(1, {from, 0});
    loops_.resize(1);
    tried_.clear();
    while (!waiting_.empty()) {
      const auto [index, inside] = waiting_.back();
      waiting_.pop_back();
      spend(1);
      if (!has(matching, index)) continue;
      const State& state = program_.states[index];
      if (state.kind == Kind::accept || state.kind == Kind::set) return index;
      if (state.kind != Kind::branch) {
        waiting_.push_back({state.next, inside});
        continue;
      }
      if (inside != 0) {
        const std::uint64_t way = std::uint64_t{index} << 32 | inside;
        spend(tried_.size() / 8);
        if (std::find(tried_.begin(), tried_.end(), way) != tried_.end()) continue;
        tried_.push_back(way);
      }
      if (!state.loops) {
        waiting_.push_back({state.other, inside});
        waiting_.push_back({state.next, inside});
        continue;
      }
      std::uint32_t begun = inside;  // the same loop, if the way here has begun it
      while (begun != 0 && loops_[begun].state != index) begun = loops_[begun].outer;
      const Branch exit{state.lazy ? state.next : state.other, begun != 0 ? loops_[begun].outer : inside};
      if (begun != 0) {
        waiting_.push_back(exit);
        continue;
      }
      const Branch body{state.lazy ? state.other : state.next, begun_loop(index, inside)};
      waiting_.push_back(state.lazy ? body : exit);
      waiting_.push_back(state.lazy ? exit : body);
    }
    return from;  // not reached: a state that matches leads to one of those
  }

  /// The number of a loop that was begun inside of another.
  std::uint32_t begun_loop(std::uint32_t state, std::uint32_t outer) {
    for (std::uint32_t number = 1; number < loops_.size(); ++number) {
      if (loops_[number].state == state && loops_[number].outer == outer) return number;
    }
    loops_.push_back({state, outer});
    spend(loops_.size());
    return static_cast<std::uint32_t>(loops_.size() - 1);
  }

  struct Branch {
    std::uint32_t state;
    std::uint32_t inside;  // the innermost loop that was begun at this place of the text; 0: none
  };
  struct Loop {
    std::uint32_t state, outer;
  };

  PatternErrors errors_;
  std::shared_ptr<Matcher> matcher_;
  Program program_;
  std::size_t work_ = 0;
  std::uint32_t words_ = 0, lines_ = 0;             // the sets that \b, and ^ and $, ask for
  std::vector<Bits> members_;                       // by class: the sets that it belongs to
  std::vector<std::size_t> before_;                 // by kind: a class of it, or members_.size() for the start
  std::vector<std::uint32_t> reading_;              // the states that read a character
  std::vector<std::vector<std::uint32_t>> unread_;  // the others, by look-ahead
  std::vector<Bits> automaton_;                     // by number: the states that match
  std::vector<std::uint16_t> numbers_ = std::vector<std::uint16_t>(2 * most_automaton_states);  // 1 + number, by hash
  std::vector<bool> before_text_;  // by number: whether it occurs before a character
  // What first_match() works with.
  std::vector<Branch> waiting_;
  std::vector<Loop> loops_;
  std::vector<std::uint64_t> tried_;
};

SLM_INLINE std::shared_ptr<const Matcher> Matcher::compile(std::string_view pattern, std::string_view place) {
  return MatcherBuilder(pattern, place).build();
}

}}}
