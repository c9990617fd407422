// A sparse probability distribution over the tokens that passed the sampling filters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// Tokens in ascending order with positive weights. A token's probability is its weight divided by the total; tokens
/// that are not listed have probability 0.
struct Distribution {
  std::vector<Token> ids;
  std::vector<double> weights;  // [ids.size()]
  double total = 0;             // sum of weights

  void clear() {
    ids.clear();
    weights.clear();
    total = 0;
  }

  void reserve(std::size_t tokens) {
    ids.reserve(tokens);
    weights.reserve(tokens);
  }

  /// `token` must be greater than all ids added before.
  void add(Token token, double weight) {
    ids.push_back(token);
    weights.push_back(weight);
    total += weight;
  }

  std::size_t size() const { return ids.size(); }

  double probability(std::size_t index) const { return weights[index] / total; }

  double of(Token token) const {
    const auto found = std::lower_bound(ids.begin(), ids.end(), token);
    const bool listed = found != ids.end() && *found == token;
    return listed ? probability(static_cast<std::size_t>(found - ids.begin())) : 0.0;
  }
};

/// Calls visit(token, scale * p(token) - q(token)) for every token of p with a positive difference.
template <class Visit>
void for_each_excess(double scale, const Distribution& p, const Distribution& q, Visit&& visit) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    while (at < q.size() && q.ids[at] < p.ids[i]) ++at;
    const double drafted = at < q.size() && q.ids[at] == p.ids[i] ? q.probability(at) : 0.0;
    const double excess = scale * p.probability(i) - drafted;
    if (excess > 0) visit(p.ids[i], excess);
  }
}

}}
