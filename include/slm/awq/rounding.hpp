// Rounding: how linear layers are quantized.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "slm/awq/float_layer.hpp"
#include "slm/awq/group_quantizer.hpp"
#include "slm/awq/parallel.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/gguf_blocks.hpp"
#include "slm/formats/gguf_encode.hpp"
#include "slm/formats/int4_rows.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

struct Rounding {
  GroupQuantizer quantizer;
  std::int64_t group = 128;  // group size, or whole_row
  std::shared_ptr<backend::ThreadPool> pool =
      std::make_shared<backend::ThreadPool>(1);  // shared by the whole quantization
  std::optional<DType> blocks = {};  // GGUF block type to store; the quantizer then approximates it for speed

  std::int64_t group_of(std::int64_t in) const { return group == whole_row ? in : group; }

  /// Whether the layer consists of whole groups and whole words of eight outputs; others stay in floating point. For
  /// GGUF: whether rows consist of whole blocks; others use another block type.
  bool fits(const FloatLinear& linear) const {
    if (blocks) return linear.in % values_of_block(*blocks) == 0;
    return linear.in % 8 == 0 && linear.in % group_of(linear.in) == 0 &&
           std::all_of(linear.parts.begin(), linear.parts.end(),
                       [](const TensorName& part) { return part.shape.at(0) % 8 == 0 && !part.transposed; });
  }

  /// Encodes and decodes a row as blocks, in place.
  void round_trip_blocks(std::span<float> row) const {
    const auto size = static_cast<std::size_t>(values_of_block(*blocks));
    std::vector<std::byte> bytes(bytes_of(*blocks));
    GgufBlock block;
    for (std::size_t k = 0; k < row.size(); k += size) {
      encode(*blocks, &row[k], bytes.data());
      decode(*blocks, bytes.data(), block);
      for (std::size_t i = 0; i < size; ++i) row[k + i] = block.value_of(i);
    }
  }

  /// Quantizes rows [first, first + count).
  Int4Rows round(const FloatLinear& linear, std::int64_t first, std::int64_t count) const {
    Int4Rows rows{.rows = count, .in = linear.in, .group = group_of(linear.in), .codes = {}, .zeros = {}, .scales = {}};
    rows.codes.resize(static_cast<std::size_t>(count * rows.in));
    rows.zeros.resize(static_cast<std::size_t>(count * rows.groups()));
    rows.scales.resize(rows.zeros.size());
    parallel_for(*pool, count, [&](std::int64_t n) {
      const std::span<const float> row = linear.row(first + n);
      for (std::int64_t g = 0; g < rows.groups(); ++g) {
        const auto weights =
            row.subspan(static_cast<std::size_t>(g * rows.group), static_cast<std::size_t>(rows.group));
        const auto grid = quantizer.grid(weights);
        const auto index = static_cast<std::size_t>(n * rows.groups() + g);
        rows.scales[index] = grid.scale;
        rows.zeros[index] = static_cast<std::uint8_t>(grid.zero);
        std::uint8_t* codes = rows.codes.data() + n * rows.in + g * rows.group;
        for (const float weight : weights) *codes++ = static_cast<std::uint8_t>(GroupQuantizer::code(weight, grid));
      }
    });
    return rows;
  }
};

}}}
