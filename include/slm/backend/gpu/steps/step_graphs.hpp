// StepGraphs: the recorded launches of a model's steps, by the step's shape.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "slm/backend/gpu/runtime/runtime.hpp"
#include "slm/backend/gpu/steps/step_shape.hpp"

namespace slm::inline v0_1::gpu {

/// Owned by a model, whose buffers the launches name.
template <Runtime R>
class StepGraphs {
 public:
  static constexpr std::size_t most = 256;  // a record takes device memory

  /// Does what body() launches, which must be the same for all steps of a shape. The first step of a shape runs as it
  /// is, since it may need more memory; the second is recorded; from then on the record is replayed.
  template <class Body>
  void run(const StepShape& shape, R& runtime, typename R::Stream& stream, Body&& body) {
    const bool full = graphs_.size() == most && !graphs_.contains(shape);
    if (!graphs_.empty() && (full || shape.generation != generation_)) {
      runtime.synchronize(stream);
      graphs_.clear();
    }
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
