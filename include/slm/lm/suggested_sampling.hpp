// SuggestedSampling: sampling defaults of a model.
#pragma once

#include <optional>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Sampling defaults recommended by a checkpoint; absent fields are not stated.
struct SuggestedSampling {
  std::optional<float> temperature = {};  // 0: greedy
  std::optional<int> top_k = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};

  bool operator==(const SuggestedSampling&) const = default;
};

}}
