// Grid: the ranks of a model as the stages of a pipeline, of one rank or several each.
#pragma once

#include <optional>

#include "slm/ranks/communicator.hpp"

namespace slm::inline v0_1::ranks {

/// Neighbouring ranks make a stage; the first of the first stage is rank 0. A lane is one rank of each stage, which
/// hand on to each other what their stages have computed.
template <Communicator C>
struct Grid {
  C all;
  int stages;
  int lanes;  // ranks of a stage
  int stage;  // of this rank
  int lane;
  C peers;                    // the ranks of this stage, by their lanes
  std::optional<C> previous;  // its root: this lane's rank in the stage before; none in the first stage
  std::optional<C> next;      // its other rank: this lane's in the stage behind; none in the last stage
  std::optional<C> ends;      // rank 0, and the first of the last stage; elsewhere, and where there is one stage, none

  /// All ranks at once. of_stages divides their number.
  explicit Grid(const C& ranks, int of_stages = 1)
      : all(ranks),
        stages(of_stages),
        lanes(ranks.size() / of_stages),
        stage(ranks.rank() / lanes),
        lane(ranks.rank() % lanes),
        peers(of_stages == 1 ? ranks : ranks.split(stage, lane)) {
    for (int first = 0; first + 1 < stages; ++first) pair(stage == first, stage == first + 1, lane, next, previous);
    if (stages > 1) pair(lane == 0 && stage == 0, lane == 0 && stage == stages - 1, 0, ends, ends);
  }

  bool is_last() const { return stage == stages - 1; }

 private:
  /// One step of splitting, which all ranks take part in: pairs of a root and another, one of each colour.
  void pair(bool root, bool other, int color, std::optional<C>& of_root, std::optional<C>& of_other) {
    C group = all.split(root || other ? color : lanes, all.rank());
    if (root) of_root = group;
    if (other) of_other = group;
  }
};

}  // namespace slm::ranks
