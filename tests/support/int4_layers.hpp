// Random 4-bit layers, stored in any of the published layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "slm/awq/int4_pack.hpp"
#include "slm/formats/int4_rows.hpp"
#include "support/random_layer.hpp"

namespace slm::testing {

inline constexpr Int4Layout all_layouts[] = {
    Int4Layout::awq_gemm,    Int4Layout::awq_gemv,      Int4Layout::awq_gemv_fast, Int4Layout::packed_rows,
    Int4Layout::quark_order, Int4Layout::quark_reorder, Int4Layout::gptq};

/// Codes and zeros over the whole range, scales as from a quantizer, rounded to F16.
inline Int4Rows random_rows(std::int64_t out, std::int64_t in, std::int64_t group, std::uint64_t seed,
                            bool symmetric = false) {
  Random random(seed);
  Int4Rows rows{.rows = out, .in = in, .group = group, .codes = {}, .zeros = {}, .scales = {}};
  const auto nibble = [&random] { return static_cast<std::uint8_t>((random() + 1) * 7.999f); };
  for (std::int64_t i = 0; i < out * in; ++i) rows.codes.push_back(nibble());
  for (std::int64_t i = 0; i < out * rows.groups(); ++i) {
    rows.zeros.push_back(symmetric ? std::uint8_t{8} : nibble());
    rows.scales.push_back(to_float(from_float<half_t>(0.02f * random())));  // negative ones are valid
  }
  return rows;
}

/// A layer in a layout, with its tensors.
struct PackedLayer {
  std::vector<OwnedTensor> tensors;
  Int4Tensor layer;

  PackedLayer(const Int4Rows& rows, const Int4Packing& packing) : tensors(pack_int4(rows, "layer", packing)) {
    layer.name = "layer";
    layer.layout = packing.layout;
    layer.out = rows.rows;
    layer.in = rows.in;
    layer.group = rows.group;
    layer.codes = &tensors[0];
    layer.scales = &tensors[1];
    if (tensors.size() > 2 && !tensors[2].name.ends_with("weight_shape")) layer.zeros = &tensors[2];
    layer.twos_complement = packing.twos_complement;
    layer.zeros_less_one = packing.zeros_less_one;
  }
  PackedLayer(const PackedLayer&) = delete;
  PackedLayer& operator=(const PackedLayer&) = delete;
};

inline std::vector<float> weights_of(const Int4Tensor& layer) {
  std::vector<float> weights(static_cast<std::size_t>(layer.out * layer.in));
  dequantize(layer, weights.data());
  return weights;
}

}  // namespace slm::testing
