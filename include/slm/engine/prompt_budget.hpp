// PromptBudget: limits prompt rows per step to meet a target duration.
#pragma once

#include <algorithm>
#include <cstddef>

#include "slm/decode/request.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class PromptBudget {
 public:
  void begin_step() { left_ = rows_; }
  /// Takes up to `rows` rows from the step's budget. Returns the number granted.
  std::size_t take(std::size_t rows) {
    rows = std::min({rows, left_, prompt_chunk});
    left_ -= rows;
    return rows;
  }

  /// Adapts the budget. took, most: actual and maximum seconds of the step.
  void learn(double took, double most) {
    if (took > most) {
      rows_ = std::max(rows_ * 3 / 4, least_rows);
    } else if (left_ == 0 && took < 0.8 * most) {
      rows_ = std::min(rows_ + rows_ / 8, most_rows);
    }
  }

 private:
  static constexpr std::size_t least_rows = 32, most_rows = 2048;

  std::size_t rows_ = prompt_chunk;
  std::size_t left_ = 0;  // of the current step
};

}}}
