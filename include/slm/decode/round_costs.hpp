// RoundCosts: what a decoder or engine learns from its rounds for all texts: how long steps take, and what is accepted.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace slm { inline namespace v0_1 {

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
    // Others on the machine make a step slower, never faster: what is low counts for more, and what is high beyond
    // measure for no more than that.
    Average& mean = point.seconds;
    const bool low = mean.count > 0 && seconds < mean.mean;
    mean.take(mean.count > 2 ? std::min(seconds, 3 * mean.mean) : seconds, low ? memory / 4 : memory);
    point.rows.take(rows, memory);
  }

  /// Whether a step of about so many rows, or of fewer, was ever measured.
  bool reaches_down_to(int rows) const {
    return std::any_of(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(bucket_of(rows)) + 1,
                       [](const Point& point) { return point.seconds.count > 0; });
  }

  /// Beyond the measurements along their first and last lines; 0 without any. Fewer rows cost no more, and each of them
  /// no less.
  double at(double rows) const {
    const Point *low = nullptr, *high = nullptr;  // around the rows, or the two nearest
    double most = std::numeric_limits<double>::infinity();
    for (const Point& point : points_) {
      if (point.seconds.count == 0) continue;
      if (high == nullptr || low == nullptr || high->rows.mean < rows) low = std::exchange(high, &point);
      if (point.rows.mean >= rows) most = std::min(most, point.seconds.mean);
    }
    if (high == nullptr) return 0;
    if (low == nullptr) return high->seconds.mean;
    const double least = rows < low->rows.mean ? low->seconds.mean * rows / low->rows.mean : 0;
    return std::clamp(line(*low, *high, rows), least, std::max(most, least));
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
  /// Of a round, if each of its texts drafts so many tokens; without the prompts in it, which are to be read anyway.
  double seconds(int drafted, const Load& load) const {
    const double verify =
        verify_.at(load.texts) + verify_.at(load.rows + 1.0 * load.texts * drafted) - verify_.at(load.rows);
    return std::max(verify + drafted * draft_.at(load.texts), 1e-12);
  }
  /// Whether drafting could pay in a round if all that is drafted, at most `limit` tokens of a text, were accepted.
  bool could_pay(int limit, const Load& load) const {
    const double plain = seconds(0, load);
    for (int drafted = 1; drafted <= limit; ++drafted) {
      if ((1 + drafted) * plain > seconds(drafted, load)) return true;
    }
    return false;
  }
  /// Of a token that a text of the present round has verified besides its own, in plain steps of the text; nothing
  /// where no step of more rows was measured.
  std::optional<float> row_cost() const {
    constexpr int drafted = 4;  // of each text: few, and more than the noise of a measurement
    const double more = verify_.at(load_.rows + 1.0 * load_.texts * drafted) - verify_.at(load_.rows);
    if (more <= 0) return std::nullopt;
    return static_cast<float>(more / drafted / verify_.at(load_.texts));
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
}}
