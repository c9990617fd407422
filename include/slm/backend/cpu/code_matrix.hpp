// CodeMatrix: layers of four to eight bits as one matrix in the kernels' layout, from any published layout.
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
#include "slm/formats/format.hpp"
#include "slm/formats/int4_tiles.hpp"

namespace slm { inline namespace v0_1 { namespace backend::cpu {

class CodeMatrix {
 public:
  /// Rows with one kind of code. A GGUF file may store queries and values in different kinds.
  struct Segment {
    CodeTiles tiles;
    std::int64_t rows = 0;
    std::shared_ptr<std::byte> storage;
    int packing = 0;  // index of its packing in the matrix
  };

  std::int64_t out = 0;
  std::int64_t in = 0;
  std::vector<Segment> segments;
  std::vector<std::size_t> packings;  // one segment per required packing of activations

  /// Whether these layers can form one such matrix: all AWQ, or all GGUF block formats.
  static bool can_hold(std::span<const LinearSource> sources) {
    return int4_tiles_hold(sources) || std::all_of(sources.begin(), sources.end(), is_blocked_tensor);
  }

  /// Stacks the rows of all sources, which can_hold() must accept. Throws gguf.non-finite.
  static CodeMatrix stack(std::span<const LinearSource> sources, ThreadPool& pool) {
    CodeMatrix matrix;
    matrix.in = in_features(sources.front());
    each_segment_of(sources, [&](std::span<const LinearSource> some) { matrix.append(some, pool); });
    return matrix;
  }

  /// The bytes of stack(sources). Reads shapes, and scales of 4-bit layers.
  static std::int64_t bytes_of(std::span<const LinearSource> sources) {
    std::int64_t total = 0;
    each_segment_of(sources, [&](std::span<const LinearSource> some) { total += tiles_for(some).total_bytes(); });
    return total;
  }

  /// Weight bytes that one product reads.
  std::int64_t bytes() const {
    std::int64_t total = 0;
    for (const Segment& segment : segments) total += segment.tiles.total_bytes();
    return total;
  }

  /// Dequantizes one output row   to [in]
  void dequantize(std::int64_t row, float* to) const {
    auto segment = segments.begin();
    for (; row >= segment->rows; ++segment) row -= segment->rows;
    dequantize_row(segment->tiles, row, to);
  }

 private:
  static bool is_blocked_tensor(const LinearSource& source) {
    const auto* tensor = std::get_if<Tensor>(&source);
    return tensor != nullptr && is_blocked(tensor->dtype);
  }

  /// Calls use(sources) with the sources of each segment.
  template <class Use>
  static void each_segment_of(std::span<const LinearSource> sources, const Use& use) {
    while (!sources.empty()) {
      const bool int4 = std::holds_alternative<Int4Tensor>(sources.front());
      const std::size_t count = int4 ? sources.size() : of_one_type(sources);
      use(sources.first(count));
      sources = sources.subspan(count);
    }
  }

  /// The number of leading sources with the first one's type.
  static std::size_t of_one_type(std::span<const LinearSource> sources) {
    const DType type = std::get<Tensor>(sources.front()).dtype;
    const auto other = std::find_if(sources.begin(), sources.end(), [type](const LinearSource& source) {
      return std::get<Tensor>(source).dtype != type;
    });
    return static_cast<std::size_t>(other - sources.begin());
  }

  static CodeTiles tiles_for(std::span<const LinearSource> sources) {
    const auto* tensor = std::get_if<Tensor>(&sources.front());
    if (tensor == nullptr) return int4_tiles_of(sources);
    CodeTiles tiles = narrow_code_tiles_of(tensor->dtype);
    tiles.in = in_features(sources.front());
    for (const LinearSource& source : sources) tiles.out += out_features(source);
    return tiles;
  }

  void append(std::span<const LinearSource> sources, ThreadPool& pool) {
    Segment segment;
    CodeTiles& tiles = segment.tiles = tiles_for(sources);
    segment.rows = tiles.out;
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
    constexpr std::int64_t at_once = int4_rows_at_once;
    const std::int64_t rows = out_features(source);
    std::mutex mutex;
    std::exception_ptr fault;  // a task must not throw
    pool.run(static_cast<std::uint32_t>(ceil_div(rows, at_once)), [&](std::uint32_t index, int) {
      const std::int64_t begin = index * at_once, end = std::min(begin + at_once, rows);
      if (const auto* layer = std::get_if<Int4Tensor>(&source)) {
        return write_int4_rows(tiles, to, first + begin, *layer, begin, end);
      }
      try {
        write_block_rows(tiles, to, first + begin, std::get<Tensor>(source), begin, end - begin);
      } catch (...) {
        const std::lock_guard lock(mutex);
        fault = std::current_exception();
      }
    });
    if (fault) std::rethrow_exception(fault);
  }
};

}}}
