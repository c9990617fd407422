// RoundCosts: what a decoder or engine learns from its rounds for all texts: how long steps take, and what is accepted.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>

namespace slm {

/// More rows than any kernel or policy makes use of; scratch memory grows with it.
inline constexpr int most_draft_tokens = 256;

namespace draft_length {

/// The plain mean of the first `memory` values, then an exponential one.
struct Average {
  double mean = 0;
  int count = 0;

  void take(double value, int memory) {
    count = std::min(count + 1, memory);
    mean += (value - mean) / count;
  }
};

/// Seconds of a step by its rows: averages of what was measured, and straight lines between them.
class StepSeconds {
 public:
  void take(int rows, double seconds) {
    Point& point = points_[bucket_of(rows)];
    // A preempted step says nothing of the next.
    point.seconds.take(point.seconds.count > 2 ? std::min(seconds, 3 * point.seconds.mean) : seconds, memory);
    point.rows.take(rows, memory);
  }

  /// Whether a step of at most so many rows was ever measured.
  bool reaches_down_to(int rows) const {
    return std::any_of(points_.begin(), points_.end(),
                       [&](const Point& point) { return point.seconds.count > 0 && point.rows.mean <= rows; });
  }

  /// Below the first measurement its own, beyond the last one along the last line; 0 without any.
  double at(double rows) const {
    const Point *before = nullptr, *below = nullptr;
    for (const Point& point : points_) {
      if (point.seconds.count == 0) continue;
      if (below != nullptr && point.rows.mean >= rows) return line(*below, point, rows);
      if (point.rows.mean >= rows) return point.seconds.mean;
      before = below;
      below = &point;
    }
    if (below == nullptr) return 0;
    return before == nullptr ? below->seconds.mean : line(*before, *below, rows);
  }

 private:
  struct Point {
    Average rows, seconds;
  };

  static constexpr int memory = 16;
  static constexpr int exact = 16;  // so many row counts have a point each; beyond, there are four to each doubling

  static std::size_t bucket_of(int rows) {
    if (rows <= exact) return static_cast<std::size_t>(std::max(rows, 1) - 1);
    const double doublings = std::log2(static_cast<double>(rows) / exact);
    return std::min(static_cast<std::size_t>(exact + 4 * doublings), std::tuple_size_v<Points> - 1);
  }

  static double line(const Point& low, const Point& high, double rows) {
    const double slope = (high.seconds.mean - low.seconds.mean) / (high.rows.mean - low.rows.mean);
    return low.seconds.mean + std::max(slope, 0.0) * (rows - low.rows.mean);
  }

  using Points = std::array<Point, 64>;
  Points points_;
};

/// What a round has to do besides drafting.
struct Load {
  int texts = 0;  // that decode, one row each
  int rows = 0;   // of the target's step: theirs, and those of prompts
};

/// All texts of a decoder or an engine share one. Texts of a round wait for each other's drafts, and pay for each
/// other's rows: what drafting costs one of them is what the round costs if all draft as many tokens.
class RoundCosts {
 public:
  /// present: texts that decode or will, those that wait for their turn to be read among them.
  void begin_round(const Load& load, int present) {
    load_ = load;
    later_ = {present, present};
    ++rounds_;
  }
  /// Counts a text; from 0.
  long begin_text() { return texts_++; }
  /// So far, with the present one.
  long rounds() const { return rounds_; }

  /// Of texts that had nothing else to read, the longest of whose drafts took so many steps.
  void took_draft(int texts, int steps, double seconds) { draft_.take(texts, seconds / steps); }
  /// The target's step, and choosing tokens.
  void took_verification(int rows, double seconds) { verify_.take(rows, seconds); }
  void saw(int depth, bool accepted) { depths_[index(depth)].take(accepted ? 1.0 : 0.0, acceptance_memory); }

  /// The present round, and one in which all that is present decodes.
  const Load& now() const { return load_; }
  const Load& later() const { return later_; }

  bool know_plain_steps() const { return verify_.reaches_down_to(load_.rows); }
  bool know_drafts() const { return draft_.reaches_down_to(most_rows); }
  /// Of a round, if each of its texts drafts so many tokens.
  double seconds(int drafted, const Load& load) const {
    const double verify = verify_.at(static_cast<double>(load.rows) + static_cast<double>(load.texts) * drafted);
    return std::max(verify + drafted * draft_.at(load.texts), 1e-12);
  }
  /// How often the token at a depth, from 1, was accepted where all before it were.
  const Average& accepted_at(int depth) const { return depths_[index(depth)]; }

 private:
  static constexpr int acceptance_memory = 512;
  static constexpr int most_rows = 1 << 30;

  static std::size_t index(int depth) { return static_cast<std::size_t>(std::min(depth, most_draft_tokens) - 1); }

  Load load_, later_;
  long rounds_ = 0, texts_ = 0;
  StepSeconds verify_, draft_;
  std::array<Average, most_draft_tokens> depths_;
};

}  // namespace draft_length
}  // namespace slm
