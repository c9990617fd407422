// Checks the tensors of a 4-bit layer against its layout.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/finite.hpp"
#include "slm/formats/int4_tensor.hpp"

namespace slm { inline namespace v0_1 {

/// Whether zero points are packed integers like the codes, or floats -scale * zero.
constexpr bool has_integer_zeros(Int4Layout layout) { return layout != Int4Layout::awq_gemv_fast; }

/// Words of eight group entries per row in AutoAWQ's gemv layouts, with the padding that their kernels need.
constexpr std::int64_t gemv_zero_words(std::int64_t groups, std::int64_t group) {
  const std::int64_t multiple = group == 64 ? 2 : group == 32 ? 4 : 1;
  return ((groups + 7) / 8 + multiple - 1) / multiple * multiple;
}

/// Tensor shapes of a layer [out, in]; a symmetric layer has no zeros.
struct Int4Shapes {
  DType code_dtype = DType::i32;
  std::vector<std::int64_t> codes;
  std::vector<std::int64_t> scales;
  std::vector<std::int64_t> zeros;
};

inline Int4Shapes shapes_of(Int4Layout layout, std::int64_t out, std::int64_t in, std::int64_t group) {
  const auto words = [](std::int64_t nibbles) { return (nibbles + 7) / 8; };
  const std::int64_t groups = in / group;
  const std::int64_t padded = gemv_zero_words(groups, group);
  switch (layout) {
    case Int4Layout::awq_gemm:
    case Int4Layout::quark_order:
    case Int4Layout::quark_reorder: return {DType::i32, {in, words(out)}, {groups, out}, {groups, words(out)}};
    case Int4Layout::awq_gemv: return {DType::i32, {out, words(in)}, {out, 8 * padded}, {out, padded}};
    case Int4Layout::awq_gemv_fast: return {DType::i16, {out / 4, in}, {8 * padded, out}, {8 * padded, out}};
    case Int4Layout::packed_rows: return {DType::i32, {out, words(in)}, {out, groups}, {words(out), groups}};
    case Int4Layout::gptq: return {DType::i32, {words(in), out}, {groups, out}, {groups, words(out)}};
  }
  return {};
}

/// Why a layout cannot hold a layer of this size; empty if it can.
inline std::string misfit(Int4Layout layout, std::int64_t out, std::int64_t in) {
  const auto rule = [](const char* name, std::int64_t width, std::int64_t divisor) {
    return width % divisor == 0 ? std::string{} : text(name, " ", width, " is not a multiple of ", divisor);
  };
  switch (layout) {
    case Int4Layout::awq_gemm: return rule("out_features", out, 8);
    case Int4Layout::awq_gemv: return rule("in_features", in, 8);
    case Int4Layout::awq_gemv_fast: {
      const std::string rows = rule("out_features", out, 4);
      return rows.empty() ? rule("in_features", in, 64) : rows;
    }
    case Int4Layout::gptq: {
      const std::string rows = rule("out_features", out, 8);
      return rows.empty() ? rule("in_features", in, 8) : rows;
    }
    default: return {};
  }
}

namespace detail {

/// The checks of one layer. where: prefix of every message, "'folder', layer 'name'".
class Int4Check {
 public:
  Int4Check(const Int4Tensor& layer, const std::string& where) : layer_(layer), where_(where) {}

  void run() const {
    if (layer_.group < 1 || layer_.in % layer_.group != 0) {
      throw Error("quant.group-size",
                  text(where_, ": in_features ", layer_.in, " is not a multiple of the group size ", layer_.group),
                  "Use a checkpoint of a group size that divides the layer's inputs");
    }
    if (const auto what = misfit(layer_.layout, layer_.out, layer_.in); !what.empty()) {
      throw Error("quant.wrong-shape", text(where_, ": ", what, ", as the layout ", name_of(layer_.layout), " needs"),
                  "Use the model's checkpoint in AutoAWQ gemm or compressed-tensors");
    }
    const Int4Shapes shapes = shapes_of(layer_.layout, layer_.out, layer_.in, layer_.group);
    check_dtype(*layer_.codes, layer_.codes->dtype == shapes.code_dtype, name_of(shapes.code_dtype));
    check_dtype(*layer_.scales, is_floating_point(layer_.scales->dtype), "F16, BF16 or F32");
    check_shape(*layer_.codes, shapes.codes, false);
    check_shape(*layer_.scales, shapes.scales, is_quark());
    check_finite(*layer_.scales);
    if (!layer_.zeros) return;
    const bool integers = has_integer_zeros(layer_.layout);
    check_dtype(*layer_.zeros, integers ? layer_.zeros->dtype == DType::i32 : is_floating_point(layer_.zeros->dtype),
                integers ? "I32" : "F16, BF16 or F32");
    check_shape(*layer_.zeros, shapes.zeros, false);
    if (!integers) check_float_zeros();
  }

