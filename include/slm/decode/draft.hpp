// Draft: the drafted tokens of a round, with the distributions that they were drawn from.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/distribution.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct Draft {
  std::vector<Token> tokens;    // [m]
  std::vector<Distribution> q;  // [m], or one scratch entry if the rule needs none

  /// For at most `most` tokens. support: size of a distribution; 0: none is needed.
  void reserve(std::size_t most, bool needs_distribution, std::size_t support) {
    tokens.clear();
    tokens.reserve(most + 1);
    q.resize(needs_distribution ? most + 1 : 1);
    for (Distribution& row : q) row.reserve(support);
  }

  /// Replaces it by proposals without distributions: each is certain.
  void assign(std::span<const Token> proposed, bool needs_distribution) {
    tokens.assign(proposed.begin(), proposed.end());
    for (std::size_t i = 0; needs_distribution && i < tokens.size(); ++i) {
      q[i].clear();
      q[i].add(tokens[i], 1);
    }
  }
};

}}}
