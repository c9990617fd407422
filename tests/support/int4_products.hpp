// Products of four-bit weights by the kernels of a single kind of dot product, and their expected results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "support/fenced.hpp"
#include "support/int4_layers.hpp"

namespace slm::testing {

using backend::DotSet;
using backend::cpu::CodeMatrix;

inline std::vector<DotSet> available_dot_sets() {
  std::vector<DotSet> sets;
  for (const DotSet set : {DotSet::portable, DotSet::neon_dot, DotSet::neon_i8mm, DotSet::avx2, DotSet::avx2_vnni,
                           DotSet::avx512_vnni, DotSet::amx}) {
    if (backend::is_available(set)) sets.push_back(set);
  }
  return sets;
}

/// A layer and its matrix.
struct Int4TestMatrix {
  PackedLayer layer;
  CodeMatrix matrix;
  std::vector<float> weights;  // [out, in]

  explicit Int4TestMatrix(const Int4Rows& rows, DType scales = DType::f16)
      : layer(rows, Int4Packing{.layout = Int4Layout::packed_rows, .scale_dtype = scales}),
        weights(weights_of(layer.layer)) {
    backend::ThreadPool pool(1);
    const std::vector<LinearSource> sources{layer.layer};
    matrix = CodeMatrix::stack(sources, pool);
  }

  const CodeTiles& tiles() const { return matrix.segments.front().tiles; }
};

/// All rows of x [rows, in], for products with these tiles.
inline backend::cpu::PackTask pack_task(const backend::cpu::CodeKernels& kernels, const CodeTiles& tiles,
                                        const float* x, int rows, float* packed) {
  backend::cpu::PackTask task;
  task.x = x;
  task.x_stride = task.in = tiles.in;
  task.rows = rows;
  task.last_block = kernels.blocks(rows, tiles.bits).blocks;
  task.packed = packed;
  task.weight = &tiles;
  return task;
}

/// x [rows, in] . weights^T in pieces of `slice` outputs -> [rows, out]; terms: bytes of an activation.
inline std::vector<float> int4_product(DotSet set, int terms, const CodeTiles& tiles, const float* x, int rows,
                                       int slice = 128) {
  const backend::cpu::CodeKernels& kernels = backend::cpu::code_kernels(set, terms);
  backend::PageBuffer<float> packed(static_cast<std::size_t>(kernels.packed_floats(rows, tiles.in)));
  backend::PageBuffer<float> scratch(backend::cpu::matmul_scratch(tiles.in));
  kernels.pack(pack_task(kernels, tiles, x, rows, packed.data()));
  std::vector<float> out(static_cast<std::size_t>(rows * tiles.out), std::nanf(""));
  for (std::int64_t first = 0; first < tiles.out; first += slice) {
    kernels.matmul({.weight = &tiles,
                    .first = first,
                    .count = static_cast<int>(std::min<std::int64_t>(slice, tiles.out - first)),
                    .packed = packed.data(),
                    .rows = rows,
                    .out = out.data() + first,
                    .out_stride = tiles.out,
                    .scratch = scratch.data()});
  }
  return out;
}

/// The same by kernels whose weights, activations, packed rows, scratch and results each end at a page that faults.
inline std::vector<float> fenced_int4_product(DotSet set, int terms, CodeTiles tiles, const std::vector<float>& x,
                                              int rows) {
  const auto copied = [](const void* from, std::size_t bytes) {
    auto fenced = std::make_unique<Fenced>(bytes);
    std::memcpy(fenced->data(), from, bytes);
    return fenced;
  };
  const backend::cpu::CodeKernels& kernels = backend::cpu::code_kernels(set, terms);
  const auto weights = copied(tiles.bytes, static_cast<std::size_t>(tiles.total_bytes()));
  const auto values = copied(x.data(), x.size() * sizeof(float));
  const auto width = static_cast<std::size_t>(rows) * static_cast<std::size_t>(tiles.out);
  const Fenced out(width * sizeof(float));
  const Fenced packed(static_cast<std::size_t>(kernels.packed_floats(rows, tiles.in)) * sizeof(float));
  const Fenced scratch(backend::cpu::matmul_scratch(tiles.in) * sizeof(float));
  tiles.bytes = weights->data();
  kernels.pack(pack_task(kernels, tiles, values->floats(), rows, packed.floats()));
  kernels.matmul({.weight = &tiles,
                  .first = 0,
                  .count = static_cast<int>(tiles.out),
                  .packed = packed.floats(),
                  .rows = rows,
                  .out = out.floats(),
                  .out_stride = tiles.out,
                  .scratch = scratch.floats()});
  return {out.floats(), out.floats() + width};
}

/// The same in double.
inline std::vector<double> exact_product(const std::vector<float>& weights, const std::vector<float>& x, int rows,
                                         std::int64_t in) {
  std::vector<double> out;
  for (int r = 0; r < rows; ++r) {
    for (std::size_t n = 0; n < weights.size(); n += static_cast<std::size_t>(in)) {
      double sum = 0;
      for (std::int64_t k = 0; k < in; ++k) {
        sum += static_cast<double>(weights[n + static_cast<std::size_t>(k)]) *
               static_cast<double>(x[static_cast<std::size_t>(r * in + k)]);
      }
      out.push_back(sum);
    }
  }
  return out;
}

/// |a - b| / |b|
inline double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

/// Normal with mean 0 and variance 1.
inline std::vector<float> gaussian(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(random()) + 1) / 2 + 1e-12));
    value = static_cast<float>(radius * std::cos(3.14159265358979 * static_cast<double>(random())));
  }
  return values;
}

}  // namespace slm::testing