 private:
  bool is_quark() const {
    return layer_.layout == Int4Layout::quark_order || layer_.layout == Int4Layout::quark_reorder;
  }

  void check_dtype(const Tensor& tensor, bool sound, std::string_view expected) const {
    if (sound) return;
    throw Error("quant.wrong-dtype",
                text(where_, ": '", tensor.name, "' is ", name_of(tensor.dtype), ", expected ", expected),
                "Download or export the checkpoint again");
  }

  /// Quark may pad the outputs of its scales like those of its codes.
  void check_shape(const Tensor& tensor, const std::vector<std::int64_t>& expected, bool may_be_padded) const {
    if (tensor.shape == expected) return;
    if (may_be_padded && tensor.shape == std::vector{expected[0], (expected[1] + 7) / 8 * 8}) return;
    throw Error("quant.wrong-shape",
                text(where_, ": '", tensor.name, "' is ", shape_text(tensor.shape), ", expected ", shape_text(expected),
                     " of a layer [", layer_.out, ", ", layer_.in, "] in ", name_of(layer_.layout), " with group size ",
                     layer_.group),
                "Check that config.json belongs to these weights, or export them again");
  }

  std::string element_text(const Tensor& tensor, std::int64_t index) const {
    const std::int64_t width = tensor.shape.back();
    const bool groups_first = layer_.layout != Int4Layout::awq_gemv && layer_.layout != Int4Layout::packed_rows;
    const std::int64_t row = index / width, column = index % width;
    return text("'", tensor.name, "' [g=", groups_first ? row : column, ", n=", groups_first ? column : row, "]");
  }

  void check_finite(const Tensor& tensor) const {
    const auto index = first_non_finite(tensor);
    if (!index) return;
    float value = 0;
    convert(tensor, *index, 1, &value);
    throw Error("quant.non-finite",
                text(where_, ": ", element_text(tensor, *index), " is ", std::isnan(value) ? "NaN" : "infinite",
                     ", expected a finite number"),
                "Quantize the model again: overflow in half precision or empty calibration data cause this");
  }

  /// gemv_fast stores -scale * zero, rounded. Dividing by -scale must give an integer of 0..15.
  void check_float_zeros() const {
    check_finite(*layer_.zeros);
    const std::int64_t groups = layer_.in / layer_.group;
    std::vector<float> scales(static_cast<std::size_t>(layer_.out)), zeros(scales.size());
    for (std::int64_t g = 0; g < groups; ++g) {
      convert(*layer_.scales, g * layer_.out, layer_.out, scales.data());
      convert(*layer_.zeros, g * layer_.out, layer_.out, zeros.data());
      for (std::int64_t n = 0; n < layer_.out; ++n) {
        const float scale = scales[static_cast<std::size_t>(n)], product = zeros[static_cast<std::size_t>(n)];
        const float zero = scale == 0 ? 0 : std::nearbyint(-product / scale);
        // Rounding the product to BF16 changes it by at most 1/256 of itself.
        if (zero >= 0 && zero <= 15 && std::abs(product + zero * scale) <= std::abs(product) * 0x1p-7f) continue;
        throw Error("quant.bad-zero",
                    text(where_, ": ", element_text(*layer_.zeros, g * layer_.out + n), " is ", product,
                         ", expected -scale * z of a scale ", scale, " and an integer z of 0..15"),
                    "Download or export the checkpoint again");
      }
    }
  }

  const Int4Tensor& layer_;
  const std::string& where_;
};

}  // namespace detail

/// Throws Error unless the tensors of `layer` have the dtypes and shapes of its layout, finite scales and integer zero
/// points. Scales may be negative, zero or subnormal. where: folder and layer, for messages.
inline void check_int4(const Int4Tensor& layer, const std::string& where) { detail::Int4Check(layer, where).run(); }

}}
