// Tensor: one named array of a checkpoint, usually in memory-mapped bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;   // row-major; a weight is [out, in]
  const std::byte* bytes = nullptr;  // may be unaligned: safetensors guarantees no alignment
  std::size_t size_bytes = 0;
  std::shared_ptr<const std::byte[]> owner = {};  // owns bytes that are not in a file, such as a transposed matrix

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

/// Rows [first, first + count) of a matrix. Returns a view of file bytes, otherwise a copy so that the source can be
/// freed.
inline Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Tensor part = tensor;
  const std::size_t row_bytes = tensor.size_bytes / static_cast<std::size_t>(tensor.shape.at(0));
  part.shape[0] = count;
  part.bytes += static_cast<std::size_t>(first) * row_bytes;
  part.size_bytes = static_cast<std::size_t>(count) * row_bytes;
  if (tensor.owner != nullptr) {
    auto copy = std::make_unique_for_overwrite<std::byte[]>(part.size_bytes);
    std::memcpy(copy.get(), part.bytes, part.size_bytes);
    part.bytes = copy.get();
    part.owner = std::move(copy);
  }
  return part;
}

template <class T>
T load_unaligned(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}}
