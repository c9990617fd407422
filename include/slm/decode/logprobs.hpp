// Log-probabilities reported with generated tokens.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/distribution.hpp"
#include "slm/decode/logits_scan.hpp"
#include "slm/decode/sink.hpp"

namespace slm { inline namespace v0_1 {

/// The log-probability of a chosen token and of the most likely alternatives. Reused between rounds.
class LogprobReport {
 public:
  void reserve(int alternatives) { top_.reserve(static_cast<std::size_t>(alternatives) + 1); }

  /// Computes from the distribution that the token was drawn from.
  void by_distribution(const Distribution& p, Token token, int alternatives) {
    start(alternatives);
    for (std::size_t i = 0; i < p.size(); ++i) offer(p.ids[i], p.probability(i));
    for (TokenLogprob& entry : top_) entry.logprob = std::log(entry.logprob);
    logprob_ = std::log(p.of(token));
  }

  /// Computes from the softmax of the row, which must be valid (see find_peak).
  void by_row(std::span<const float> row, Token token, int alternatives) {
    start(alternatives);
    const double peak = find_peak(row).logit;
    double total = 0;
    for (std::size_t id = 0; id < row.size(); ++id) {
      offer(static_cast<Token>(id), static_cast<double>(row[id]));
      total += std::exp(static_cast<double>(row[id]) - peak);
    }
    const double normaliser = peak + std::log(total);
    for (TokenLogprob& entry : top_) entry.logprob -= normaliser;
    logprob_ = static_cast<double>(row[static_cast<std::size_t>(token)]) - normaliser;
  }

  double logprob() const { return logprob_; }
  std::span<const TokenLogprob> top() const { return top_; }

 private:
  void start(int alternatives) {
    wanted_ = static_cast<std::size_t>(alternatives);
    top_.clear();
  }

  /// Insertion into a sorted list. Ids arrive in ascending order, so ties keep the lowest id.
  void offer(Token token, double value) {
    if (wanted_ == 0 || (top_.size() == wanted_ && value <= top_.back().logprob)) return;
    std::size_t at = top_.size();
    top_.push_back({token, value});
    for (; at > 0 && top_[at - 1].logprob < value; --at) top_[at] = top_[at - 1];
    top_[at] = {token, value};
    if (top_.size() > wanted_) top_.pop_back();
  }

  double logprob_ = 0;
  std::size_t wanted_ = 0;
  std::vector<TokenLogprob> top_;
};

}}
