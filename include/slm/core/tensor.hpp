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

/// Converts `count` elements of a floating-point tensor, from element `first` on, to any float type.
template <class T>
void convert(const Tensor& tensor, std::int64_t first, std::int64_t count, T* out) {
  const std::byte* bytes = tensor.bytes + first * static_cast<std::int64_t>(bytes_of(tensor.dtype));
  const auto run = [&]<class Source>(Source) {
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = from_float<T>(to_float(load_unaligned<Source>(bytes + i * std::int64_t{sizeof(Source)})));
    }
  };
  switch (tensor.dtype) {
    case DType::f32: return run(float{});
    case DType::f16: return run(half_t{});
    case DType::bf16: return run(bfloat16_t{});
    default:
      throw Error("tensor.not-floating-point",
                  text("tensor '", tensor.name, "' is ", name_of(tensor.dtype), ", expected F32, F16 or BF16"),
                  "Export the checkpoint with floating-point weights");
  }
}

}  // namespace slm
