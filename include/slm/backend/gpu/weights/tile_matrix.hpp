// TileMatrix: a weight in device memory, in the order of tiles.hpp, made from whatever a checkpoint holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/gpu/runtime/device_buffer.hpp"
#include "slm/backend/gpu/weights/tiles.hpp"
#include "slm/core/dim.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/format.hpp"
#include "slm/formats/int4_rows.hpp"
#include "slm/formats/int4_tiles.hpp"

namespace slm::inline v0_1::gpu {

/// use(first, last) for parts of 0..count, a multiple of `unit` each but for the last, on all cores: seven billion
/// weights take half a minute on one.
template <class Use>
void in_parallel(std::int64_t count, std::int64_t unit, Use use) {
  const std::int64_t cores = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 64);
  const std::int64_t part = std::max<std::int64_t>(ceil_div(ceil_div(count, unit), cores), 64 / unit) * unit;
  std::vector<std::future<void>> others;  // each waits for its thread, whatever is thrown
  for (std::int64_t first = part; first < count; first += part) {
    others.push_back(std::async(std::launch::async, [=] { use(first, std::min(count, first + part)); }));
  }
  use(0, std::min(count, part));
  for (std::future<void>& other : others) other.get();
}

/// Words on the host, and how they are to be read.
struct PackedWords {
  std::vector<std::uint32_t> words;
  Tiles tiles;  // without memory
};

/// Rows of floats, as many as `out` says, become tiles of a dense format. row(o, to) writes row o   [in]
template <class Format, class Row>
PackedWords pack_dense(std::int64_t out, std::int64_t in, Row row) {
  using Element = typename Format::Element;
  constexpr int line_words = Compute<Format>::line_words;
  PackedWords packed;
  Tiles& tiles = packed.tiles;
  tiles.out = static_cast<int>(out);
  tiles.in = static_cast<int>(in);
  tiles.steps = static_cast<int>(ceil_div<std::int64_t>(in, step_depth));
  // 128 bytes more than a tile needs: tiles at multiples of 512 bytes would meet on the same channels of the memory.
  tiles.stride = std::int64_t{tiles.steps} * step_lines * tile_height * line_words + 32;
  packed.words.assign(static_cast<std::size_t>(tiles.stride * tiles.tiles()), 0);
  in_parallel(out, tile_height, [&](std::int64_t first, std::int64_t last) {
    std::vector<Element> values(static_cast<std::size_t>(tiles.steps * step_depth));
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

/// The rows of floating-point and of four-bit layers, one below the other.
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

/// For sources that int4_tiles_hold() accepts.
inline PackedWords pack_int4(std::span<const LinearSource> sources) {
  const CodeTiles order = int4_tiles_of(sources);
  PackedWords packed;
  packed.words.resize(static_cast<std::size_t>(order.total_bytes() / 4));
  auto* const bytes = reinterpret_cast<std::byte*>(packed.words.data());
  std::int64_t first = 0;
  for (const LinearSource& source : sources) {
    const Int4Tensor& layer = std::get<Int4Tensor>(source);
    in_parallel(layer.out, int4_rows_at_once, [&](std::int64_t begin, std::int64_t end) {
      write_int4_rows(order, bytes, first + begin, layer, begin, end);
    });
    first += layer.out;
  }
  Tiles& tiles = packed.tiles;
  tiles.out = static_cast<int>(order.out);
  tiles.in = static_cast<int>(order.in);
  tiles.steps = static_cast<int>(order.blocks() * order.block / step_depth);
  tiles.stride = order.tile_bytes() / 4;
  tiles.block_steps = order.block / step_depth;
  tiles.half_scales = order.half_scales;
  tiles.zeros = static_cast<int>(order.zeros_offset() / 4);
  tiles.lines = static_cast<int>(order.lines_offset() / 4);
  return packed;
}

/// Format: a dense one, or AwqInt4, whose layers may be of any kind.
template <class Format, Runtime R>
class TileMatrix {
 public:
  using Source = typename Format::Source;
  std::int64_t out = 0;
  std::int64_t in = 0;

  TileMatrix() = default;

  /// Packs on the host and copies to the device.
  TileMatrix(R runtime, typename R::Stream& stream, std::span<const Source> sources) {
    PackedWords packed;
    if constexpr (DenseFormat<Format>) {
      const std::vector<LinearSource> any(sources.begin(), sources.end());
      packed = pack_dense<Format>(any);
      kind_ = Format::dtype;
    } else if (int4_tiles_hold(sources)) {
      packed = pack_int4(sources);
      kind_ = DType::u8;
    } else {
      kind_ = common_type(sources);
      packed = kind_ == DType::f16    ? pack_dense<Fp16>(sources)
               : kind_ == DType::bf16 ? pack_dense<Bf16>(sources)
                                      : pack_dense<Fp32>(sources);
    }
    words_ = std::make_shared<DeviceBuffer<std::uint32_t, R>>(runtime, packed.words.size());
    runtime.copy_in(words_->data(), packed.words.data(), packed.words.size() * 4, stream);
    runtime.synchronize(stream);
    tiles_ = packed.tiles;
    tiles_.words = words_->memory();
    out = tiles_.out;
    in = tiles_.in;
  }

  /// Weight bytes that one product reads.
  std::int64_t bytes() const { return tiles_.words.size * 4; }
  const Tiles& tiles() const { return tiles_; }

  /// use(Fp32{}) or whichever format the words are of.
  template <class Use>
  void visit(Use use) const {
    if constexpr (DenseFormat<Format>) {
      use(Format{});
    } else {
      switch (kind_) {
        case DType::u8: return use(Int4{});
        case DType::f16: return use(Fp16{});
        case DType::bf16: return use(Bf16{});
        default: return use(Fp32{});
      }
    }
  }

 private:
  /// Of floating-point layers; fp32 if they differ or four-bit ones are among them.
  static DType common_type(std::span<const LinearSource> sources) {
    DType type = DType::f32;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const auto* tensor = std::get_if<Tensor>(&sources[i]);
      if (tensor == nullptr || (i > 0 && tensor->dtype != type)) return DType::f32;
      type = tensor->dtype;
    }
    return type;
  }

  std::shared_ptr<DeviceBuffer<std::uint32_t, R>> words_;
  Tiles tiles_;
  DType kind_ = DType::f32;
};

}  // namespace slm::gpu
