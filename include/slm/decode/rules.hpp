// Verification rules decide which tokens a round emits, given the draft and the target's distributions.
//
// Each rule is a pure function of its arguments and random draws, so that exhaustive tests, statistical tests and the
// decoder run the same code. Notation: x[0..m) are the drafted tokens, q(i) the distribution that x[i] was drawn from,
// p(i) the target's distribution given x[0..i); p(m) is the distribution after the whole draft.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/distribution.hpp"
#include "slm/decode/random.hpp"

namespace slm { inline namespace v0_1 {

/// The result of a round: x[0..accepted) are emitted, then `token`.
struct Verdict {
  int accepted = 0;
  Token token = 0;    // the correction if accepted < m, otherwise the bonus token
  int evaluated = 0;  // drafted tokens that the rule examined
};

/// The verdict if the target's tokens do not depend on the draft: accepts the longest common prefix. choice(i) is the
/// target's token given x[0..i).
template <class Choice>
Verdict agreement(std::span<const Token> x, Choice&& choice) {
  const int m = static_cast<int>(x.size());
  for (int i = 0; i < m; ++i) {
    const Token token = choice(i);
    if (token != x[static_cast<std::size_t>(i)]) return {i, token, i + 1};
  }
  return {m, choice(m), m};
}

/// A rule: draft() draws a token from q; verify() decides about the whole draft. needs_distribution: it uses q.
/// may_drop: it stays lossless if a drafted token is discarded, and the text does not depend on the draft.
/// reserve(vocab, most): allocates for `vocab` ids and `most` drafted tokens.
template <class R>
concept VerificationRule = requires(R& rule, const PhiloxRandom& random, const Distribution& q, std::size_t vocab,
                                    int most) {
  { R::name } -> std::convertible_to<std::string_view>;
  { R::needs_distribution } -> std::convertible_to<bool>;
  { R::may_drop } -> std::convertible_to<bool>;
  { R::draft(random, most, q) } -> std::same_as<Token>;
  { rule.reserve(vocab, most) } -> std::same_as<void>;
};

namespace rule {

/// Gumbel coupling (Daliri et al., 2408.07978): target and draft run the same race, keyed by (seed, position, token).
/// The text is a function of (target, seed): byte-identical to plain decoding for any drafter and draft length.
struct Coupled {
  static constexpr std::string_view name = "coupled";
  static constexpr bool needs_distribution = false;
  static constexpr bool may_drop = true;  // lossless even if a drafted token is discarded

  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    return random.race(i, q);
  }

  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&&, const Random& random) {
    return agreement(x, [&](int i) { return random.race(i, p(i)); });
  }

  void reserve(std::size_t, int) {}
};

/// Sample-match: the target draws, and tokens are accepted while they equal the draw. Lossless for any drafter. Draws
/// are keyed by position, so the text equals plain decoding under this rule.
struct Match {
  static constexpr std::string_view name = "match";
  static constexpr bool needs_distribution = false;
  static constexpr bool may_drop = true;

  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    return random.keyed(i, q);
  }

  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&&, const Random& random) {
    return agreement(x, [&](int i) { return random.keyed(i, p(i)); });
  }

  void reserve(std::size_t, int) {}
};

