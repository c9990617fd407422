// ScaledTensor: one linear layer of codes that kernels do not read as stored; it is dequantized when it is loaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/dim.hpp"
#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/code_tiles.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/float8.hpp"

namespace slm { inline namespace v0_1 {

/// Checkpoint layouts. K = in, N = out, G = inputs per scale; P = codes per word.
enum class ScaledLayout {
  f8_rows,      // codes F8_E4M3 [N, K]
  i8_rows,      // codes I8 [N, K], zeros I8 like the scales or none
  packed_rows,  // codes I32 [N, K/P], zeros I32 [N/P, K/G] or none, then 128; unsigned
  gptq,         // codes I32 [K/P, N], zeros I32 [K/G, N/P], scales [K/G, N]; unsigned
};

constexpr std::string_view name_of(ScaledLayout layout) {
  switch (layout) {
    case ScaledLayout::f8_rows: return "FP8 (E4M3)";
    case ScaledLayout::i8_rows: return "int8";
    case ScaledLayout::packed_rows: return "compressed-tensors pack-quantized, 8 bits";
    case ScaledLayout::gptq: return "GPTQ";
  }
  return "?";
}

/// w[n][k] = (code[n][k] - zero[n][g]) * scale[n / outputs][g], g = k / inputs, or order[k]. Non-owning.
struct ScaledTensor {
  std::string name;  // name of the layer
  std::string file;  // folder, for messages
  ScaledLayout layout = ScaledLayout::f8_rows;
  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 8;              // per code: 8, or 4 (GPTQ)
  std::int64_t outputs = 1;  // per scale
  std::int64_t inputs = 0;   // per scale
  const Tensor* codes = nullptr;
  const Tensor* scales = nullptr;
  const Tensor* zeros = nullptr;
  const Tensor* order = nullptr;  // GPTQ's g_idx, I32 [K]: the group of each input
  bool zeros_less_one = false;    // GPTQ's first version: words of zeros are stored less one in each code

  std::int64_t groups() const { return ceil_div(in, inputs); }
};

namespace detail {

/// Reads elements of a checked layer.
class ScaledReader {
 public:
  explicit ScaledReader(const ScaledTensor& layer) : layer_(layer), per_word_(32 / layer.bits) {
    scales_.resize(static_cast<std::size_t>(layer.scales->elements()));
    convert(*layer.scales, 0, layer.scales->elements(), scales_.data());
  }

  const std::vector<float>& scales() const { return scales_; }

  float scale(std::int64_t n, std::int64_t group) const {
    const bool columns = layer_.layout == ScaledLayout::gptq;
    const std::int64_t index = columns ? group * layer_.out + n : n / layer_.outputs * layer_.groups() + group;
    return scales_[static_cast<std::size_t>(index)];
  }

  std::int64_t group(std::int64_t k) const {
    return layer_.order ? load_unaligned<std::int32_t>(layer_.order->bytes + 4 * k) : k / layer_.inputs;
  }

  /// The integer code; for layouts other than f8_rows.
  int code(std::int64_t n, std::int64_t k) const {
    switch (layer_.layout) {
      case ScaledLayout::gptq: return field(*layer_.codes, k / per_word_ * layer_.out + n, k % per_word_, 0);
      case ScaledLayout::packed_rows:
        return field(*layer_.codes, n * layer_.codes->shape[1] + k / per_word_, k % per_word_, 0);
      default: return signed_byte(*layer_.codes, n * layer_.in + k);
    }
  }

  float float8(std::int64_t n, std::int64_t k) const {
    return to_float(float8_t{std::to_integer<std::uint8_t>(layer_.codes->bytes[n * layer_.in + k])});
  }

  int zero(std::int64_t n, std::int64_t group) const {
    const std::uint32_t add = !layer_.zeros_less_one ? 0 : layer_.bits == 4 ? 0x11111111u : 0x01010101u;
    switch (layer_.layout) {
      case ScaledLayout::gptq:
        return field(*layer_.zeros, group * layer_.zeros->shape[1] + n / per_word_, n % per_word_, add);
      case ScaledLayout::packed_rows:
        return layer_.zeros ? field(*layer_.zeros, n / per_word_ * layer_.groups() + group, n % per_word_, 0) : 128;
      default: return layer_.zeros ? signed_byte(*layer_.zeros, n / layer_.outputs * layer_.groups() + group) : 0;
    }
  }

