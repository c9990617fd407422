// ExpertScratch: the rows of a step's mixture of experts, grouped by expert, and scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/mixture.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

/// The rows that chose one expert. They are adjacent in the buffers of the experts.
struct ExpertGroup {
  int expert = 0;
  int first = 0;  // place of its first row
  int rows = 0;
  std::int64_t packed = 0;  // offset of its packed rows
  std::int64_t inner = 0;   // offset of its inner activations
  int first_task = 0;
};

struct ExpertScratch {
  PageBuffer<float> normed;    // [rows, hidden]
  PageBuffer<float> logits;    // [rows, experts]
  PageBuffer<float> gathered;  // [places, hidden]: the inputs of the experts, then their results
  PageBuffer<float> inner;     // [places, ffn of the expert]
  PageBuffer<float> whole;     // what ranks gather
  PageBuffer<float> packed;
  std::vector<Choice> choices;  // [rows, experts of a row]
  std::vector<int> places;      // of each choice
  std::vector<ExpertGroup> groups;
  std::vector<int> counts;

  /// Groups the choices by expert. A group has its rows in ascending order.
  void group(int experts) {
    counts.assign(static_cast<std::size_t>(experts), 0);
    for (const Choice& choice : choices) ++counts[static_cast<std::size_t>(choice.expert)];
    groups.clear();
    int place = 0;
    for (int e = 0; e < experts; ++e) {
      int& count = counts[static_cast<std::size_t>(e)];
      if (count > 0) groups.push_back({.expert = e, .first = place, .rows = count});
      place += count;
      count = place - count;  // from now on: the place of its next row
    }
    places.resize(choices.size());
    for (std::size_t i = 0; i < choices.size(); ++i) places[i] = counts[static_cast<std::size_t>(choices[i].expert)]++;
  }

  /// The group of a task.
  const ExpertGroup& group_of(int task) const {
    return *std::prev(std::upper_bound(groups.begin(), groups.end(), task,
                                       [](int index, const ExpertGroup& group) { return index < group.first_task; }));
  }

  int most_rows() const {
    int most = 0;
    for (const ExpertGroup& group : groups) most = std::max(most, group.rows);
    return most;
  }
};

}}}
