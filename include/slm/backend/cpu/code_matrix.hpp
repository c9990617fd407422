// CodeMatrix: layers of four or eight bits as one matrix in the order of the kernels, made from any published layout.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/cpu/buffer.hpp"
#include "slm/backend/cpu/thread_pool.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"

namespace slm::backend::cpu {

class CodeMatrix {
 public:
  /// Rows whose codes are of one kind. A GGUF file may hold queries and values in different ones.
  struct Segment {
    CodeTiles tiles;
    std::int64_t rows = 0;
    std::shared_ptr<std::byte> storage;
    int packing = 0;  // which of the matrix's it multiplies by
  };

  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<Segment> segments;
  std::vector<std::size_t> packings;  // for each way of packing activations that is needed, a segment that takes it

  /// Whether these layers can be one such matrix: all of AWQ, or all in GGUF's blocks.
  static bool can_hold(std::span<const LinearSource> sources) {
    return std::all_of(sources.begin(), sources.end(), is_held_int4) ||
           std::all_of(sources.begin(), sources.end(), is_blocked_tensor);
  }

  /// The rows of all sources, which can_hold() has accepted, one after the other. Throws gguf.non-finite.
  static CodeMatrix stack(std::span<const LinearSource> sources, ThreadPool& pool) {
    CodeMatrix matrix;
    matrix.in = in_features(sources.front());
    while (!sources.empty()) {
      const std::size_t count = is_held_int4(sources.front()) ? sources.size() : of_one_type(sources);
      matrix.append(sources.first(count), pool);
      sources = sources.subspan(count);
    }
    return matrix;
  }

  /// Weight bytes that one product reads.
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const Segment& segment : segments) total += segment.tiles.total_bytes();
    return total;
  }

  /// One output as floats   to [in]
  void dequantize(std::int64_t row, float* to) const {
    auto segment = segments.begin();
    for (; row >= segment->rows; ++segment) row -= segment->rows;
    dequantize_row(segment->tiles, row, to);
  }

 private:
  static constexpr int most_block = 128;
  static constexpr std::int64_t at_once = 128;  // outputs: a cache line of words that hold eight each

  static bool is_held_int4(const LinearSource& source) {
    const auto* layer = std::get_if<Int4Tensor>(&source);
    return layer != nullptr && int4_block(layer->group, layer->in) != 0;
  }

  static bool is_blocked_tensor(const LinearSource& source) {
    const auto* tensor = std::get_if<Tensor>(&source);
    return tensor != nullptr && is_blocked(tensor->dtype);
  }

  /// How many of the first sources are tensors of the first one's type.
  static std::size_t of_one_type(std::span<const LinearSource> sources) {
    const DType type = std::get<Tensor>(sources.front()).dtype;
    const auto other = std::find_if(sources.begin(), sources.end(), [type](const LinearSource& source) {
      return std::get<Tensor>(source).dtype != type;
    });
    return static_cast<std::size_t>(other - sources.begin());
  }

  static CodeTiles tiles_for(std::span<const LinearSource> sources) {
    if (const auto* tensor = std::get_if<Tensor>(&sources.front())) return code_tiles_of(tensor->dtype);
    CodeTiles tiles;
    tiles.block = most_block;
    for (const LinearSource& source : sources) {  // groups may differ: the smallest block serves all
      const Int4Tensor& layer = std::get<Int4Tensor>(source);
      tiles.block = std::min(tiles.block, int4_block(layer.group, layer.in));
      tiles.half_scales = tiles.half_scales && scales_fit_half(*layer.scales);
    }
    return tiles;
  }

  void append(std::span<const LinearSource> sources, ThreadPool& pool) {
    Segment segment;
    CodeTiles& tiles = segment.tiles = tiles_for(sources);
    for (const LinearSource& source : sources) segment.rows += out_features(source);
    tiles.out = segment.rows;
    tiles.in = in;
    segment.storage = HugePages::take(static_cast<std::size_t>(tiles.total_bytes()));
    tiles.bytes = segment.storage.get();
    const auto same = std::find_if(packings.begin(), packings.end(),
                                   [&](std::size_t other) { return segments[other].tiles.packs_like(tiles); });
    segment.packing = static_cast<int>(same - packings.begin());
    if (same == packings.end()) packings.push_back(segments.size());
    std::int64_t first = 0;
    for (const LinearSource& source : sources) {
      write_rows(source, tiles, segment.storage.get(), first, pool);
      first += out_features(source);
    }
    out += segment.rows;
    segments.push_back(std::move(segment));
  }

  static void write_rows(const LinearSource& source, const CodeTiles& tiles, std::byte* to, std::int64_t first,
                         ThreadPool& pool) {
    const std::int64_t rows = out_features(source);
    std::mutex mutex;
    std::exception_ptr fault;  // a task must not throw
    pool.run(static_cast<std::uint32_t>(ceil_div(rows, at_once)), [&](std::uint32_t index, int) {
      const std::int64_t begin = index * at_once, end = std::min(begin + at_once, rows);
      if (const auto* layer = std::get_if<Int4Tensor>(&source)) {
        const Int4Rows codes = unpack(*layer, begin, end - begin);
        for (std::int64_t r = begin; r < end; ++r) write_int4_row(tiles, to, first + r, codes, r - begin);
        return;
      }
      try {
        for (std::int64_t r = begin; r < end; ++r) {
          write_block_row(tiles, to, first + r, std::get<Tensor>(source), r);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        fault = std::current_exception();
      }
    });
    if (fault) std::rethrow_exception(fault);
  }

  static bool scales_fit_half(const Tensor& scales) {
    if (scales.dtype == DType::f16) return true;
    std::vector<float> row(static_cast<std::size_t>(scales.elements()));
    convert(scales, 0, scales.elements(), row.data());
    return std::all_of(row.begin(), row.end(), fits_half);
  }
};

}  // namespace slm::backend::cpu
