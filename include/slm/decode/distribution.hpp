// A probability distribution over the tokens that survived processing, as a sparse list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/core/types.hpp"

namespace slm {

/// Tokens in ascending order with their probabilities, each above 0, in sum 1 (up to rounding). Every token that is
/// not listed has probability 0. Also holds unnormalised weights where a function says so.
struct Distribution {
  std::vector<Token> ids;
  std::vector<double> probabilities;  // [ids.size()]

  void clear() {
    ids.clear();
    probabilities.clear();
  }

  void reserve(std::size_t tokens) {
    ids.reserve(tokens);
    probabilities.reserve(tokens);
  }

  /// `token` must be above all ids added before.
  void add(Token token, double probability) {
    ids.push_back(token);
    probabilities.push_back(probability);
  }

  std::size_t size() const { return ids.size(); }

  double of(Token token) const {
    const auto found = std::lower_bound(ids.begin(), ids.end(), token);
    return found == ids.end() || *found != token ? 0.0 : probabilities[static_cast<std::size_t>(found - ids.begin())];
  }

  double total() const {
    double sum = 0;
    for (const double probability : probabilities) sum += probability;
    return sum;
  }
};

/// Calls visit(token, scale * p(token) - q(token)) for every token of p where that difference is above 0.
template <class Visit>
void for_each_excess(double scale, const Distribution& p, const Distribution& q, Visit&& visit) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    while (at < q.size() && q.ids[at] < p.ids[i]) ++at;
    const double drafted = at < q.size() && q.ids[at] == p.ids[i] ? q.probabilities[at] : 0.0;
    const double excess = scale * p.probabilities[i] - drafted;
    if (excess > 0) visit(p.ids[i], excess);
  }
}

}  // namespace slm
