// Matrices in MXFP4 of Hugging Face folders -> blocks of GGUF, with the same values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// blocks [out, in / 32, 16]: byte j holds the codes of values 2j and 2j + 1. scales [out, in / 32]. A block of GGUF is
/// its scale, then 16 bytes with the codes of values j and j + 16. where: the layer, for messages.
inline Tensor mxfp4_matrix(const Tensor& blocks, const Tensor& scales, std::int64_t out, std::int64_t in,
                           const std::string& where) {
  const std::int64_t groups = in / 32;
  for (const auto& [tensor, shape] :
       {std::pair{&blocks, std::vector<std::int64_t>{out, groups, 16}}, {&scales, {out, groups}}}) {
    if (in % 32 == 0 && tensor->dtype == DType::u8 && tensor->shape == shape) continue;
    throw Error("quant.wrong-shape",
                text(where, ": '", tensor->name, "' is ", name_of(tensor->dtype), " ", shape_text(tensor->shape),
                     ", expected U8 ", shape_text(shape), " for [", out, ", ", in, "] in MXFP4"),
                "Check that config.json belongs to these weights");
  }
  constexpr std::size_t block_bytes = 17;
  const auto count = static_cast<std::size_t>(out * groups);
  auto bytes = std::make_unique_for_overwrite<std::byte[]>(count * block_bytes);
  for (std::size_t block = 0; block < count; ++block) {
    const std::byte* const from = blocks.bytes + block * 16;
    std::byte* const to = bytes.get() + block * block_bytes;
    const auto code = [&](std::size_t value) {
      return value % 2 == 0 ? from[value / 2] & std::byte{15} : from[value / 2] >> 4;
    };
    constexpr std::byte largest{252};  // beyond it values overflow; 255 is NaN
    if (scales.bytes[block] > largest) {
      throw Error("quant.non-finite",
                  text(where, ": '", scales.name, "' [", block, "] is ", static_cast<int>(scales.bytes[block]),
                       ", expected the exponent of a finite scale, 0..252"),
                  "Download the checkpoint again");
    }
    to[0] = scales.bytes[block];
    for (std::size_t j = 0; j < 16; ++j) to[1 + j] = code(j) | code(j + 16) << 4;
  }
  Tensor matrix{.name = blocks.name,
                .dtype = DType::mxfp4,
                .shape = {out, in},
                .bytes = bytes.get(),
                .size_bytes = count * block_bytes};
  matrix.owner = std::move(bytes);
  return matrix;
}

}}}
