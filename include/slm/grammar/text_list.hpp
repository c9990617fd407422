// Lists of texts as expressions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "slm/grammar/expressions.hpp"

namespace slm { inline namespace v0_1 { namespace grammar {

/// One of several texts, as a tree of their common beginnings. The texts are sorted, without repetitions.
inline Expression one_of_sorted(Expressions& expressions, const std::vector<std::string>& texts) {
  struct Part {
    std::size_t begin, end, depth;  // texts that agree in `depth` bytes
    std::vector<Expression> forms;
    std::size_t entered;  // bytes of the path from the part above
  };
  if (texts.empty()) return nothing;
  std::vector<Part> open{{0, texts.size(), 0, {}, 0}};
  for (;;) {
    Part& part = open.back();
    expressions.check_time();
    if (part.begin < part.end && texts[part.begin].size() == part.depth) {
      part.forms.push_back(empty);
      ++part.begin;
      continue;
    }
    if (part.begin < part.end) {
      // The texts with the next byte of the first, as far as they agree.
      const std::string& first = texts[part.begin];
      std::size_t end = part.begin + 1;
      while (end < part.end && texts[end][part.depth] == first[part.depth]) ++end;
      const std::string& last = texts[end - 1];
      std::size_t depth = part.depth;
      while (depth < first.size() && first[depth] == last[depth]) ++depth;
      const Part inner{part.begin, end, depth, {}, depth - part.depth};
      part.begin = end;
      open.push_back(inner);
      continue;
    }
    const Expression whole = expressions.either(std::move(part.forms));
    const std::string_view path = std::string_view(texts[part.end - 1]).substr(part.depth - part.entered, part.entered);
    open.pop_back();
    const Expression behind = expressions.sequence(expressions.literal(path), whole);
    if (open.empty()) return behind;
    open.back().forms.push_back(behind);
  }
}

inline Expression one_of_texts(Expressions& expressions, std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return one_of_sorted(expressions, texts);
}

}}}
