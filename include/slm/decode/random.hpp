// Counter-based random draws: each is a pure function of (seed, purpose, position, index), so a rollback needs no
// state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "slm/core/draw.hpp"
#include "slm/core/rng.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/distribution.hpp"

namespace slm { inline namespace v0_1 {

/// Draws by inverse transform: the first token at which the running sum of weights exceeds u * total.
inline Token draw_at(const Distribution& weights, double u) {
  const double threshold = u * weights.total;
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights.weights[i];
    if (threshold < sum) return weights.ids[i];
  }
  return weights.ids.back();
}

/// Tests u < p / q without division by 0. The test is strict, so p = 0 never passes. p >= q > 0 always passes, even if
/// u * q rounds up to q.
inline bool passes(double u, double q, double p) { return p > 0 && (q <= p || u * q < p); }

/// Philox draws of one round. `position`: number of committed tokens when the round begins; token i of the round has
/// position + i. There are two families:
/// - race and keyed depend on the token's position only, so every round draws the same for it;
/// - draft, accept, residual and bonus depend on the round; rounds never share them, since each begins at a later
///   position.
struct PhiloxRandom {
  std::uint64_t seed = 0;
  std::uint64_t position = 0;

  /// The Gumbel-max draw as an exponential race, see core/draw.hpp. Draft and target share u, so similar distributions
  /// mostly have the same winner.
  Token race(int i, const Distribution& weights) const {
    double best = std::numeric_limits<double>::infinity();
    Token winner = weights.ids.front();
    std::uint32_t pair = ~std::uint32_t{0};
    std::array<std::uint32_t, 4> words{};
    for (std::size_t j = 0; j < weights.size(); ++j) {
      const auto token = static_cast<std::uint32_t>(weights.ids[j]);
      if (token >> 1 != pair) {
        pair = token >> 1;
        words = race_words(seed, position + static_cast<std::uint64_t>(i), pair);
      }
      const std::uint64_t u = race_uniform(words, token);
      // -log2(u) > 1.4 (1 - u): the token cannot win. This test saves most logarithms.
      if (static_cast<double>((0 - u) >> 7) >= best * weights.weights[j]) continue;
      const double time = race_distance(u) / weights.weights[j];
      if (time >= best) continue;
      best = time;
      winner = weights.ids[j];
    }
    return winner;
  }

  Token keyed(int i, const Distribution& weights) const {
    return draw_at(weights, uniform(seed, Stream::bonus, position + static_cast<std::uint64_t>(i), 0));
  }

  Token draft(int i, const Distribution& weights) const { return draw_at(weights, round_uniform(Stream::draft, i)); }
  Token residual(int i, const Distribution& weights) const {
    return draw_at(weights, round_uniform(Stream::residual, i));
  }
  Token bonus(int i, const Distribution& weights) const { return draw_at(weights, round_uniform(Stream::bonus, i)); }

  /// True with probability min(1, p / q).
  bool accept(int i, double q, double p) const { return passes(round_uniform(Stream::accept, i), q, p); }

 private:
  double round_uniform(Stream stream, int i) const {
    return uniform(seed, stream, position, static_cast<std::uint32_t>(i));
  }
};

}}
