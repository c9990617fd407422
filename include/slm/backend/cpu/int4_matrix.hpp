// Int4Matrix: four-bit layers as one matrix in the order of the kernels, made from any published layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_tiles.hpp"

namespace slm::backend::cpu {

class Int4Matrix {
 public:
  std::int64_t out = 0;
  std::int64_t in = 0;
  Int4Tiles tiles;

  /// Weight bytes that one product reads.
  std::int64_t bytes() const { return tiles.total_bytes(); }

  /// Whether these layers can be one such matrix. Groups may differ: the smallest block serves all.
  static bool can_hold(std::span<const LinearSource> sources) {
    return std::all_of(sources.begin(), sources.end(), [](const LinearSource& source) {
      const auto* layer = std::get_if<Int4Tensor>(&source);
      return layer != nullptr && int4_block(layer->group, layer->in) != 0;
    });
  }

  /// Room for a matrix of zero codes, to be filled through storage().
  static Int4Matrix allocate(std::int64_t out, std::int64_t in, int block, bool half_scales) {
    Int4Matrix matrix;
    matrix.out = out;
    matrix.in = in;
    matrix.tiles = {.out = out, .in = in, .block = block, .half_scales = half_scales, .bytes = nullptr};
    matrix.storage_ = HugePages::take(static_cast<std::size_t>(matrix.tiles.total_bytes()));
    matrix.tiles.bytes = matrix.storage_.get();
    return matrix;
  }

  std::byte* storage() { return storage_.get(); }

  /// The rows of all sources, which can_hold() has accepted, one after the other.
  static Int4Matrix stack(std::span<const LinearSource> sources, ThreadPool& pool) {
    int block = most_block;
    std::int64_t out = 0;
    bool half_scales = true;
    for (const LinearSource& source : sources) {
      const Int4Tensor& layer = std::get<Int4Tensor>(source);
      block = std::min(block, int4_block(layer.group, layer.in));
      out += layer.out;
      half_scales = half_scales && scales_fit_half(*layer.scales);
    }
    Int4Matrix matrix = allocate(out, in_features(sources.front()), block, half_scales);
    std::int64_t first = 0;
    for (const LinearSource& source : sources) {
      const Int4Tensor& layer = std::get<Int4Tensor>(source);
      const std::int64_t pieces = ceil_div<std::int64_t>(layer.out, at_once);
      pool.run(static_cast<std::uint32_t>(pieces), [&](std::uint32_t piece, int) {
        const std::int64_t from = piece * at_once, count = std::min(at_once, layer.out - from);
        const Int4Rows rows = unpack(layer, from, count);
        for (std::int64_t r = 0; r < count; ++r) {
          write_int4_row(matrix.tiles, matrix.storage(), first + from + r, rows, r);
        }
      });
      first += layer.out;
    }
    return matrix;
  }

 private:
  static constexpr int most_block = 128;
  static constexpr std::int64_t at_once = 128;  // outputs: a cache line of words that hold eight each

  static bool scales_fit_half(const Tensor& scales) {
    if (scales.dtype == DType::f16) return true;
    std::vector<float> row(static_cast<std::size_t>(scales.elements()));
    convert(scales, 0, scales.elements(), row.data());
    return std::all_of(row.begin(), row.end(), fits_half);
  }

  std::shared_ptr<std::byte> storage_;
};

}  // namespace slm::backend::cpu
