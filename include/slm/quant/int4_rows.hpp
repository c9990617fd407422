// Int4Rows: the codes of a layer, one byte each, row by row: what every published layout is unpacked to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/quant/int4_tensor.hpp"

namespace slm {

/// Some rows of a layer: w[n][k] = (codes[n][k] - zeros[n][k / group]) * scales[n][k / group].
struct Int4Rows {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t group = 0;
  std::vector<std::uint8_t> codes;  // [rows, in], 0..15
  std::vector<std::uint8_t> zeros;  // [rows, in / group], 0..15
  std::vector<float> scales;        // [rows, in / group]

  std::int64_t groups() const { return in / group; }
};

/// Rows [first, first + count) of a checked layer.
inline Int4Rows unpack(const Int4Tensor& layer, std::int64_t first, std::int64_t count) {
  constexpr int nibble_of_column[] = {0, 4, 1, 5, 2, 6, 3, 7};  // AutoAWQ's order
  Int4Rows rows{.rows = count, .in = layer.in, .group = layer.group, .codes = {}, .zeros = {}, .scales = {}};
  const auto nibble = [&](const Tensor& words, std::int64_t k, std::int64_t n) {
    const auto* word = words.bytes + (k * (layer.out / 8) + n / 8) * 4;
    return static_cast<std::uint8_t>(load_unaligned<std::uint32_t>(word) >> (4 * nibble_of_column[n % 8]) & 15);
  };
  for (std::int64_t n = first; n < first + count; ++n) {
    for (std::int64_t k = 0; k < layer.in; ++k) rows.codes.push_back(nibble(*layer.codes, k, n));
    for (std::int64_t g = 0; g < rows.groups(); ++g) {
      rows.zeros.push_back(layer.zeros ? nibble(*layer.zeros, g, n) : std::uint8_t{8});
      convert(*layer.scales, g * layer.out + n, 1, &rows.scales.emplace_back());
    }
  }
  return rows;
}

/// All weights of a layer, computed in fp32: exact where the scale is F16 or BF16.   out [out, in]
template <class T>
void dequantize(const Int4Tensor& layer, T* out) {
  constexpr std::int64_t at_once = 64;
  for (std::int64_t first = 0; first < layer.out; first += at_once) {
    const Int4Rows rows = unpack(layer, first, layer.out - first < at_once ? layer.out - first : at_once);
    for (std::int64_t i = 0; i < rows.rows * rows.in; ++i) {
      const auto group = static_cast<std::size_t>(i / rows.in * rows.groups() + i % rows.in / rows.group);
      const int value = rows.codes[static_cast<std::size_t>(i)] - rows.zeros[group];
      *out++ = from_float<T>(static_cast<float>(value) * rows.scales[group]);
    }
  }
}

}  // namespace slm
