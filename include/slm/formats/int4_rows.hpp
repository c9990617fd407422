// Int4Rows: unpacked codes of a layer, one byte each, row-major. Every published layout is converted to it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// Rows of a layer: w[n][k] = (codes[n][k] - zeros[n][k / group]) * scales[n][k / group].
struct Int4Rows {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t group = 0;
  std::vector<std::uint8_t> codes;  // [rows, in], 0..15
  std::vector<std::uint8_t> zeros;  // [rows, in / group], 0..15
  std::vector<float> scales;        // [rows, in / group]

  std::int64_t groups() const { return in / group; }
};

namespace detail {

/// Maps nibble i of a word to one of eight adjacent outputs.
using NibbleOrder = std::array<int, 8>;
inline constexpr NibbleOrder awq_order{0, 2, 4, 6, 1, 3, 5, 7};  // one mask selects the two halves of a register
inline constexpr NibbleOrder sequential_order{0, 1, 2, 3, 4, 5, 6, 7};

constexpr NibbleOrder nibble_order(Int4Layout layout) {
  return layout == Int4Layout::awq_gemm || layout == Int4Layout::quark_reorder ? awq_order : sequential_order;
}

constexpr NibbleOrder inverse(const NibbleOrder& order) {
  NibbleOrder positions{};
  for (int i = 0; i < 8; ++i) positions[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])] = i;
  return positions;
}

/// Expands the eight nibbles of a word to bytes, the lowest first.
constexpr std::uint64_t spread_nibbles(std::uint32_t word) {
  std::uint64_t bytes = word;
  bytes = (bytes | bytes << 16) & 0x0000ffff0000ffffu;
  bytes = (bytes | bytes << 8) & 0x00ff00ff00ff00ffu;
  return (bytes | bytes << 4) & 0x0f0f0f0f0f0f0f0fu;
}

/// Words of up to 64 inputs and sixteen adjacent columns of words.
using WordTile = std::array<std::array<std::uint32_t, 16>, 64>;

/// In each column: nibble i of word j becomes nibble j of word i, among the eight words from `first` on. Three rounds
/// of exchanges between words run over all columns at once, which compilers vectorise.
inline void transpose_nibbles(WordTile& tile, std::size_t first) {
  const auto exchange = [&](std::size_t a, std::size_t b, int shift, std::uint32_t mask) {
    std::array<std::uint32_t, 16>& low = tile[first + a];
    std::array<std::uint32_t, 16>& high = tile[first + b];
    for (std::size_t c = 0; c < 16; ++c) {
      const std::uint32_t kept = (low[c] & mask) | (high[c] & mask) << shift;
      high[c] = (low[c] >> shift & mask) | (high[c] & ~mask);
      low[c] = kept;
    }
  };
  for (const std::size_t i : {0u, 1u, 2u, 3u}) exchange(i, i + 4, 16, 0x0000ffffu);
  for (const std::size_t i : {0u, 1u, 4u, 5u}) exchange(i, i + 2, 8, 0x00ff00ffu);
  for (const std::size_t i : {0u, 2u, 4u, 6u}) exchange(i, i + 1, 4, 0x0f0f0f0fu);
}

/// Unpacks rows [first, first + count) of one checked layer into `rows`.
class Int4Unpacking {
 public:
  Int4Unpacking(const Int4Tensor& layer, std::int64_t first, std::int64_t count, Int4Rows& rows)
      : layer_(layer),
        first_(first),
        count_(count),
        groups_(layer.in / layer.group),
        flip_(layer.twos_complement ? 0x88888888u : 0),
        rows_(rows) {}

  void run() {
    rows_.rows = count_;
    rows_.in = layer_.in;
    rows_.group = layer_.group;
    rows_.codes.resize(static_cast<std::size_t>(count_ * layer_.in));
    rows_.zeros.resize(static_cast<std::size_t>(count_ * groups_));
    rows_.scales.resize(rows_.zeros.size());
    switch (layer_.layout) {
      case Int4Layout::awq_gemm:
      case Int4Layout::quark_order:
      case Int4Layout::quark_reorder: codes_of_columns(); break;
      case Int4Layout::awq_gemv:
      case Int4Layout::packed_rows: codes_of_rows(); break;
      case Int4Layout::awq_gemv_fast: codes_of_gemv_fast(); break;
      case Int4Layout::gptq: codes_of_words(); break;
    }
    read_scales();
    read_zeros();
  }

 private:
  static std::uint32_t word_of(const Tensor& words, std::int64_t index) {
    return load_unaligned<std::uint32_t>(words.bytes + 4 * index);
  }

