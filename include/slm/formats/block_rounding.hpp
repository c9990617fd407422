// Rounds a matrix to GGUF blocks of 32 values while a model is loaded: the nearest code, without a search for scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/convert.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// Writes the scale of a block. Returns its inverse, or 0.
inline float write_scale(float scale, std::byte* block) {
  const half_t stored = from_float<half_t>(scale);
  std::memcpy(block, &stored, sizeof(stored));
  return to_float(stored) == 0 ? 0 : 1 / to_float(stored);
}

/// code = round(value * factor), limited to [low, high]
inline int nearest_code(float value, float factor, int low, int high) {
  return std::clamp(static_cast<int>(std::lround(value * factor)), low, high);
}

inline void round_to_q4_0(std::span<const float, 32> values, std::byte* block) {
  float largest = 0;
  for (const float value : values) largest = std::abs(value) > std::abs(largest) ? value : largest;
  const float factor = write_scale(largest / -8, block);
  for (std::size_t i = 0; i < 16; ++i) {
    const int low = nearest_code(values[i], factor, -8, 7) + 8, high = nearest_code(values[i + 16], factor, -8, 7) + 8;
    block[2 + i] = static_cast<std::byte>(low | high << 4);
  }
}

inline void round_to_q8_0(std::span<const float, 32> values, std::byte* block) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float factor = write_scale(largest / 127, block);
  for (std::size_t i = 0; i < 32; ++i)
    block[2 + i] = static_cast<std::byte>(nearest_code(values[i], factor, -127, 127));
}

}  // namespace detail

/// A copy of a matrix in blocks of Q4_0 (bits 4) or Q8_0 (bits 8). The matrix itself if that is no smaller, if its rows
/// are no multiple of 32 values, or if it has values outside the range of F16.
inline Tensor rounded_to_blocks(const Tensor& matrix, int bits) {
  const DType type = bits == 4 ? DType::q4_0 : DType::q8_0;
  const std::int64_t rows = matrix.shape.front(), columns = matrix.elements() / rows;
  const std::size_t row_bytes = static_cast<std::size_t>(columns / 32) * bytes_of(type);
  const std::size_t size = static_cast<std::size_t>(rows) * row_bytes;
  if (columns % 32 != 0 || size >= matrix.size_bytes) return matrix;
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  const auto row = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    convert(matrix, r * columns, columns, row.get());
    const std::span<const float> values(row.get(), static_cast<std::size_t>(columns));
    if (!std::all_of(values.begin(), values.end(), [](float value) { return std::abs(value) <= 65504; })) return matrix;
    std::byte* block = bytes.get() + static_cast<std::size_t>(r) * row_bytes;
    for (std::size_t first = 0; first < values.size(); first += 32, block += bytes_of(type)) {
      const auto group = values.subspan(first).first<32>();
      bits == 4 ? detail::round_to_q4_0(group, block) : detail::round_to_q8_0(group, block);
    }
  }
  Tensor rounded = matrix;
  rounded.dtype = type;
  rounded.size_bytes = size;
  rounded.bytes = bytes.get();
  rounded.owner = std::move(bytes);
  return rounded;
}

}}
