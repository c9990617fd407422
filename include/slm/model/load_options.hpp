// How to load a model.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>

#include "slm/formats/format.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 {

/// How to store the weights in memory.
enum class WeightType { as_stored, f32, f16, bf16 };

/// How a model of a format stores them: AnyFormat alone does what is asked.
template <WeightFormat Format>
constexpr WeightType weight_type(WeightType asked) {
  if constexpr (std::is_same_v<Format, AnyFormat>) return asked;
  if constexpr (std::is_same_v<Format, Fp32>) return WeightType::f32;
  if constexpr (std::is_same_v<Format, Fp16>) return WeightType::f16;
  if constexpr (std::is_same_v<Format, Bf16>) return WeightType::bf16;
  return WeightType::as_stored;
}

struct LoadOptions {
  WeightType weights = WeightType::as_stored;  // as_stored uses the mapped file itself, without a copy
  int context = 0;                             // most tokens of a sequence; 0: what the checkpoint was trained for
  std::optional<KvFormat> cache_format = {};   // of keys and values; none: the backend's first
  bool only_known = false;                     // refuse a shape outside the registry that load() names
  std::function<void(double)> progress = {};   // called with 0..1 while loading
};

}}
