// RopeTable: cosines and sines of a step's positions, computed once and read by every layer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/backend/concept.hpp"

namespace slm { inline namespace v0_1 { namespace backend {

class RopeTable {
 public:
  struct Angles {
    const float* cosine = nullptr;  // [rows, half]
    const float* sine = nullptr;
  };

  /// Begins a new step.
  void forget() { frequencies_[0] = nullptr; }

  /// The angles of the plan's rows: cosines and sines of the float product position * inverse_frequency, times the
  /// rope's factor. Computed at the first call of a step; valid until the next step.
  Angles angles(const StepPlan& plan, const Rope& rope, int half) {
    const float* const first = rope.inverse_frequency[0];
    if (frequencies_[0] != first || frequencies_[1] != rope.inverse_frequency[1] || factor_ != rope.factor ||
        half_ != half) {
      cosine_.clear();
      sine_.clear();
      for (const PlanRow& row : plan.rows) {
        const float* const frequencies =
            rope.inverse_frequency[plan.sequences[static_cast<std::size_t>(row.sequence)].rope];
        for (int i = 0; i < half; ++i) {
          const float angle = static_cast<float>(row.position) * frequencies[i];
          cosine_.push_back(std::cos(angle) * rope.factor);
          sine_.push_back(std::sin(angle) * rope.factor);
        }
      }
      frequencies_[0] = first;
      frequencies_[1] = rope.inverse_frequency[1];
      factor_ = rope.factor;
      half_ = half;
    }
    return {cosine_.data(), sine_.data()};
  }

 private:
  const float* frequencies_[2] = {};  // parameters of the stored angles
  float factor_ = 1;
  int half_ = 0;
  std::vector<float> cosine_;  // [rows, half]
  std::vector<float> sine_;
};

}}}
