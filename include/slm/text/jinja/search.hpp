// Finds a text in another one, in time that grows with the sum of their lengths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "slm/text/jinja/heap.hpp"

namespace slm { inline namespace v0_1 { namespace jinja {

/// Looks for `wanted` in texts. std::string_view::find may compare all of `wanted` at every place, which takes the
/// product of both lengths. For more than `direct` bytes this is the algorithm of Knuth, Morris and Pratt.
class Search {
 public:
  static constexpr std::size_t direct = 16;
  static constexpr std::size_t none = std::string_view::npos;

  Search(Heap& heap, std::string_view wanted, bool from_right = false)
      : heap_(heap), wanted_(wanted), from_right_(from_right) {
    if (wanted.size() <= direct) return;
    heap.spend(wanted.size() / 4);
    borders_.resize(wanted.size());
    for (std::size_t i = 1, border = 0; i < wanted.size(); ++i) {
      while (border > 0 && letter(i) != letter(border)) border = borders_[border - 1];
      border += letter(i) == letter(border) ? 1 : 0;
      borders_[i] = static_cast<std::uint32_t>(border);
    }
  }

  /// The first place in text[begin, end), or the last one for a search from the right; else `none`.
  std::size_t in(std::string_view text, std::size_t begin, std::size_t end) const {
    const std::string_view part = text.substr(begin, end - begin);
    if (wanted_.size() <= direct) {
      const std::size_t found = from_right_ ? part.rfind(wanted_) : part.find(wanted_);
      heap_.spend((found == none ? part.size() : from_right_ ? part.size() - found : found) / 8);
      return found == none ? none : begin + found;
    }
    std::size_t border = 0, read = 0;
    while (read < part.size() && border < wanted_.size()) {
      const char byte = part[from_right_ ? part.size() - 1 - read : read];
      while (border > 0 && byte != letter(border)) border = borders_[border - 1];
      border += byte == letter(border) ? 1 : 0;
      ++read;
    }
    heap_.spend(read / 4);
    if (border < wanted_.size()) return none;
    return from_right_ ? end - read : begin + read - wanted_.size();
  }
  std::size_t in(std::string_view text) const { return in(text, 0, text.size()); }

 private:
  char letter(std::size_t i) const { return wanted_[from_right_ ? wanted_.size() - 1 - i : i]; }

  Heap& heap_;
  std::string_view wanted_;
  bool from_right_;
  std::vector<std::uint32_t> borders_;  // lengths of the longest ends of wanted_'s beginnings that also begin it
};

}}}
