// Predicted speedup from the costs of single steps: docs/benchmarks.md, "Predicted speedup".
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <vector>

#include "bench/command/speculative/row.hpp"

namespace slm::bench::speculative {

/// Expected tokens of a round with m draft tokens, each accepted with probability a.
inline double expected_tokens(double a, int m) {
  double tokens = 1, survival = 1;
  for (int i = 0; i < m; ++i) tokens += survival *= a;
  return tokens;
}

/// Rounds by their number of draft tokens, from the rounds that drafted a token at each depth.
inline std::vector<std::int64_t> rounds_by_draft(std::int64_t rounds, std::span<const std::int64_t> drafted_at_depth) {
  std::vector<std::int64_t> counts;
  std::int64_t before = rounds;
  for (const std::int64_t deeper : drafted_at_depth) {
    counts.push_back(before - deeper);
    before = deeper;
  }
  counts.push_back(before);
  return counts;
}

class Costs {
 public:
  /// Uses means over the probes, as throughput is a mean. On a busy machine, longer steps are interrupted more often,
  /// which medians would hide for shorter steps only. choose: seconds to choose one token.
  Costs(std::span<const Probe> probes, double choose) : choose_(choose) {
    struct Mean {
      double sum = 0;
      int count = 0;
      void add(double value) { sum += value, ++count; }
      double operator()() const { return count > 0 ? sum / count : 0; }
    };
    std::map<int, Mean> steps;
    Mean draft;
    for (const Probe& probe : probes) {
      for (const auto& [tokens, seconds] : probe.target) steps[tokens].add(seconds);
      draft.add(probe.draft);
    }
    plain_ = steps[1]();
    if (!known()) return;
    draft_ = draft() / plain_;
    for (const auto& [tokens, mean] : steps) verify_[tokens] = mean() / plain_;
  }

  bool known() const { return plain_ > 0; }
  double plain_seconds() const { return plain_; }
  /// c: a draft step in units of a plain target step.
  double c() const { return draft_; }
  /// The measured v(n).
  const std::map<int, double>& measured() const { return verify_; }
  /// v(n): linear between measured n, extrapolated with the last slope.
  double v(int n) const {
    if (verify_.empty()) return 0;
    auto above = verify_.lower_bound(n);
    if (above != verify_.end() && above->first == n) return above->second;
    if (verify_.size() == 1 || above == verify_.begin()) return verify_.begin()->second;
    if (above == verify_.end()) --above;
    const auto below = std::prev(above);
    const double slope = (above->second - below->second) / (above->first - below->first);
    return below->second + slope * (n - below->first);
  }

  /// Speedup over plain decoding of rounds with 0, 1, 2, ... draft tokens that yield `tokens(m)` each.
  template <class Tokens>
  double speedup(std::span<const std::int64_t> rounds, Tokens&& tokens) const {
    const double choose = known() ? choose_ / plain_ : 0;
    double yield = 0, spent = 0;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      const auto count = static_cast<double>(rounds[i]);
      const int m = static_cast<int>(i);
      const double made = tokens(m);
      yield += count * made;
      spent += count * (v(m + 1) + c() * m + choose * (m + made));
    }
    return spent > 0 ? yield * (1 + choose) / spent : 0;
  }

  /// The speedup when each draft token is accepted with probability a.
  double predicted(std::span<const std::int64_t> rounds, double a) const {
    return speedup(rounds, [a](int m) { return expected_tokens(a, m); });
  }

  /// The speedup when all rounds together yield `emitted` tokens.
  double predicted_from_counts(std::span<const std::int64_t> rounds, std::int64_t emitted) const {
    std::int64_t all = 0;
    for (const std::int64_t count : rounds) all += count;
    const double mean = all > 0 ? static_cast<double>(emitted) / static_cast<double>(all) : 0;
    return speedup(rounds, [mean](int) { return mean; });
  }

 private:
  double plain_ = 0, draft_ = 0, choose_ = 0;
  std::map<int, double> verify_;
};

}  // namespace slm::bench::speculative
