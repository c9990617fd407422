// Grid: the ranks of a model as pipeline stages of one or several ranks each.
#pragma once

#include <optional>

#include "slm/ranks/communicator.hpp"

namespace slm { inline namespace v0_1 { namespace ranks {

/// Adjacent ranks form a stage. The first stage begins with rank 0, or with rank 1 if rank 0 only controls. A lane is
/// one rank of each stage; these pass the residual stream from stage to stage.
template <Communicator C>
struct Grid {
  C all;
  int apart;  // ranks before the first stage: 0 or 1
  int stages;
  int lanes;  // ranks per stage
  int stage;  // stage of this rank; -1: it only controls
  int lane;
  C peers;                    // the ranks of this stage, ordered by lane
  std::optional<C> previous;  // pair with this lane's rank in the previous stage, as its root; none in the first stage
  std::optional<C> next;      // pair with this lane's rank in the next stage; none in the last stage
  std::optional<C> ends;  // rank 0 and the first rank of the last stage; none on other ranks, or if they are the same

  /// Collective. of_stages must divide the number of computing ranks.
  explicit Grid(const C& ranks, int of_stages = 1, bool first_only_controls = false)
      : all(ranks),
        apart(first_only_controls ? 1 : 0),
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
  /// One collective split into pairs of a root and another rank, one pair per colour.
  void pair(bool root, bool other, int color, std::optional<C>& of_root, std::optional<C>& of_other) {
    C group = all.split(root || other ? color : lanes, all.rank());
    if (root) of_root = group;
    if (other) of_other = group;
  }
};

}}}
