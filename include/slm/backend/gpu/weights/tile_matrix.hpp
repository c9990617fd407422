// TileMatrix: a weight in device memory in the layout of tiles.hpp, converted from any checkpoint format.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/weights/expert_table.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/core/dim.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/usable_cores.hpp"
#include "slm/formats/block_tiles.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tiles.hpp"

namespace slm { inline namespace v0_1 { namespace gpu {

/// Calls use(first, last) for parts of 0..count on all cores; all but the last are multiples of `unit`. Seven billion
/// weights take half a minute on one core.
template <class Use>
void in_parallel(std::int64_t count, std::int64_t unit, Use use) {
  const std::int64_t cores = std::min(usable_cores(), 64);
  const std::int64_t part = std::max<std::int64_t>(ceil_div(ceil_div(count, unit), cores), 64 / unit) * unit;
  std::vector<std::future<void>> others;  // destructors wait for the threads, also after an exception
  for (std::int64_t first = part; first < count; first += part) {
    const auto its_part = [=] { use(first, std::min(count, first + part)); };
    try {
      others.push_back(std::async(std::launch::async, its_part));
    } catch (const std::system_error&) {  // no more threads: run it here
      its_part();
    }
  }
  use(0, std::min(count, part));
  for (std::future<void>& other : others) other.get();
}

/// Packed weights on the host, with their layout.
struct PackedWords {
  std::vector<std::uint32_t> words;
  Tiles tiles;  // without memory
};

/// Packs `out` rows of floats as tiles of a dense format. row(o, to) writes row o   [in]
template <class Format, class Row>
PackedWords pack_dense(std::int64_t out, std::int64_t in, Row row) {
  using Element = typename Format::Element;
  constexpr int line_words = Compute<Format>::line_words;
  PackedWords packed;
  Tiles& tiles = packed.tiles;
  tiles.out = static_cast<int>(out);
  tiles.in = static_cast<int>(in);
  tiles.steps = static_cast<int>(ceil_div<std::int64_t>(in, slice_depth));
  // Plus 128 bytes: tiles at multiples of 512 bytes would map to the same memory channels.
  tiles.stride = std::int64_t{tiles.steps} * step_lines * tile_height * line_words + 32;
  packed.words.assign(static_cast<std::size_t>(tiles.stride * tiles.tiles()), 0);
  in_parallel(out, tile_height, [&](std::int64_t first, std::int64_t last) {
    std::vector<Element> values(static_cast<std::size_t>(tiles.steps * slice_depth));
    for (std::int64_t o = first; o < last; ++o) {
      row(o, values.data());
      std::uint32_t* to = packed.words.data() + o / tile_height * tiles.stride + o % tile_height * line_words;
      for (std::size_t k = 0; k < values.size(); k += line_depth, to += tile_height * line_words) {
        std::memcpy(to, &values[k], line_depth * sizeof(Element));
      }
    }
  });
  return packed;
}

/// Packs the stacked rows of layers of any kind as floats.
template <class Format>
PackedWords pack_dense(std::span<const LinearSource> sources) {
  using Element = typename Format::Element;
  std::int64_t out = 0;
  for (const LinearSource& source : sources) out += out_features(source);
  const std::int64_t in = in_features(sources.front());
  return pack_dense<Format>(out, in, [&](std::int64_t o, Element* to) {
    std::size_t index = 0;
    std::int64_t first = 0;
    while (o - first >= out_features(sources[index])) first += out_features(sources[index++]);
    if (const auto* tensor = std::get_if<Tensor>(&sources[index])) {
      convert(*tensor, (o - first) * in, in, to);
      return;
    }
    const Int4Rows row = unpack(std::get<Int4Tensor>(sources[index]), o - first, 1);
    for (std::int64_t k = 0; k < in; ++k) {
      const auto group = static_cast<std::size_t>(k / row.group);
      to[k] = from_float<Element>(static_cast<float>(row.codes[static_cast<std::size_t>(k)] - row.zeros[group]) *
                                  row.scales[group]);
    }
  });
}

/// Packs the stacked rows of sources in the layout `order`. Throws gguf.non-finite.
inline PackedWords pack_codes(const CodeTiles& order, std::span<const LinearSource> sources) {
  PackedWords packed;
  packed.words.resize(static_cast<std::size_t>(order.total_bytes() / 4));
  auto* const bytes = reinterpret_cast<std::byte*>(packed.words.data());
  std::int64_t first = 0;
  for (const LinearSource& source : sources) {
    in_parallel(out_features(source), int4_rows_at_once, [&](std::int64_t begin, std::int64_t end) {
      if (const auto* layer = std::get_if<Int4Tensor>(&source)) {
        return write_int4_rows(order, bytes, first + begin, *layer, begin, end);
      }
      write_block_rows(order, bytes, first + begin, std::get<Tensor>(source), begin, end - begin);
    });
    first += out_features(source);
  }
  const auto words = [](std::int64_t offset) { return static_cast<int>(offset / 4); };
  const auto shift = [](int count) { return std::countr_zero(static_cast<unsigned>(count)); };
  const bool factors = order.span != 0;
  Tiles& tiles = packed.tiles;
  tiles.out = static_cast<int>(order.out);
  tiles.in = static_cast<int>(order.in);
  tiles.steps = static_cast<int>(order.blocks() * order.block / slice_depth);
  tiles.stride = order.tile_bytes() / 4;
  tiles.block_shift = shift(order.block);
  tiles.span_shift = shift(order.blocks_of_span());
  tiles.half_scales = order.half_scales;
  tiles.plain_scales = order.half_scales && !factors && !order.has_minima();
  if (order.has_minima()) tiles.minima = words(order.minima_offset());
  if (factors) tiles.factors = words(order.factors_offset());
  if (factors && order.has_minima()) tiles.minimum_factors = words(order.minimum_factors_offset());
  if (order.offset == CodeOffset::zero_points) tiles.zeros = words(order.zeros_offset());
  tiles.zero = order.zero;
  tiles.lines = words(order.lines_offset());
  return packed;
}

/// Format: a dense one, or AwqInt4, whose layers may be of any kind.
template <class Format, Runtime R>
class TileMatrix {
 public:
  using Source = typename Format::Source;
  using ExpertTable = gpu::ExpertTable<R>;
  std::int64_t out = 0;
  std::int64_t in = 0;

