// encode_blocks: encodes a tensor as GGUF blocks, in parallel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "slm/awq/parallel.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/gguf_encode.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// Throws quantize.overflow if a value exceeds the range of F16 scales. name: of the tensor.
inline std::vector<std::byte> encode_blocks(DType type, std::span<const float> values, std::string_view name,
                                            backend::ThreadPool& pool) {
  for (const float value : values) {
    if (std::abs(value) <= 65504) continue;  // false for NaN
    throw Error("quantize.overflow",
                text("'", name, "' holds ", value, ", which exceeds the range of blocks with F16 scales"),
                "Check the model's weights");
  }
  const auto block = static_cast<std::size_t>(values_of_block(type));
  std::vector<std::byte> bytes(values.size() / block * bytes_of(type));
  parallel_for(pool, static_cast<std::int64_t>(values.size() / block), [&](std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    encode(type, &values[i * block], &bytes[i * bytes_of(type)]);
  });
  return bytes;
}

}}}
