// activation_scales: AWQ scales of an activation that no preceding norm could absorb.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"
#include "slm/io/checkpoint.hpp"

namespace slm { inline namespace v0_1 {

/// Returns AWQ's scales of an activation (MPT, Bloom, Falcon, StarCoder2 and others); the activation's output is
/// divided by them element-wise. module: name of the activation, "transformer.blocks.0.ffn.act".   [width]
inline std::optional<Tensor> activation_scales(const Checkpoint& checkpoint, const std::string& module,
                                               std::int64_t width) {
  const Tensor* scales = checkpoint.find(module + ".scales");
  if (!scales) return std::nullopt;
  const Tensor& checked = checkpoint.tensor(scales->name, {width});
  for (std::int64_t i = 0; i < width; ++i) {
    float value = 0;
    convert(checked, i, 1, &value);
    if (std::isfinite(value) && value != 0) continue;
    throw Error("quant.non-finite",
                text("'", checkpoint.folder().string(), "': '", scales->name, "' [", i, "] is ",
                     value == 0 ? "0" : "not finite", ", and activations are divided by it"),
                "Quantize the model again");
  }
  return checked;
}

}}
