// Random matrices in GGUF's blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/formats/convert.hpp"
#include "support/random_layer.hpp"

namespace slm::testing {

inline constexpr DType block_types[] = {DType::q4_0,    DType::q4_1,    DType::q5_0,   DType::q5_1,  DType::q8_0,
                                        DType::q2_k,    DType::iq4_nl,  DType::q3_k,   DType::q4_k,  DType::q5_k,
                                        DType::q6_k,    DType::iq4_xs,  DType::iq3_s,  DType::tq1_0, DType::tq2_0,
                                        DType::iq3_xxs, DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq1_s,
                                        DType::iq1_m,   DType::mxfp4};

/// The position of a block's F16 scale, and of its minimum after it.
inline std::size_t scale_place(DType type) {
  switch (type) {
    case DType::q2_k: return 80;
    case DType::q3_k: return 108;
    case DType::q6_k: return 208;
    case DType::tq1_0: return 52;
    case DType::tq2_0: return 64;
    default: return 0;
  }
}

/// Any codes and factors; scales and minima of either sign.
struct BlockMatrix {
  std::vector<std::byte> bytes;
  Tensor tensor;
  std::vector<float> weights;  // [out, in]

  BlockMatrix(DType type, std::int64_t out, std::int64_t in, std::uint64_t seed) {
    Random random(seed);
    const std::size_t size = bytes_of(type), blocks = static_cast<std::size_t>(out * in / values_of_block(type));
    for (std::size_t i = 0; i < blocks * size; ++i) bytes.push_back(static_cast<std::byte>((random() + 1) * 127.99f));
    const auto set = [&](std::size_t place, float value) {
      const half_t half = from_float<half_t>(value);
      std::memcpy(bytes.data() + place, &half, sizeof half);
    };
    const CodeTiles tiles = code_tiles_of(type);
    for (std::size_t block = 0; block < blocks; ++block) {
      if (type == DType::mxfp4) {
        bytes[block * size] = static_cast<std::byte>(117 + block % 8);
      } else if (type == DType::iq1_m) {  // its scale is in the upper halves of four numbers: 0x24..
        for (const std::size_t part : {49u, 51u, 53u, 55u}) {
          const std::byte upper{static_cast<unsigned char>(part == 55   ? 0x20
                                                           : part == 53 ? 0x40
                                                                        : 0x10 * (block % 16))};
          bytes[block * size + part] = (bytes[block * size + part] & std::byte{15}) | upper;
        }
      } else {
        set(block * size + scale_place(type), 0.02f * random());
      }
      if (tiles.has_minima()) set(block * size + scale_place(type) + 2, 0.2f * random());
    }
    tensor = {.name = "blocks", .dtype = type, .shape = {out, in}, .bytes = bytes.data(), .size_bytes = bytes.size()};
    weights.resize(static_cast<std::size_t>(out * in));
    convert(tensor, 0, out * in, weights.data());
  }
  BlockMatrix(const BlockMatrix&) = delete;
  BlockMatrix& operator=(const BlockMatrix&) = delete;

  backend::cpu::CodeMatrix packed(int threads = 1) const {
    backend::ThreadPool pool(threads);
    const std::vector<LinearSource> sources{tensor};
    return backend::cpu::CodeMatrix::stack(sources, pool);
  }
};

}  // namespace slm::testing
