// AcceptanceRecord: how often the drafted tokens of one source were accepted, by depth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/decode/step_seconds.hpp"

namespace slm { inline namespace v0_1 { namespace draft_length {

/// The result of one round.
struct RoundOutcome {
  int drafted = 0;
  int accepted = 0;
};

/// Holds, for each depth from 1, an average of how often the token there was accepted if all tokens before it were.
class AcceptanceRecord {
 public:
  /// limit: the largest depth. memory: observations after which older ones fade.
  explicit AcceptanceRecord(int limit, int memory = 48)
      : memory_(memory), depths_(static_cast<std::size_t>(std::max(limit, 0))) {}

  /// The record of a text that nothing is known about: an optimistic prior that few rejections outweigh.
  void begin() {
    std::fill(depths_.begin(), depths_.end(), Average{});
    if (!depths_.empty()) depths_.front() = {0.7, 2};
  }
  /// The record of a text that begins with the averages of other texts.
  void begin(const AcceptanceRecord& others) {
    begin();
    for (std::size_t i = 0; i < depths_.size() && i < others.depths_.size() && others.depths_[i].count > 0; ++i)
      depths_[i] = {others.depths_[i].mean, std::min(others.depths_[i].count, borrowed)};
  }

  void observe(const RoundOutcome& round) {
    const int seen = std::min({round.drafted, round.accepted + 1, static_cast<int>(depths_.size())});
    for (int i = 0; i < seen; ++i) depths_[static_cast<std::size_t>(i)].take(i < round.accepted ? 1.0 : 0.0, memory_);
  }
  /// Gives the next observations more weight.
  void doubt() {
    for (Average& depth : depths_) depth.count = std::min(depth.count, 2);
  }

  /// Appends, for the depths 1 to `most`, the probability that all tokens up to that depth are accepted.
  void append_survival(std::vector<float>& out, int most) const {
    double survival = 1, above = depths_.empty() ? 0 : depths_.front().mean;
    for (int i = 0; i < most; ++i) {
      // A depth with few observations is shrunk towards the depth above it.
      const Average depth =
          static_cast<std::size_t>(i) < depths_.size() ? depths_[static_cast<std::size_t>(i)] : Average{};
      above = (depth.mean * depth.count + above * lean) / (depth.count + lean);
      survival *= above;
      out.push_back(static_cast<float>(survival));
    }
  }

 private:
  static constexpr int borrowed = 8;  // weight of other texts, in observations
  static constexpr double lean = 2;   // weight of the depth above, in observations

  int memory_;
  std::vector<Average> depths_;
};

}}}
