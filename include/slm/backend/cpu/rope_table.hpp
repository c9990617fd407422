// RopeTable: cosines and sines of a step's positions, computed once and read by every layer.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
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
  void forget() { tables_[0].frequencies[0] = tables_[1].frequencies[0] = nullptr; }

  /// The angles of the plan's rows: cosines and sines of the float product position * inverse_frequency, times the
  /// rope's factor. Computed at the first call of a step; valid until the next step. Layers of a model have at most two
  /// different ropes.
  Angles angles(const StepPlan& plan, const Rope& rope, int half) {
    for (const Table& table : tables_) {
      if (table.is(rope, half)) return table.angles();
    }
    if (tables_[0].frequencies[0] != nullptr) std::swap(tables_[0], tables_[1]);  // replaces the older one
    Table& table = tables_[0];
    table.cosine.clear();
    table.sine.clear();
    for (const PlanRow& row : plan.rows) {
      const float* const frequencies =
          rope.inverse_frequency[plan.sequences[static_cast<std::size_t>(row.sequence)].rope];
      for (int i = 0; i < half; ++i) {
        const float angle = static_cast<float>(row.position) * frequencies[i];
        table.cosine.push_back(std::cos(angle) * rope.factor);
        table.sine.push_back(std::sin(angle) * rope.factor);
      }
    }
    table.frequencies[0] = rope.inverse_frequency[0];
    table.frequencies[1] = rope.inverse_frequency[1];
    table.factor = rope.factor;
    table.half = half;
    return table.angles();
  }

 private:
  struct Table {
    const float* frequencies[2] = {};  // parameters of the angles
    float factor = 1;
    int half = 0;
    std::vector<float> cosine;  // [rows, half]
    std::vector<float> sine;

    bool is(const Rope& rope, int width) const {
      return frequencies[0] == rope.inverse_frequency[0] && frequencies[1] == rope.inverse_frequency[1] &&
             factor == rope.factor && half == width;
    }
    Angles angles() const { return {cosine.data(), sine.data()}; }
  };
  Table tables_[2];
};

}}}