  TileMatrix() = default;

  /// Packs on the host and copies to the device.
  TileMatrix(R runtime, typename R::Stream& stream, std::span<const Source> sources) {
    PackedWords packed;
    if constexpr (DenseFormat<Format>) {
      const std::vector<LinearSource> any(sources.begin(), sources.end());
      packed = pack_dense<Format>(any);
    } else if (const bool int4 = int4_tiles_hold(sources); int4 || block_tiles_hold(sources)) {
      const CodeTiles order = int4 ? int4_tiles_of(sources) : block_tiles_of(sources);
      packed = pack_codes(order, sources);
      kind_ = order.bits == 4 ? Kind::int4 : Kind::int8;
    } else {
      kind_ = common_kind(sources);
      packed = kind_ == Kind::f16    ? pack_dense<Fp16>(sources)
               : kind_ == Kind::bf16 ? pack_dense<Bf16>(sources)
                                     : pack_dense<Fp32>(sources);
    }
    words_ = std::make_shared<DeviceBuffer<std::uint32_t, R>>(runtime, packed.words.size());
    runtime.copy_in(words_->data(), packed.words.data(), packed.words.size() * 4, stream);
    runtime.synchronize(stream);
    tiles_ = packed.tiles;
    tiles_.words = {words_->data(), static_cast<std::int64_t>(words_->size())};
    out = tiles_.out;
    in = tiles_.in;
  }

  /// Whether kernels read both in the same way.
  bool has_layout_of(const TileMatrix& other) const {
    return kind_ == other.kind_ && tiles_.has_layout_of(other.tiles_);
  }

  /// Weight bytes that one product reads.
  std::int64_t bytes() const { return tiles_.words.size * 4; }
  const Tiles& tiles() const { return tiles_; }

  /// Calls use(Fp32{}), or use with the actual format.
  template <class Use>
  void visit(Use use) const {
    if constexpr (DenseFormat<Format>) {
      use(Format{});
    } else {
      switch (kind_) {
        case Kind::int4: return use(Int4{});
        case Kind::int8: return use(Int8{});
        case Kind::f16: return use(Fp16{});
        case Kind::bf16: return use(Bf16{});
        case Kind::f32: return use(Fp32{});
      }
    }
  }

 private:
  enum class Kind { f32, f16, bf16, int4, int8 };

  /// The kind of floating-point layers; fp32 if they differ or some are quantized.
  static Kind common_kind(std::span<const LinearSource> sources) {
    const auto is = [&](DType type) {
      return std::ranges::all_of(sources, [type](const LinearSource& source) {
        const auto* tensor = std::get_if<Tensor>(&source);
        return tensor != nullptr && tensor->dtype == type;
      });
    };
    return is(DType::f16) ? Kind::f16 : is(DType::bf16) ? Kind::bf16 : Kind::f32;
  }

  std::shared_ptr<DeviceBuffer<std::uint32_t, R>> words_;
  Tiles tiles_;
  Kind kind_ = Kind::f32;
};

}}}
