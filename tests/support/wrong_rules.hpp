// Deliberately wrong verification: known mistakes of released decoders. A losslessness test is meaningful only if it
// can fail, so it must reject each of these.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/rng.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/random.hpp"
#include "slm/decode/rules.hpp"
#include "slm/lm/session.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

/// Trap 1: the draft takes its likeliest token, but is tested as if it had been drawn from q.
struct ArgmaxDraft : rule::Ratio {
  static constexpr std::string_view name = "wrong-argmax";
  template <class Random>
  static Token draft(const Random&, int, const Distribution& q) {
    const auto best = std::max_element(q.weights.begin(), q.weights.end());
    return q.ids[static_cast<std::size_t>(best - q.weights.begin())];
  }
};

/// Trap 2: claims that the ratio test allows dropping an unlikely token after drawing it.
struct DroppingRatio : rule::Ratio {
  static constexpr std::string_view name = "wrong-drop";
  static constexpr bool may_drop = true;
};

/// Draws keyed by the token's position in the text instead of the round's: a later round at the same position reuses
/// them.
struct ReusedRandom {
  PhiloxRandom base;
  double u(Stream stream, int i) const {
    return uniform(base.seed, stream, base.position + static_cast<std::uint64_t>(i), 0);
  }
  Token draft(int i, const Distribution& q) const { return draw_at(q, u(Stream::draft, i)); }
  Token residual(int i, const Distribution& weights) const { return draw_at(weights, u(Stream::residual, i)); }
  Token bonus(int i, const Distribution& p) const { return draw_at(p, u(Stream::bonus, i)); }
  bool accept(int i, double q, double p) const { return passes(u(Stream::accept, i), q, p); }
};

/// Trap 3 with Block. With Ratio it is harmless if the draft length does not depend on discarded draws, and trap 4 if
/// it does (see FickleDrafter).
template <class Rule>
struct Reusing : Rule {
  static constexpr std::string_view name = "reusing";
  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    return Rule::draft(ReusedRandom{random}, i, q);
  }
  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&& q, const Random& random) {
    return Rule::verify(x, p, q, ReusedRandom{random});
  }
};

/// Drafts nothing after a round whose second drafted token was even, else as many tokens as requested. That token is at
/// the start of the next round if the first one was rejected: the draft length depends on discarded tokens. Harmless
/// with fresh draws.
struct FickleDrafter {
  Session<ToyModel> model;
  bool silent = false;

  explicit FickleDrafter(ToyModel toy) : model(std::move(toy)) {}
  FickleDrafter(const FickleDrafter& other) : FickleDrafter(other.model.model()) {}
  void start(std::span<const Token>) {
    silent = false;
    model.truncate(0);
  }
  void rewind(int length) {
    if (model.length() > length) model.truncate(length);
  }
  void propose(std::span<const Token> context, const ChooseNext& choose) {
    if (std::exchange(silent, false)) return;
    std::optional<Token> token;
    for (int drafted = 0;; ++drafted) {
      const auto unread = context.subspan(std::min(static_cast<std::size_t>(model.length()), context.size()));
      const auto logits = model.forward(token ? std::span<const Token>(&*token, 1) : unread, 1);
      token = choose({logits.row(0), static_cast<std::size_t>(logits.extent(1))});
      if (token && drafted == 1) silent = *token % 2 == 0;
      if (!token) return;
    }
  }
};

/// Trap 5: drawn from a sharpened q, tested with the plain one.
struct SharpenedDraft : rule::Ratio {
  static constexpr std::string_view name = "wrong-sharpened";
  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    Distribution sharp;
    for (std::size_t j = 0; j < q.size(); ++j) sharp.add(q.ids[j], q.probability(j) * q.probability(j));
    return random.draft(i, sharp);
  }
};

/// The ratio test with one part replaced.
template <class Part>
struct AlteredRatio : rule::Ratio {
  static constexpr std::string_view name = "wrong-part";
  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&& q, const Random& random) {
    const int m = static_cast<int>(x.size());
    for (int i = 0; i < m; ++i) {
      const Token token = x[static_cast<std::size_t>(i)];
      if (Part::accept(random, i, q(i).of(token), p(i).of(token))) continue;
      return {i, random.residual(i, Part::residual(p(i), q(i))), i + 1};
    }
    return {m, random.bonus(m, Part::bonus(p, m)), m};
  }
};

struct RightParts {
  static bool accept(const PhiloxRandom& random, int i, double q, double p) { return random.accept(i, q, p); }
  static Distribution residual(const Distribution& p, const Distribution& q) {
    Distribution rest;
    for_each_excess(1.0, p, q, [&rest](Token id, double weight) { rest.add(id, weight); });
    return rest.size() > 0 ? rest : p;
  }
  template <class Target>
  static const Distribution& bonus(Target& p, int m) {
    return p(m);
  }
};

/// Trap 6: after a rejection draws from p itself.
struct ResidualIsP : RightParts {
  static Distribution residual(const Distribution& p, const Distribution&) { return p; }
};

/// Trap 7: subtracts q from p rank by rank, both sorted by probability, instead of id by id.
struct ResidualByRank : RightParts {
  static Distribution residual(const Distribution& p, const Distribution& q) {
    std::vector<double> other;
    for (std::size_t j = 0; j < q.size(); ++j) other.push_back(q.probability(j));
    std::sort(other.rbegin(), other.rend());
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&p](std::size_t a, std::size_t b) { return p.weights[a] > p.weights[b]; });
    std::vector<double> left(p.size());
    for (std::size_t rank = 0; rank < order.size(); ++rank) {
      const double drafted = rank < other.size() ? other[rank] : 0;
      left[order[rank]] = std::max(0.0, p.probability(order[rank]) - drafted);
    }
    Distribution rest;
    for (std::size_t j = 0; j < left.size(); ++j) rest.add(p.ids[j], left[j]);
    return rest.total > 0 ? rest : p;
  }
};

/// Trap 8: a uniform of 101 steps, and a comparison that lets equality pass.
struct CoarseUniform : RightParts {
  static bool accept(const PhiloxRandom& random, int i, double q, double p) {
    const double u = uniform(random.seed, Stream::accept, random.position, static_cast<std::uint32_t>(i));
    return std::floor(u * 101) / 100 * q <= p;
  }
};

/// Trap 9: the bonus token is drawn from the row before the one it belongs to.
struct BonusFromPreviousRow : RightParts {
  template <class Target>
  static const Distribution& bonus(Target& p, int m) {
    return p(m > 0 ? m - 1 : 0);
  }
};

}  // namespace slm::testing
