// Options of load().
#pragma once

#include <functional>
#include <optional>
#include <type_traits>

#include "slm/formats/format.hpp"
#include "slm/formats/kv_format.hpp"

namespace slm { inline namespace v0_1 {

/// Storage type of the weights in memory.
enum class WeightType { as_stored, f32, f16, bf16 };

/// The weight type that a format stores. Only AnyFormat follows the request.
template <WeightFormat Format>
constexpr WeightType weight_type(WeightType asked) {
  if constexpr (std::is_same_v<Format, AnyFormat>) return asked;
  if constexpr (std::is_same_v<Format, Fp32>) return WeightType::f32;
  if constexpr (std::is_same_v<Format, Fp16>) return WeightType::f16;
  if constexpr (std::is_same_v<Format, Bf16>) return WeightType::bf16;
  return WeightType::as_stored;
}

/// head_tokens: only the logits of the tokens with the lowest ids, which byte-level BPE merged first, and of the tokens
/// of the text are computed. The other logits are minus infinity, so the model never chooses those tokens; as a draft
/// it reads fewer weights. Logits of the text's tokens may differ from the whole head's in the last digits. On the CPU,
/// for a head in floating point or GGUF blocks. Such a model has no adapters. bits: matrices of more than 4 or 8 bits
/// per weight are rounded to blocks of Q4_0 or Q8_0 during loading, which takes a few seconds per billion weights. As a
/// draft such a model reads fewer bytes; as a target it would be another model.
struct LoadOptions {
  WeightType weights = WeightType::as_stored;  // as_stored uses the mapped file without a copy
  int context = 0;                             // maximum tokens of a sequence; 0: the checkpoint's limit
  std::optional<KvFormat> cache_format = {};   // storage format of keys and values; none: the backend's first
  bool only_known = false;                     // refuse a shape outside the registry of load()
  int head_tokens = 0;                         // for drafts: see above; 0: all
  int bits = 0;                                // for drafts: see above; 4, 8, or 0: as stored
  std::function<void(double)> progress = {};   // called with values 0..1 during loading
};

}}
