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
  /// most: rows of any step.
  explicit PromptBudget(std::size_t most) : most_rows_(std::max<std::size_t>(most, 1)) {}

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
      rows_ = std::max(rows_ * 3 / 4, least_rows_);
    } else if (left_ == 0 && took < 0.8 * most) {
      rows_ = std::min(rows_ + rows_ / 8, most_rows_);
    }
  }

 private:
  /// The most rows whose step is expected to end in time.
  std::size_t fitting(double seconds) const {
    std::size_t fits = 1;
    for (std::size_t more = rows_; more > 0; more /= 2) {
      while (fits + more <= rows_ && seconds_.at(static_cast<double>(fits + more)) <= seconds) fits += more;
    }
    return seconds_.at(1) == 0 ? least_rows_ : fits;
  }

  std::size_t most_rows_, least_rows_ = std::min<std::size_t>(32, most_rows_);
  std::size_t rows_ = std::min(prompt_chunk, most_rows_);
  std::size_t limit_ = 0, left_ = 0;   // of the current step
  draft_length::StepSeconds seconds_;  // of steps by their prompt rows
};

}}}
