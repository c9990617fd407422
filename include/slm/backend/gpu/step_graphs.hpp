// StepGraphs: the recorded launches of a model's steps, by the step's shape.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <optional>

#include "slm/backend/gpu/keys.hpp"
#include "slm/backend/gpu/runtime.hpp"

namespace slm::gpu {

/// What two steps must share to be the same launches. Positions and tokens are read from device memory; only the number
/// of attention's chunks shows in a grid, so it is rounded up to a power of two.
struct StepShape {
  int rows = 0;
  int chunks = 0;
  int variant = 0;     // of the model's own: LongRoPE's table
  int generation = 0;  // of the scratch memory that the launches name

  auto operator<=>(const StepShape&) const = default;

  static StepShape of(int rows, int position, int variant, int generation) {
    const int needed = (position + rows - 1) / chunk + 1;
    int chunks = 1;
    while (chunks < needed) chunks *= 2;
    return {rows, chunks, variant, generation};
  }
};

/// Owned by a model, whose buffers the launches name. The first step of a shape runs as it is, so that scratch memory
/// can grow; the second is recorded; then they are replayed.
template <Runtime R>
class StepGraphs {
 public:
  enum class Next { run, record, replay };

  Next next(const StepShape& shape) {
    const auto found = graphs_.find(shape);
    if (found == graphs_.end()) return graphs_.emplace(shape, std::nullopt), Next::run;
    return found->second ? Next::replay : Next::record;
  }
  const typename R::Graph& graph(const StepShape& shape) const { return *graphs_.at(shape); }
  void keep(const StepShape& shape, typename R::Graph graph) { graphs_.at(shape).emplace(std::move(graph)); }
  std::size_t recorded() const {
    return static_cast<std::size_t>(
        std::count_if(graphs_.begin(), graphs_.end(), [](const auto& entry) { return entry.second.has_value(); }));
  }

 private:
  std::map<StepShape, std::optional<typename R::Graph>> graphs_;
};

}  // namespace slm::gpu
