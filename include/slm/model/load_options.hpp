// How to load a model.
#pragma once

#include <functional>
#include <optional>

#include "slm/formats/kv_format.hpp"

namespace slm::inline v0_1 {

/// How to store the weights in memory.
enum class WeightType { as_stored, f32, f16, bf16 };

struct LoadOptions {
  WeightType weights = WeightType::as_stored;  // as_stored uses the mapped file itself, without a copy
  int context = 0;                             // most tokens of a sequence; 0: what the checkpoint was trained for
  std::optional<KvFormat> cache_format = {};   // of keys and values; none: the backend's first
  bool only_known = false;                     // refuse a shape outside the registry instead of running it as Dynamic
  std::function<void(double)> progress = {};   // called with 0..1 while loading
};

}  // namespace slm
