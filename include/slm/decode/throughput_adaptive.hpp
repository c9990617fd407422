// ThroughputAdaptive: a draft length policy that maximises measured tokens per second.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "slm/decode/round_costs.hpp"

namespace slm { inline namespace v0_1 { namespace draft_length {

/// The result of one round, for a policy.
struct RoundOutcome {
  int drafted = 0;
  int accepted = 0;
};

/// Chooses K to maximise expected tokens per second: (1 + sum of s_1..s_K) / (seconds of a round in which all sequences
/// draft K). s_j is a running average of how often at least j drafted tokens are accepted in this text. If plain
/// decoding is faster, it stops drafting and probes again after a pause. Pauses grow after each failed probe, which
/// bounds the cost of a useless draft. Pauses of all sequences end in common rounds, so that they share draft steps.
class ThroughputAdaptive {
 public:
  explicit ThroughputAdaptive(int limit = 12)
      : limit_(limit), depths_(static_cast<std::size_t>(std::max(limit, 0)) + 1) {
    if (limit > 0) depths_[1] = {0.7, 2};  // an optimistic prior, outweighed by about two dozen rejections
  }

  int most() const { return limit_; }
  bool go_on(double) const { return true; }
  /// The next request begins with the acceptance rates of all texts.
  void restart() { is_new_ = true; }
  int cooldowns() const { return cooldowns_; }

  /// If drafting does not pay, the draft does not read new texts. It reads one in sixteen to keep the estimates
  /// current.
  bool reads(RoundCosts& costs) {
    if (is_new_) begin_as_others(costs);
    if (scouts_ || !costs.know_plain_steps() || !costs.know_drafts()) return true;
    if (is_hopeless(costs, costs.later())) return false;
    return (resume_ > 0 && costs.rounds() >= resume_) || best(costs, costs.later()).gain > worth_reading;
  }

  /// Cost of one more verified token in this round, in plain steps of its sequence; nothing if unknown.
  std::optional<float> row_cost(const RoundCosts& costs) const {
    if (!costs.know_plain_steps() || costs.rounds() % look_again == 0) return std::nullopt;
    return costs.row_cost();
  }

  /// weighs: the drafter chooses its length by row_cost().
  int next(RoundCosts& costs, bool weighs = false) {
    if (limit_ == 0 || weighs) return limit_;
    if (is_new_) begin_as_others(costs);
    if (costs.rounds() < resume_) return 0;
    if (!costs.know_plain_steps() || is_time_for_plain(costs)) return 0;
    if (costs.know_drafts() && is_hopeless(costs, costs.now())) return 0;
    if (resume_ > 0) {
      resume_ = 0;
      probing_ = probe_rounds;
      for (Average& depth : depths_) depth.count = std::min(depth.count, 2);  // gives new observations more weight
    }
    if (!costs.know_drafts()) return std::min(4, limit_);
    if (probing_ > 0) return std::min(2, limit_);
    const auto [length, gain] = best(costs, costs.now());
    is_close_ = gain < close;
    if (length == 0) {
      start_pause(costs);
      return 0;
    }
    wait_ = first_wait;
    return costs.rounds() % explore_every == 0 ? std::min(length + 1, limit_) : length;
  }

  void observe(const RoundOutcome& round, RoundCosts& costs) {
    if (round.drafted == 0) return;
    const int seen = std::min({round.drafted, round.accepted + 1, limit_});
    for (int depth = 1; depth <= seen; ++depth) {
      depths_[at(depth)].take(depth <= round.accepted ? 1.0 : 0.0, acceptance_memory);
      costs.saw(depth, depth <= round.accepted);
    }
    if (probing_ > 0) {
      --probing_;
      // A probe continues for a few rounds if tokens are accepted; a failed probe ends at once.
      if (round.accepted == 0 && best(costs, costs.now()).length == 0) start_pause(costs);
    }
  }

 private:
  // Gives a half-life of about 64 rounds.
  static constexpr int acceptance_memory = 92;
  static constexpr int recheck_plain = 64;
  static constexpr int recheck_close = 16;      // when the gain is small
  static constexpr double least_gain = 1.04;    // smaller gains may be noise
  static constexpr double close = 1.25;         // as a gain
  static constexpr double worth_reading = 1.1;  // the gain must also cover the cost of reading the text
  static constexpr int look_again = 512;        // rounds after which costs are measured again
  static constexpr int explore_every = 32;
  static constexpr int probe_rounds = 8;
  static constexpr int first_wait = 16;
  static constexpr int last_wait = 512;
  static constexpr int scout_every = 16;  // texts
  static constexpr int borrowed = 24;     // weight of other texts' acceptance, in observations
  static constexpr double lean = 2;       // weight of the depth above, in observations

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void begin_as_others(RoundCosts& costs) {
    is_new_ = false;
    scouts_ = costs.begin_text() % scout_every == 0;
    for (int depth = 1; depth <= limit_; ++depth) {
      const Average& others = costs.accepted_at(depth);
      if (others.count == 0) break;
      depths_[at(depth)] = {others.mean, std::min(others.count, borrowed)};
    }
  }

  /// Falls between the rounds in which sequences probe and explore.
  bool is_time_for_plain(const RoundCosts& costs) const {
    const int every = is_close_ ? recheck_close : recheck_plain;
    return costs.rounds() % every == every / 2;
  }

  bool is_hopeless(const RoundCosts& costs, const Load& load) const {
    return costs.rounds() % look_again != 0 && !costs.could_pay(limit_, load);
  }

  struct Best {
    int length = 0;
    double gain = 1;  // tokens per second relative to plain steps
  };

  Best best(const RoundCosts& costs, const Load& load) const {
    const double plain = costs.seconds(0, load);
    double survival = 1;
    double tokens = 1;
    double above = depths_[1].mean;
    Best best{0, least_gain};
    for (int k = 1; k <= limit_; ++k) {
      // A depth with few observations is shrunk towards the depth above it.
      const Average& depth = depths_[at(k)];
      above = (depth.mean * depth.count + above * lean) / (depth.count + lean);
      survival *= above;
      tokens += survival;
      const double gain = tokens * plain / costs.seconds(k, load);
      if (gain > best.gain) best = {k, gain};
    }
    return best;
  }

  void start_pause(const RoundCosts& costs) {
    ++cooldowns_;
    probing_ = 0;
    resume_ = (costs.rounds() + wait_ + wait_ / 2) / wait_ * wait_;  // in wait_ rounds on average
    wait_ = std::min(2 * wait_, last_wait);
  }

  int limit_;
  std::vector<Average> depths_;  // [limit + 1]: P(token j accepted | j - 1 accepted), index from 1
  bool is_new_ = false;
  bool is_close_ = false;
  bool scouts_ = true;
  long resume_ = 0;  // the round in which the pause ends; 0: no pause
  int probing_ = 0;
  int wait_ = first_wait;
  int cooldowns_ = 0;
};

}}}