 private:
  int field(const Tensor& words, std::int64_t word, std::int64_t index, std::uint32_t add) const {
    const std::uint32_t bits = load_unaligned<std::uint32_t>(words.bytes + 4 * word) + add;
    return static_cast<int>(bits >> layer_.bits * index & ((1u << layer_.bits) - 1));
  }
  static int signed_byte(const Tensor& tensor, std::int64_t index) {
    return std::to_integer<std::int8_t>(tensor.bytes[index]);
  }

  const ScaledTensor& layer_;
  std::int64_t per_word_;
  std::vector<float> scales_;
};

/// Whether Q8_0 blocks represent the layer exactly: codes around one constant zero, in groups of whole blocks, with
/// scales that are exact in F16.
inline bool fits_q8_0(const ScaledTensor& layer, const ScaledReader& reader) {
  constexpr int block = values_of_block(DType::q8_0);
  if (layer.layout == ScaledLayout::f8_rows || layer.bits != 8 || layer.order) return false;
  if (layer.in % block != 0 || layer.inputs % block != 0) return false;
  if (!std::all_of(reader.scales().begin(), reader.scales().end(), fits_half)) return false;
  if (!layer.zeros) return true;
  const int constant = layer.layout == ScaledLayout::i8_rows ? 0 : 128;
  for (std::int64_t n = 0; n < layer.out; ++n) {
    for (std::int64_t g = 0; g < layer.groups(); ++g) {
      if (reader.zero(n, g) != constant) return false;
    }
  }
  return true;
}

/// Memory for elements of `type`, owned by the tensor.
inline std::pair<Tensor, std::byte*> tensor_like(const ScaledTensor& layer, DType type) {
  Tensor tensor{.name = layer.name, .dtype = type, .shape = {layer.out, layer.in}, .bytes = nullptr, .size_bytes = 0};
  tensor.size_bytes = static_cast<std::size_t>(layer.out * layer.in / values_of_block(type)) * bytes_of(type);
  const std::shared_ptr<std::byte[]> memory = std::make_unique_for_overwrite<std::byte[]>(tensor.size_bytes);
  tensor.bytes = memory.get();
  tensor.owner = std::shared_ptr<const std::byte[]>(memory, tensor.bytes);
  return {std::move(tensor), memory.get()};
}

inline Tensor as_q8_0(const ScaledTensor& layer, const ScaledReader& reader) {
  constexpr int block = values_of_block(DType::q8_0);
  auto [tensor, to] = tensor_like(layer, DType::q8_0);
  const int middle = layer.layout == ScaledLayout::i8_rows ? 0 : 128;
  for (std::int64_t n = 0; n < layer.out; ++n) {
    for (std::int64_t k = 0; k < layer.in; k += block, to += bytes_of(DType::q8_0)) {
      const half_t scale = from_float<half_t>(reader.scale(n, k / layer.inputs));
      std::memcpy(to, &scale, sizeof scale);
      for (std::int64_t i = 0; i < block; ++i) {
        to[2 + i] = static_cast<std::byte>(reader.code(n, k + i) - middle);
      }
    }
  }
  return tensor;
}

}  // namespace detail

/// Dequantizes a checked layer: to Q8_0 blocks if they represent it exactly, else to fp32, where one product is rounded
/// per weight. Throws quant.non-finite for an FP8 code that is NaN and for a product that overflows.
inline Tensor dequantized(const ScaledTensor& layer) {
  const detail::ScaledReader reader(layer);
  if (detail::fits_q8_0(layer, reader)) return detail::as_q8_0(layer, reader);
  auto [tensor, to] = detail::tensor_like(layer, DType::f32);
  const bool floats = layer.layout == ScaledLayout::f8_rows;
  for (std::int64_t n = 0; n < layer.out; ++n) {
    for (std::int64_t k = 0; k < layer.in; ++k, to += sizeof(float)) {
      const std::int64_t group = reader.group(k);
      const float code = floats ? reader.float8(n, k) : static_cast<float>(reader.code(n, k) - reader.zero(n, group));
      const float weight = code * reader.scale(n, group);
      if (!std::isfinite(weight)) {
        throw Error(
            "quant.non-finite",
            text("'", layer.file, "', layer '", layer.name, "': the weight [", n, ", ", k, "] of '", layer.codes->name,
                 "' is ", std::isnan(weight) ? "NaN" : "infinite", ", expected a finite number"),
            "Quantize the model again, or download the checkpoint again");
      }
      std::memcpy(to, &weight, sizeof weight);
    }
  }
  return tensor;
}

}}