  std::uint8_t* codes_at(std::int64_t row, std::int64_t k) { return rows_.codes.data() + row * layer_.in + k; }

  void store(std::uint32_t word, std::int64_t row, std::int64_t k) {
    const std::uint64_t bytes = spread_nibbles(word ^ flip_);
    if (layer_.in - k >= 8) {
      std::memcpy(codes_at(row, k), &bytes, 8);
    } else {
      std::memcpy(codes_at(row, k), &bytes, static_cast<std::size_t>(layer_.in - k));
    }
  }

  /// Eight outputs per word: tiles of 64 inputs and 128 outputs touch each cache line once.
  void codes_of_columns() {
    WordTile tile{};
    constexpr std::int64_t tile_words = std::tuple_size_v<WordTile::value_type>;
    constexpr std::int64_t tile_inputs = std::tuple_size_v<WordTile>;
    const NibbleOrder order = nibble_order(layer_.layout);
    const std::int64_t width = layer_.codes->shape[1];
    const std::int64_t end = (first_ + count_ + 7) / 8;
    for (std::int64_t c = first_ / 8; c < end; c += tile_words) {
      const std::int64_t words = std::min(tile_words, end - c);
      for (std::int64_t k = 0; k < layer_.in; k += tile_inputs) {
        const std::int64_t inputs = std::min(tile_inputs, layer_.in - k);
        for (std::int64_t i = 0; i < inputs; ++i) {
          std::memcpy(tile[static_cast<std::size_t>(i)].data(), layer_.codes->bytes + 4 * ((k + i) * width + c),
                      static_cast<std::size_t>(4 * words));
        }
        // Entries beyond `inputs` and `words` are transposed too, but not stored.
        for (std::int64_t i = 0; i < inputs; i += 8) transpose_nibbles(tile, static_cast<std::size_t>(i));
        for (std::int64_t n = 0; n < 8 * words; ++n) {
          const std::int64_t row = 8 * c + n / 8 * 8 + order[static_cast<std::size_t>(n % 8)] - first_;
          if (row < 0 || row >= count_) continue;
          for (std::int64_t i = 0; i < inputs; i += 8) {
            store(tile[static_cast<std::size_t>(i + n % 8)][static_cast<std::size_t>(n / 8)], row, k + i);
          }
        }
      }
    }
  }

  /// Eight inputs per word.
  void codes_of_rows() {
    const std::int64_t width = layer_.codes->shape[1];
    for (std::int64_t row = 0; row < count_; ++row) {
      for (std::int64_t k = 0; k < layer_.in; k += 8) {
        store(word_of(*layer_.codes, (first_ + row) * width + k / 8), row, k);
      }
    }
  }

  /// Eight inputs per word, adjacent words of adjacent outputs.
  void codes_of_words() {
    const std::int64_t width = layer_.codes->shape[1];
    for (std::int64_t k = 0; k < layer_.in; k += 8) {
      for (std::int64_t row = 0; row < count_; ++row) {
        store(word_of(*layer_.codes, k / 8 * width + first_ + row), row, k);
      }
    }
  }

  /// Four rows share a line of words: 16 words of each in turn, which hold 64 inputs.
  void codes_of_gemv_fast() {
    const std::uint16_t flip = static_cast<std::uint16_t>(flip_);
    for (std::int64_t row = 0; row < count_; ++row) {
      const std::int64_t n = first_ + row;
      const std::byte* line = layer_.codes->bytes + 2 * (n / 4 * layer_.in + n % 4 * 16);
      for (std::int64_t k = 0; k < layer_.in; k += 32) {  // two halves of eight words per 64 inputs
        std::array<std::uint16_t, 8> words;
        std::memcpy(words.data(), line + 2 * (k / 64 * 64 + k % 64 / 4), sizeof words);
        std::uint8_t* out = codes_at(row, k);
        for (int nibble = 0; nibble < 4; ++nibble) {
          for (std::size_t i = 0; i < 8; ++i) {
            *out++ = static_cast<std::uint8_t>((words[i] ^ flip) >> (4 * nibble) & 15);
          }
        }
      }
    }
  }

  bool groups_first() const {
    return layer_.layout != Int4Layout::awq_gemv && layer_.layout != Int4Layout::packed_rows;
  }

  /// Reads floats of the layer's rows and groups -> [count, groups].
  void read_floats(const Tensor& source, float* out) const {
    const std::int64_t stride = source.shape[1];
    if (!groups_first()) {
      for (std::int64_t row = 0; row < count_; ++row) {
        convert(source, (first_ + row) * stride, groups_, out + row * groups_);
      }
      return;
    }
    std::vector<float> line(static_cast<std::size_t>(count_));
    for (std::int64_t g = 0; g < groups_; ++g) {
      convert(source, g * stride + first_, count_, line.data());
      for (std::int64_t row = 0; row < count_; ++row) out[row * groups_ + g] = line[static_cast<std::size_t>(row)];
    }
  }