/// The ratio test with residual (Leviathan et al., 2211.17192; Chen et al., 2302.01318): equal in distribution to plain
/// decoding. Its acceptance 1 - TV(p, q) is the highest possible token by token.
struct Ratio {
  static constexpr std::string_view name = "ratio";
  static constexpr bool needs_distribution = true;
  static constexpr bool may_drop = false;

  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    return random.draft(i, q);
  }

  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&& q, const Random& random) {
    const int m = static_cast<int>(x.size());
    for (int i = 0; i < m; ++i) {
      const Token token = x[static_cast<std::size_t>(i)];
      const Distribution& target = p(i);
      const Distribution& draft = q(i);
      const double likelihood = draft.of(token);
      // A token with q = 0 was not drawn from q: treat it as a deterministic proposal (q = 1).
      const bool guess = !(likelihood > 0);
      if (random.accept(i, guess ? 1.0 : likelihood, target.of(token))) continue;
      residual_.clear();
      if (guess) {
        for (std::size_t j = 0; j < target.size(); ++j) {
          if (target.ids[j] != token) residual_.add(target.ids[j], target.probability(j));
        }
      } else {
        for_each_excess(1.0, target, draft, [this](Token id, double weight) { residual_.add(id, weight); });
      }
      // An empty residual results only from rounding (p equals q up to the last bit): use p.
      return {i, random.residual(i, residual_.size() > 0 ? residual_ : target), i + 1};
    }
    return {m, random.bonus(m, p(m)), m};
  }

  void reserve(std::size_t vocab, int) { residual_.reserve(vocab); }

 private:
  Distribution residual_;  // unnormalised
};

/// Block verification (Sun et al., 2403.10444): judges the draft as a whole; never emits fewer tokens per round than
/// Ratio.
struct Block {
  static constexpr std::string_view name = "block";
  static constexpr bool needs_distribution = true;
  static constexpr bool may_drop = false;

  template <class Random>
  static Token draft(const Random& random, int i, const Distribution& q) {
    return random.draft(i, q);
  }

  template <class Target, class Draft, class Random>
  Verdict verify(std::span<const Token> x, Target&& p, Draft&& q, const Random& random) {
    const int m = static_cast<int>(x.size());
    if (m == 0) return {0, random.bonus(0, p(0)), 0};
    reach_.assign(1, 1.0);  // reach_[i]: clipped running ratio of target to draft probability of x[0..i)
    int accepted = 0;
    for (int i = 1; i <= m; ++i) {
      const Token token = x[static_cast<std::size_t>(i - 1)];
      const double likelihood = q(i - 1).of(token);
      const double before = reach_.back();
      const double reach = likelihood > 0 ? std::min(1.0, before * p(i - 1).of(token) / likelihood) : 0.0;
      reach_.push_back(reach);
      double hold = reach;
      if (i < m) {
        double excess = 0;
        for_each_excess(reach, p(i), q(i), [&excess](Token, double weight) { excess += weight; });
        const double rest = excess + 1.0 - reach;
        hold = rest > 0 ? excess / rest : 1.0;
      }
      if (random.accept(i, 1.0, hold)) accepted = i;
    }
    if (accepted == m) return {m, random.bonus(m, p(m)), m};
    residual_.clear();
    for_each_excess(reach_[static_cast<std::size_t>(accepted)], p(accepted), q(accepted),
                    [this](Token id, double weight) { residual_.add(id, weight); });
    return {accepted, random.residual(accepted, residual_.size() > 0 ? residual_ : p(accepted)), m};
  }

  void reserve(std::size_t vocab, int most) {
    residual_.reserve(vocab);
    reach_.reserve(static_cast<std::size_t>(most) + 1);
  }

 private:
  Distribution residual_;      // unnormalised
  std::vector<double> reach_;  // [m + 1]
};

}  // namespace rule

/// Calls use(rule) with the named rule: coupled, ratio, block or match. Throws decode.unknown-rule. Every call of `use`
/// must return the same type.
template <class Use>
decltype(auto) visit_rule(std::string_view name, Use&& use) {
  if (name == rule::Match::name) return std::forward<Use>(use)(rule::Match{});
  if (name == rule::Ratio::name) return std::forward<Use>(use)(rule::Ratio{});
  if (name == rule::Block::name) return std::forward<Use>(use)(rule::Block{});
  if (name != rule::Coupled::name) {
    throw Error("decode.unknown-rule", text("expected a verification rule, found '", name, "'"),
                "Use coupled, ratio, block or match");
  }
  return std::forward<Use>(use)(rule::Coupled{});
}

}}
