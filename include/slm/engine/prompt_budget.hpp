// PromptBudget: how many rows of prompts a step has, so that it takes about as long as it may.
#pragma once

#include <algorithm>
#include <cstddef>

#include "slm/decode/request.hpp"

namespace slm::detail {

class PromptBudget {
 public:
  std::size_t rows() const { return rows_; }
  /// The coming step has so many.
  void spend(std::size_t rows) { full_ = rows == rows_; }

  /// The step took so many seconds, where it should take at most so many.
  void learn(double took, double most) {
    if (took > most) {
      rows_ = std::max(rows_ * 3 / 4, least_rows);
    } else if (full_ && took < 0.8 * most) {
      rows_ = std::min(rows_ + rows_ / 8, most_rows);
    }
  }

 private:
  static constexpr std::size_t least_rows = 32, most_rows = 2048;

  std::size_t rows_ = prompt_chunk;
  bool full_ = false;  // nothing of the step's is left
};

}  // namespace slm::detail
