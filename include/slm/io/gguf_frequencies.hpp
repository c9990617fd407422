// Divisors of rotary frequencies in a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/io/gguf_file.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// One positive number per rotary frequency, from a tensor. stills: numbers from 1e30 on mean that a pair does not
/// turn.
inline std::vector<float> gguf_divisors(const GgufFile& file, std::string_view name, int rotary_dim,
                                        bool stills = false) {
  const GgufTensor* const found = file.find(name);
  if (found == nullptr) {
    throw Error("checkpoint.missing-tensor", text("'", file.fields().file(), "' has no tensor '", name, "'"),
                "Convert the model again, or get its file from another source");
  }
  const std::vector<std::int64_t> expected{rotary_dim / 2};
  if (found->shape != expected || found->type->dtype != DType::f32) {
    throw Error("checkpoint.wrong-shape",
                text("'", file.fields().file(), "': tensor '", name, "' is ", found->type->name, " ",
                     shape_text(found->shape), ", expected F32 ", shape_text(expected)),
                "Convert the model again, or get its file from another source");
  }
  std::vector<float> values(static_cast<std::size_t>(expected[0]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_unaligned<float>(found->bytes + i * sizeof(float));
    if (stills && values[i] >= 1e30f) {
      values[i] = std::numeric_limits<float>::infinity();
    } else if (!(values[i] >= 1e-3f && values[i] <= 1e6f)) {
      throw Error("gguf.bad-frequencies",
                  text("'", file.fields().file(), "': '", name, "' [", i, "] is ", values[i],
                       ", expected a number of 0.001..1000000"),
                  "Convert the model again, or get its file from another source");
    }
  }
  return values;
}

}}}
