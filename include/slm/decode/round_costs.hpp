// RoundCosts: measured step times and acceptance rates, shared by all requests of a decoder or engine.
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

/// Upper limit of draft lengths; scratch memory grows with it.
inline constexpr int most_draft_tokens = 256;

namespace draft_length {

/// The arithmetic mean of the first `memory` values, then an exponential moving average.
struct Average {
  double mean = 0;
  int count = 0;

  void take(double value, int memory) {
    count = std::min(count + 1, memory);
    mean += (value - mean) / count;
  }
};

/// Step time by number of rows: measured averages with linear interpolation.
class StepSeconds {
 public:
  void take(int rows, double seconds) {
    Point& point = points_[bucket_of(rows)];
    // Other processes slow steps down but never speed them up. Low values therefore weigh more, and outliers are
    // clamped.
    Average& mean = point.seconds;
    const bool low = mean.count > 0 && seconds < mean.mean;
    mean.take(mean.count > 2 ? std::min(seconds, 3 * mean.mean) : seconds, low ? memory / 4 : memory);
    point.rows.take(rows, memory);
  }

  /// Whether a step of about `rows` rows or fewer was measured.
  bool reaches_down_to(int rows) const {
    return std::any_of(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(bucket_of(rows)) + 1,
                       [](const Point& point) { return point.seconds.count > 0; });
  }

  /// Extrapolates linearly from the outermost measurements; 0 if there are none. Monotone: fewer rows never cost more
  /// in total.
  double at(double rows) const {
    const Point *low = nullptr, *high = nullptr;  // the neighbours of `rows`, or the two nearest points
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
  static constexpr int exact =
      16;  // row counts up to this have one point each; above, there are four points per doubling

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

/// Work of a round besides drafting.
struct Load {
  int texts = 0;  // sequences that decode, one row each
  int rows = 0;   // rows of the target's step: decoding sequences and prompts
};

/// Shared by all sequences of a decoder or an engine. Sequences of a round wait for each other's drafts and share each
/// other's rows. The cost of drafting K tokens is therefore that of a round in which all draft K.
class RoundCosts {
 public:
  /// present: sequences that decode or will decode, including those waiting to be read.
  void begin_round(const Load& load, int present) {
    load_ = load;
    later_ = {present, present};
    ++rounds_;
  }
  /// Returns the index of a new text, from 0.
  long begin_text() { return texts_++; }
  /// Number of rounds so far, the current one included.
  long rounds() const { return rounds_; }

  /// Records drafting time. texts: sequences without a backlog. steps: the longest draft among them.
  void took_draft(int texts, int steps, double seconds) { draft_.take(texts, seconds / steps); }
  /// Records the time of the target's step and of choosing tokens.
  void took_verification(int rows, double seconds) { verify_.take(rows, seconds); }
  void saw(int depth, bool accepted) { depths_[index(depth)].take(accepted ? 1.0 : 0.0, acceptance_memory); }

  /// Load of the current round, and of a round in which all present sequences decode.
  const Load& now() const { return load_; }
  const Load& later() const { return later_; }

  bool know_plain_steps() const { return verify_.reaches_down_to(load_.rows); }
  bool know_drafts() const { return draft_.reaches_down_to(most_rows); }
  /// Seconds of a round in which each decoding sequence drafts `drafted` tokens. Excludes prompt rows, which are read
  /// anyway.
  double seconds(int drafted, const Load& load) const {
    const double verify =
        verify_.at(load.texts) + verify_.at(load.rows + 1.0 * load.texts * drafted) - verify_.at(load.rows);
    return std::max(verify + drafted * draft_.at(load.texts), 1e-12);
  }
  /// Whether drafting could increase throughput if up to `limit` drafted tokens per sequence were all accepted.
  bool could_pay(int limit, const Load& load) const {
    const double plain = seconds(0, load);
    for (int drafted = 1; drafted <= limit; ++drafted) {
      if ((1 + drafted) * plain > seconds(drafted, load)) return true;
    }
    return false;
  }
  /// Cost of verifying one more token per sequence in the current round, in plain steps of the sequence; nothing if no
  /// step with more rows was measured.
  std::optional<float> row_cost() const {
    constexpr int drafted = 4;  // per sequence: few, but above measurement noise
    const double more = verify_.at(load_.rows + 1.0 * load_.texts * drafted) - verify_.at(load_.rows);
    if (more <= 0) return std::nullopt;
    return static_cast<float>(more / drafted / verify_.at(load_.texts));
  }
  /// Acceptance rate of the token at `depth` (from 1), given that all earlier ones were accepted.
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