  void read_scales() { read_floats(*layer_.scales, rows_.scales.data()); }

  void read_zeros() {
    if (!layer_.zeros) {
      std::fill(rows_.zeros.begin(), rows_.zeros.end(), std::uint8_t{8});
      return;
    }
    if (layer_.layout == Int4Layout::awq_gemv_fast) return read_float_zeros();
    const Tensor& source = *layer_.zeros;
    const NibbleOrder position = inverse(nibble_order(layer_.layout));
    const std::int64_t width = source.shape[1];
    const std::uint32_t add = layer_.zeros_less_one ? 0x11111111u : 0;
    std::uint8_t* out = rows_.zeros.data();
    for (std::int64_t n = first_; n < first_ + count_; ++n) {
      for (std::int64_t g = 0; g < groups_; ++g) {
        const std::int64_t word = layer_.layout == Int4Layout::awq_gemv      ? n * width + g / 8
                                  : layer_.layout == Int4Layout::packed_rows ? n / 8 * width + g
                                                                             : g * width + n / 8;
        const int nibble =
            layer_.layout == Int4Layout::awq_gemv ? static_cast<int>(g % 8) : position[static_cast<std::size_t>(n % 8)];
        *out++ = static_cast<std::uint8_t>(((word_of(source, word) + add) ^ flip_) >> (4 * nibble) & 15);
      }
    }
  }

  /// From -scale * zero; check_int4 guarantees an integer result.
  void read_float_zeros() {
    std::vector<float> products(rows_.zeros.size());
    read_floats(*layer_.zeros, products.data());
    for (std::size_t i = 0; i < products.size(); ++i) {
      const float scale = rows_.scales[i];
      const float zero = scale == 0 ? 0 : std::nearbyint(-products[i] / scale);
      rows_.zeros[i] = zero >= 0 && zero <= 15 ? static_cast<std::uint8_t>(zero) : std::uint8_t{0};
    }
  }

  const Int4Tensor& layer_;
  std::int64_t first_;
  std::int64_t count_;
  std::int64_t groups_;
  std::uint32_t flip_;  // maps -8..7 to 0..15
  Int4Rows& rows_;
};

}  // namespace detail

/// Unpacks rows [first, first + count) of a checked layer into reused memory. Multiples of 128 rows read each cache
/// line of the column-wise layouts once.
inline void unpack(const Int4Tensor& layer, std::int64_t first, std::int64_t count, Int4Rows& rows) {
  if (first < 0 || count < 0 || first > layer.out - count) {
    throw Error("quant.row-range",
                text("layer '", layer.name, "' has ", layer.out, " rows, expected a range inside them, found ", count,
                     " from ", first, " on"),
                "Request rows inside the layer");
  }
  first += layer.first;
  if (layer.order == nullptr) return detail::Int4Unpacking(layer, first, count, rows).run();
  rows = {.rows = count, .in = layer.in, .group = layer.group, .codes = {}, .zeros = {}, .scales = {}};
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  Int4Rows run;
  for (std::int64_t row = 0, length = 0; row < count; row += length) {  // runs of adjacent stored rows
    const std::int64_t* stored = layer.order->data() + first + row;
    for (length = 1; row + length < count && stored[length] == stored[0] + length;) ++length;
    detail::Int4Unpacking(layer, stored[0], length, run).run();
    append(rows.codes, run.codes);
    append(rows.zeros, run.zeros);
    append(rows.scales, run.scales);
  }
}

inline Int4Rows unpack(const Int4Tensor& layer, std::int64_t first, std::int64_t count) {
  Int4Rows rows;
  unpack(layer, first, count, rows);
  return rows;
}

/// Dequantizes a layer in fp32: exact if scales are F16 or BF16.   out [out, in]
template <class T>
void dequantize(const Int4Tensor& layer, T* out) {
  constexpr std::int64_t at_once = 128;
  Int4Rows rows;
  for (std::int64_t first = 0; first < layer.out; first += at_once) {
    unpack(layer, first, std::min(at_once, layer.out - first), rows);
    const std::uint8_t* code = rows.codes.data();
    for (std::size_t group = 0; group < rows.scales.size(); ++group) {
      const int zero = rows.zeros[group];
      const float scale = rows.scales[group];
      for (std::int64_t i = 0; i < rows.group; ++i) {
        *out++ = from_float<T>(static_cast<float>(*code++ - zero) * scale);
      }
    }
  }
}

}}
