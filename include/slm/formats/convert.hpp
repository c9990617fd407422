// convert: converts elements of a tensor, in any stored format, to floats.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/gguf_blocks.hpp"

namespace slm { inline namespace v0_1 {

/// Decodes block `index` of a tensor. Throws Error if its scale or minimum is not finite.
inline void decode_block(const Tensor& tensor, std::int64_t index, GgufBlock& out) {
  decode(tensor.dtype, tensor.bytes + index * static_cast<std::int64_t>(bytes_of(tensor.dtype)), out);
  if (std::isfinite(out.scale) && std::isfinite(to_float(out.minimum))) return;
  throw Error("gguf.non-finite",
              text("block ", index, " of tensor ", quote(tensor.name), " (", name_of(tensor.dtype),
                   ") has a scale that is not finite"),
              "Quantize the model again, or take its file from another source");
}

namespace detail {

template <class T>
void convert_blocks(const Tensor& tensor, std::int64_t first, std::int64_t count, T* out) {
  const std::int64_t values = values_of_block(tensor.dtype);
  GgufBlock block;
  for (std::int64_t index = first / values; index < (first + count) / values; ++index) {
    decode_block(tensor, index, block);
    const auto group = static_cast<std::size_t>(block.group);
    for (std::size_t n = 0; n < static_cast<std::size_t>(values); n += group) {
      const float scale = block.scale_of(n / group), minimum = block.minimum_of(n / group);
      for (std::size_t i = n; i < n + group; ++i) {
        *out++ = from_float<T>(scale * static_cast<float>(block.codes[i]) + minimum);
      }
    }
  }
}

}  // namespace detail

/// Converts `count` elements of a float or block-format tensor, from element `first` on, to any float type. For block
/// formats the range must consist of whole blocks; rows always do.
template <class T>
void convert(const Tensor& tensor, std::int64_t first, std::int64_t count, T* out) {
  if (is_blocked(tensor.dtype)) return detail::convert_blocks(tensor, first, count, out);
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

/// Returns the tensor if it has type `type`, else a converted copy that owns its elements.
template <class T>
Tensor converted(const Tensor& tensor, DType type) {
  if (tensor.dtype == type) return tensor;
  Tensor other = tensor;
  other.dtype = type;
  other.size_bytes = static_cast<std::size_t>(tensor.elements()) * sizeof(T);
  auto values = std::make_shared_for_overwrite<T[]>(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.get());
  other.bytes = reinterpret_cast<const std::byte*>(values.get());
  other.owner = std::shared_ptr<const std::byte[]>(values, other.bytes);
  return other;
}

}}
