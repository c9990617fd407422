// The textbook matcher of split patterns: tries one branch after the other. Slow, and short enough to be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/text/split/char_set.hpp"
#include "slm/text/split/syntax.hpp"
#include "slm/text/utf8.hpp"

namespace slm::testing {

class Backtracking {
 public:
  /// `steps`: how many branches one search may try.
  Backtracking(const split::Syntax& syntax, std::string_view text, std::size_t steps)
      : syntax_(syntax), text_(text), steps_(steps) {}

  /// The matches as the matcher reports them; none where a search takes too many steps.
  std::optional<std::vector<std::pair<std::size_t, std::size_t>>> matches() {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t position = 0; position <= text_.size();) {
      left_ = steps_;
      std::size_t end = 0;
      const bool matched = run(syntax_.root, position, [&](std::size_t place) {
        end = place;
        return true;
      });
      if (left_ == 0) return std::nullopt;
      if (matched && !(end == position && !found.empty() && found.back().second == position)) {
        found.emplace_back(position, end);
        position = end;
      } else if (position == text_.size()) {
        break;
      } else {
        utf8::next(text_, position);
      }
    }
    return found;
  }

 private:
  using Kind = split::Syntax::Kind;
  using Greed = split::Syntax::Greed;
  using Rest = std::function<bool(std::size_t)>;

  /// Whether the node matches from `position` on, and what follows it from there.
  bool run(std::uint32_t index, std::size_t position, const Rest& rest) {
    if (left_ == 0 || --left_ == 0) return false;
    const split::Syntax::Node& node = syntax_.nodes[index];
    switch (node.kind) {
      case Kind::empty: return rest(position);
      case Kind::set: return reads(node.set, position) && rest(behind(position));
      case Kind::sequence: return run_from(node, 0, position, rest);
      case Kind::alternatives:
        for (const std::uint32_t child : node.children) {
          if (run(child, position, rest)) return true;
        }
        return false;
      case Kind::repeat: return repeat(node, 0, position, rest);
      case Kind::ahead:
        return run(node.children[0], position, [](std::size_t) { return true; }) != node.negative && rest(position);
      case Kind::behind: return (position > 0 && reads(node.set, before(position))) != node.negative && rest(position);
      case Kind::word_edge:
        return (is_word(position > 0, before(position)) != is_word(position < text_.size(), position)) !=
                   node.negative &&
               rest(position);
      case Kind::line_start:
        return (position == 0 || (text_[position - 1] == '\n' && position < text_.size())) && rest(position);
      case Kind::line_end: return (position == text_.size() || text_[position] == '\n') && rest(position);
      case Kind::text_start: return position == 0 && rest(position);
      case Kind::text_end: return position == text_.size() && rest(position);
    }
    return false;
  }

  bool run_from(const split::Syntax::Node& node, std::size_t child, std::size_t position, const Rest& rest) {
    if (child == node.children.size()) return rest(position);
    return run(node.children[child], position,
               [&, child](std::size_t place) { return run_from(node, child + 1, place, rest); });
  }

  bool repeat(const split::Syntax::Node& node, std::uint32_t done, std::size_t position, const Rest& rest) {
    const std::uint32_t child = node.children[0];
    if (node.greed == Greed::possessive) {
      for (; done < node.most && reads(syntax_.nodes[child].set, position); ++done) position = behind(position);
      return done >= node.least && rest(position);
    }
    const auto again = [&] {
      return done < node.most && run(child, position, [&](std::size_t place) {
               const bool stands = node.most == split::Syntax::endless && done >= node.least && place == position;
               return stands ? rest(place) : repeat(node, done + 1, place, rest);
             });
    };
    if (done < node.least) return again();
    return node.greed == Greed::lazy ? rest(position) || again() : again() || rest(position);
  }

  bool reads(std::uint32_t set, std::size_t position) const {
    return position < text_.size() && syntax_.sets[set].contains(utf8::at(text_, position));
  }
  bool is_word(bool inside, std::size_t position) const {
    static const split::CharSet words = split::plain_word_set();
    return inside && words.contains(utf8::at(text_, position));
  }
  std::size_t behind(std::size_t position) const {
    utf8::next(text_, position);
    return position;
  }
  std::size_t before(std::size_t position) const { return position == 0 ? 0 : utf8::before(text_, position); }

  const split::Syntax& syntax_;
  std::string_view text_;
  std::size_t steps_, left_ = 0;
};

}  // namespace slm::testing
