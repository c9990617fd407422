// StepShape: the properties that two steps must share to use the same launches with the same arguments.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <span>

#include "slm/backend/gpu/weights/keys.hpp"
#include "slm/backend/plan.hpp"
#include "slm/core/draw.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// The kernels of a choice. Each value includes those of the previous ones.
enum class Choice { none, greedy, race, cut_race };

inline Choice choice_of(const Draw& draw) {
  return draw.greedy() ? Choice::greedy : draw.cuts() ? Choice::cut_race : Choice::race;
}

inline Choice hardest_of(std::span<const Draw> draws) {
  Choice hardest = Choice::none;
  for (const Draw& draw : draws) hardest = std::max(hardest, choice_of(draw));
  return hardest;
}

/// Tokens, positions, pages and draws are read from device memory. Values that affect a grid or an address are here,
/// rounded up if steps may be recorded, so that few records serve many steps.
struct StepShape {
  bool recordable = false;
  int rows = 0;
  int sequences = 0;
  int longest = 0;  // maximum rows per sequence
  int outputs = 0;
  bool all_rows = false;   // every row is an output
  int steps = 1;           // steps in one record; all but the first run on the outputs
  Choice choice = {};      // the most complex of all outputs; none for a choice by masks, which is not recorded
  int chunks = 0;          // of the longest sequence
  KvFormat format = {};    // of the pages
  bool adapted = false;    // any row has an adapter
  bool recurrent = false;  // the plan has states
  int generation = 0;      // generation of the memory that launches reference

  auto operator<=>(const StepShape&) const = default;

  /// Padded number of rows. A product of up to eight rows takes as long as one of eight.
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

  /// Attention chunks of a recorded sequence of `positions` positions.
  static int chunks_of(int positions) { return power_of_two((positions + chunk - 1) / chunk); }

  /// The shape of a plan; steps of more than `most` rows are not recorded.
  static StepShape of(const StepPlan& plan, int most, int generation) {
    StepShape shape{.rows = static_cast<int>(plan.rows.size()),
                    .sequences = static_cast<int>(plan.sequences.size()),
                    .outputs = static_cast<int>(plan.outputs.size()),
                    .steps = plan.steps,
                    .format = plan.format,
                    .adapted = has_adapters(plan),
                    .recurrent = !plan.states.empty(),
                    .generation = generation};
    shape.recordable = shape.rows <= most;
    shape.all_rows = shape.outputs == shape.rows;
    if (plan.masks.empty()) shape.choice = hardest_of(plan.draws);
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
