// StepGraphs: the recorded launches of a model's steps, by the step's shape.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <optional>

#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/chooser.hpp"
#include "slm/backend/gpu/weights/keys.hpp"

namespace slm::gpu {

/// What two steps must share to be the same launches. Positions, tokens and draws are read from device memory; only the
/// number of attention's chunks shows in a grid, so it is rounded up to a power of two.
struct StepShape {
  int rows = 0;        // of the first step
  int steps = 1;       // in one graph, each but the first of one row
  int chosen = 0;      // rows of a step for which tokens are chosen
  Choice choice = {};  // and how
  int chunks = 0;
  int variant = 0;     // of the model's own: LongRoPE's table
  int generation = 0;  // of the scratch memory that the launches name

  auto operator<=>(const StepShape&) const = default;

  /// Chunks of attention's keys for a text of that many positions.
  static int chunks_of(int positions) {
    int chunks = 1;
    while (chunks * chunk < positions) chunks *= 2;
    return chunks;
  }
};

/// Owned by a model, whose buffers the launches name.
template <Runtime R>
class StepGraphs {
 public:
  /// Does what body() launches, which must be the same for all steps of a shape. The first step of a shape runs as it
  /// is, since it may need more scratch memory; the second is recorded; from then on the record is replayed.
  template <class Body>
  void run(const StepShape& shape, R& runtime, typename R::Stream& stream, Body&& body) {
    if (shape.generation != generation_) graphs_.clear();
    generation_ = shape.generation;
    const auto [found, first] = graphs_.try_emplace(shape);
    if (first) return body();
    if (!found->second) {
      runtime.begin_capture(stream);
      try {
        body();
      } catch (...) {
        static_cast<void>(runtime.end_capture(stream));
        throw;
      }
      found->second.emplace(runtime.end_capture(stream));
    }
    runtime.replay(*found->second, stream);
  }

 private:
  std::map<StepShape, std::optional<typename R::Graph>> graphs_;
  int generation_ = 0;
};

}  // namespace slm::gpu
