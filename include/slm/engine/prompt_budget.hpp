// PromptBudget: limits prompt rows per step to meet a target duration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "slm/decode/request.hpp"
#include "slm/decode/step_seconds.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class PromptBudget {
 public:
  /// seconds: the time for the step; none: only learn() limits it. Grants at least one row.
  void begin_step(std::optional<double> seconds = {}) { limit_ = left_ = seconds ? fitting(*seconds) : rows_; }
  /// Takes up to `rows` rows from the step's budget. Returns the number granted.
  std::size_t take(std::size_t rows) {
    rows = std::min({rows, left_, prompt_chunk});
    left_ -= rows;
    return rows;
  }

  /// Adapts the budget. took, most: actual and maximum seconds of the step.
  void learn(double took, double most) {
    seconds_.take(static_cast<int>(limit_ - left_), took);
    if (limit_ < rows_) return;
    if (took > most) {
      rows_ = std::max(rows_ * 3 / 4, least_rows);
    } else if (left_ == 0 && took < 0.8 * most) {
      rows_ = std::min(rows_ + rows_ / 8, most_rows);
    }
  }

 private:
  /// The most rows whose step is expected to end in time.
  std::size_t fitting(double seconds) const {
    std::size_t fits = 1;
    for (std::size_t more = rows_; more > 0; more /= 2) {
      while (fits + more <= rows_ && seconds_.at(static_cast<double>(fits + more)) <= seconds) fits += more;
    }
    return seconds_.at(1) == 0 ? std::min(least_rows, rows_) : fits;
  }

  static constexpr std::size_t least_rows = 32, most_rows = 2048;

  std::size_t rows_ = prompt_chunk;
  std::size_t limit_ = 0, left_ = 0;   // of the current step
  draft_length::StepSeconds seconds_;  // of steps by their prompt rows
};

}}}
