// Tensor: one named array of a checkpoint, as it lies in memory-mapped bytes. It owns nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm {

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;   // row-major; a weight is [out, in]
  const std::byte* bytes = nullptr;  // may be unaligned: safetensors promises nothing
  std::size_t size_bytes = 0;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
};

/// "[4096, 11008]"
inline std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string joined = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) joined += text(axis == 0 ? "" : ", ", shape[axis]);
  return joined + "]";
}

template <class T>
T load_unaligned(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace slm
