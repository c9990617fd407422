// Grid: the ranks of a model as the stages of a pipeline, of one rank or several each.
#pragma once

#include <optional>

#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Neighbouring ranks make a stage; the first of the first stage is rank 0, or rank 1 where rank 0 stands apart, asks,
/// and is answered. A lane is one rank of each stage, which hand on to each other what their stages have computed.
template <Communicator C>
struct Grid {
  C all;
  int apart;  // ranks before the first stage: 0 or 1
  int stages;
  int lanes;  // ranks of a stage
  int stage;  // of this rank; -1: it stands apart
  int lane;
  C peers;                    // the ranks of this stage, by their lanes
  std::optional<C> previous;  // its root: this lane's rank in the stage before; none in the first stage
  std::optional<C> next;      // its other rank: this lane's in the stage behind; none in the last stage
  std::optional<C> ends;      // rank 0, and the first of the last stage; elsewhere, and where they are one, none

  /// All ranks at once. of_stages divides the number of those that do not stand apart.
  explicit Grid(const C& ranks, int of_stages = 1, bool first_stands_apart = false)
      : all(ranks),
        apart(first_stands_apart ? 1 : 0),
        stages(of_stages),
        lanes((ranks.size() - apart) / of_stages),
        stage(stage_of(ranks.rank())),
        lane(lane_of(ranks.rank())),
        peers(of_stages == 1 && apart == 0 ? ranks : ranks.split(stage < 0 ? stages : stage, lane)) {
    for (int first = 0; first + 1 < stages; ++first) pair(stage == first, stage == first + 1, lane, next, previous);
    if (stages + apart > 1) pair(all.rank() == 0, lane == 0 && is_last(), 0, ends, ends);
  }

  bool is_last() const { return stage == stages - 1; }

  int stage_of(int rank) const { return rank < apart ? -1 : (rank - apart) / lanes; }
  int lane_of(int rank) const { return rank < apart ? 0 : (rank - apart) % lanes; }

 private:
  /// One step of splitting, which all ranks take part in: pairs of a root and another, one of each colour.
  void pair(bool root, bool other, int color, std::optional<C>& of_root, std::optional<C>& of_other) {
    C group = all.split(root || other ? color : lanes, all.rank());
    if (root) of_root = group;
    if (other) of_other = group;
  }
};

}}}
