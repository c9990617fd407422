// The draft length policy that measures: it chooses the number of drafted tokens with the most tokens per second.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace slm::draft_length {

/// What a policy learns from one finished round.
struct RoundOutcome {
  int drafted = 0;
  int accepted = 0;
  double draft_seconds = 0;
  double verify_seconds = 0;  // the target's forward over drafted + 1 tokens, and choosing tokens
  bool draft_in_step = true;  // the draft had no backlog to read before it could propose
};

/// Chooses K to maximise expected tokens per second, (1 + sum of s_1..s_K) / (V(K + 1) + d K), from running averages of
/// s_j (how often at least j drafted tokens are accepted), V(n) (seconds of a target step over n tokens) and d (seconds
/// per drafted token). When plain decoding wins it stops drafting, and looks again after a pause that grows each time
/// in vain, so that a useless draft costs a bounded share of the time.
class ThroughputAdaptive {
 public:
  explicit ThroughputAdaptive(int limit = 12)
      : limit_(limit), depths_(static_cast<std::size_t>(std::max(limit, 0)) + 1), verify_(depths_.size() + 1) {
    if (limit > 0) depths_[1] = {0.7, 2};  // a hopeful start, which two dozen rejections outweigh
  }

  int most() const { return limit_; }
  bool go_on(double) const { return true; }
  void restart() {}  // what was learnt about the pair holds for the next request too
  int cooldowns() const { return cooldowns_; }

  /// Seconds of a target step over `rows` tokens, as far as known (0 before any measurement).
  double verify_seconds(int rows) const {
    // Linear between measured row counts; beyond the last one, along the last slope.
    int below = 0;
    int before = 0;
    for (int n = 1; n < static_cast<int>(verify_.size()); ++n) {
      if (verify_[at(n)].count == 0) continue;
      if (n == rows) return verify_[at(n)].mean;
      if (n > rows) return below == 0 ? verify_[at(n)].mean : line(below, n, rows);
      before = below;
      below = n;
    }
    if (below == 0) return 0;
    return before == 0 ? verify_[at(below)].mean : line(before, below, rows);
  }

  int next() {
    if (limit_ == 0) return 0;
    ++rounds_;
    if (pause_ > 0) {
      if (--pause_ > 0) return 0;
      probing_ = probe_rounds;
      for (Average& depth : depths_) depth.count = std::min(depth.count, 2);  // let fresh evidence count
    }
    if (verify_[1].count == 0 || rounds_ % recheck_plain == 0) return 0;
    if (draft_.count == 0) return std::min(4, limit_);
    if (probing_ > 0) return std::min(2, limit_);
    const int best = best_draft_length();
    if (best == 0) {
      start_pause();
      return 0;
    }
    wait_ = first_wait;
    return rounds_ % explore_every == 0 ? std::min(best + 1, limit_) : best;
  }

  void observe(const RoundOutcome& round) {
    const int rows = round.drafted + 1;
    if (rows < static_cast<int>(verify_.size())) verify_[at(rows)].take(round.verify_seconds, timing_memory, true);
    if (round.drafted == 0) return;
    if (round.draft_in_step) draft_.take(round.draft_seconds / round.drafted, timing_memory, true);
    const int seen = std::min({round.drafted, round.accepted + 1, limit_});
    for (int depth = 1; depth <= seen; ++depth) {
      depths_[at(depth)].take(depth <= round.accepted ? 1.0 : 0.0, acceptance_memory, false);
    }
    if (probing_ > 0) {
      --probing_;
      // A probe that is accepted goes on for a few rounds before the verdict; one that fails ends it at once.
      if (round.accepted == 0 && best_draft_length() == 0) start_pause();
    }
  }

 private:
  // Half-lives: acceptance follows the text over some 64 rounds; times are steadier but have outliers.
  static constexpr int acceptance_memory = 92;
  static constexpr int timing_memory = 16;
  static constexpr int recheck_plain = 256;
  static constexpr int explore_every = 32;
  static constexpr int probe_rounds = 8;
  static constexpr int first_wait = 16;
  static constexpr int last_wait = 512;
  static constexpr double lean = 2;  // observations that the depth above counts for

  struct Average {
    double mean = 0;
    int count = 0;

    /// The plain mean of the first `memory` values, then an exponential one.
    void take(double value, int memory, bool clip) {
      if (clip && count > 2) value = std::min(value, 3 * mean);  // a preempted step says nothing of the next
      count = std::min(count + 1, memory);
      mean += (value - mean) / count;
    }
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  double line(int low, int high, int rows) const {
    const double slope = (verify_[at(high)].mean - verify_[at(low)].mean) / (high - low);
    return std::max(verify_[at(low)].mean + std::max(slope, 0.0) * (rows - low), 1e-12);
  }

  int best_draft_length() const {
    double survival = 1;
    double tokens = 1;
    double above = depths_[1].mean;
    int best = 0;
    double best_rate = 1 / std::max(verify_seconds(1), 1e-12);
    for (int k = 1; k <= limit_; ++k) {
      // A depth with little evidence leans on the one above it.
      const Average& depth = depths_[at(k)];
      above = (depth.mean * depth.count + above * lean) / (depth.count + lean);
      survival *= above;
      tokens += survival;
      const double rate = tokens / std::max(verify_seconds(k + 1) + draft_.mean * k, 1e-12);
      if (rate > best_rate) {
        best_rate = rate;
        best = k;
      }
    }
    return best;
  }

  void start_pause() {
    ++cooldowns_;
    probing_ = 0;
    pause_ = wait_;
    wait_ = std::min(2 * wait_, last_wait);
  }

  int limit_;
  std::vector<Average> depths_;  // [limit + 1]: P(token j accepted | j - 1 accepted), from 1
  std::vector<Average> verify_;  // [limit + 2]: seconds of a target step over n tokens, from 1
  Average draft_;                // seconds per drafted token
  long rounds_ = 0;
  int pause_ = 0;
  int probing_ = 0;
  int wait_ = first_wait;
  int cooldowns_ = 0;
};

}  // namespace slm::draft_length
