// StepShape: what two steps must share to be the same launches with the same arguments.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>

#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/plan.hpp"
#include "slm/core/draw.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Which launches a choice is. Each has those of the ones before it.
enum class Choice { none, greedy, race, cut_race };

inline Choice choice_of(const Draw& draw) {
  return draw.greedy() ? Choice::greedy : draw.cuts() ? Choice::cut_race : Choice::race;
}

/// Tokens, positions, pages and draws are read from device memory. What shows in a grid or in an address is here, and
/// rounded up where steps may be recorded, so that few records serve many steps.
struct StepShape {
  bool recordable = false;
  int rows = 0;
  int sequences = 0;
  int longest = 0;  // most rows of a sequence
  int outputs = 0;
  bool all_rows = false;  // every row is an output
  int steps = 1;          // in one record, each but the first of the outputs
  Choice choice = {};     // the hardest of all outputs
  int chunks = 0;         // of the longest text
  KvFormat format = {};   // of the pages
  bool adapted = false;   // some row has an adapter
  int generation = 0;     // of the memory that launches name

  auto operator<=>(const StepShape&) const = default;

  /// Rows that so many are filled up to: a product of up to eight takes as long as one of eight.
  static int filled_up(int rows) {
    if (rows <= 8) return rows;
    const int unit = rows <= 16 ? 4 : 16;
    return (rows + unit - 1) / unit * unit;
  }

  static int power_of_two(int number) {
    int power = 1;
    while (power < number) power *= 2;
    return power;
  }

  /// Chunks of attention's keys for a recorded text of that many positions.
  static int chunks_of(int positions) { return power_of_two((positions + chunk - 1) / chunk); }

  /// Of a plan; steps of more than `most` rows are not recorded.
  static StepShape of(const StepPlan& plan, int most, int generation) {
    StepShape shape{.rows = static_cast<int>(plan.rows.size()),
                    .sequences = static_cast<int>(plan.sequences.size()),
                    .outputs = static_cast<int>(plan.outputs.size()),
                    .steps = plan.steps,
                    .format = plan.format,
                    .adapted = has_adapters(plan),
                    .generation = generation};
    shape.recordable = shape.rows <= most;
    shape.all_rows = shape.outputs == shape.rows;
    for (const Draw& draw : plan.draws) shape.choice = std::max(shape.choice, choice_of(draw));
    int end = 0;
    for (const PlanSequence& sequence : plan.sequences) {
      const PlanRow& last = plan.rows[static_cast<std::size_t>(sequence.first_row + sequence.rows - 1)];
      shape.longest = std::max(shape.longest, sequence.rows);
      end = std::max(end, last.position + plan.steps);
    }
    shape.chunks = (end + chunk - 1) / chunk;
    if (!shape.recordable) return shape;
    shape.rows = filled_up(shape.rows);
    shape.sequences = filled_up(shape.sequences);
    shape.longest = power_of_two(shape.longest);
    shape.outputs = filled_up(shape.outputs);
    shape.chunks = power_of_two(shape.chunks);
    return shape;
  }
};

}}}
