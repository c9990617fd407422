// StepSeconds: measured step times by number of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "slm/core/macros.hpp"

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

/// The median of the last values, the lower one of two: unlike the mean it ignores a few slow steps, such as the first.
class Median {
 public:
  void take(double value) {
    values_[static_cast<std::size_t>(next_)] = value;
    next_ = (next_ + 1) % most;
    count_ = std::min(count_ + 1, most);
    std::array<double, most> sorted = values_;
    const auto middle = sorted.begin() + (count_ - 1) / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count_);
    value_ = *middle;
  }
  double value() const { return value_; }
  int count() const { return count_; }

 private:
  static constexpr int most = 15;
  std::array<double, most> values_{};
  int next_ = 0, count_ = 0;
  double value_ = 0;
};

/// Step time by number of rows: measured medians with linear interpolation.
class StepSeconds {
 public:
  void take(int rows, double seconds) {
    Point& point = points_[bucket_of(rows)];
    point.seconds.take(seconds);
    point.rows.take(rows, memory);
  }

  /// Whether a step of about `rows` rows or fewer was measured.
  bool reaches_down_to(int rows) const {
    return std::any_of(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(bucket_of(rows)) + 1,
                       [](const Point& point) { return point.seconds.count() > 0; });
  }

  /// Number of measured steps of more than `rows` rows, and about `most` or fewer; old steps do not count.
  int count_above(int rows, int most) const {
    return std::accumulate(points_.begin() + static_cast<std::ptrdiff_t>(bucket_of(rows)) + 1,
                           points_.begin() + static_cast<std::ptrdiff_t>(bucket_of(most)) + 1, 0,
                           [](int sum, const Point& point) { return sum + point.seconds.count(); });
  }

  /// Extrapolates linearly from the outermost measurements; 0 if there are none. Monotone: fewer rows never cost more
  /// in total.
  double at(double rows) const {
    const Point *low = nullptr, *high = nullptr;  // the neighbours of `rows`, or the two nearest points
    double most = std::numeric_limits<double>::infinity();
    for (const Point& point : points_) {
      if (point.seconds.count() == 0) continue;
      if (high == nullptr || low == nullptr || high->rows.mean < rows) low = std::exchange(high, &point);
      if (point.rows.mean >= rows) most = std::min(most, point.seconds.value());
    }
    if (high == nullptr) return 0;
    if (low == nullptr) return high->seconds.value();
    const double least = rows < low->rows.mean ? low->seconds.value() * rows / low->rows.mean : 0;
    return std::clamp(line(*low, *high, rows), least, std::max(most, least));
  }

 private:
  struct Point {
    Average rows;
    Median seconds;
  };

  static constexpr int memory = 24;
  static constexpr int exact =
      16;  // row counts up to this have one point each; above, there are four points per doubling

  static std::size_t bucket_of(int rows) {
    if (rows <= exact) return static_cast<std::size_t>(std::max(rows, 1) - 1);
    const double doublings = std::log2(static_cast<double>(rows) / exact);
    return std::min(static_cast<std::size_t>(exact + 4 * doublings), std::tuple_size_v<Points> - 1);
  }

  static double line(const Point& low, const Point& high, double rows) {
    const double slope = (high.seconds.value() - low.seconds.value()) / (high.rows.mean - low.rows.mean);
    return low.seconds.value() + std::max(slope, 0.0) * (rows - low.rows.mean);
  }

  using Points = std::array<Point, 64>;
  Points points_;
};

}  // namespace draft_length
}}
