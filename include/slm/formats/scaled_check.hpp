// Checks the tensors of a layer that is dequantized at load.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "slm/core/dim.hpp"
#include "slm/core/error.hpp"
#include "slm/core/tensor.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/finite.hpp"
#include "slm/formats/int4_check.hpp"
#include "slm/formats/scaled_tensor.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

class ScaledCheck {
 public:
  ScaledCheck(const ScaledTensor& layer, const std::string& where) : layer_(layer), where_(where) {}

  void run() const {
    if (layer_.out < 1 || layer_.in < 1 || layer_.inputs < 1 || layer_.outputs < 1) {
      throw Error("quant.group-size",
                  text(where_, ": in_features ", layer_.in, " cannot be in groups of ", layer_.inputs),
                  "Use a checkpoint of a group size that divides the layer's inputs");
    }
    const std::int64_t per_word = 32 / layer_.bits, groups = layer_.groups();
    const auto words = [per_word](std::int64_t codes) { return ceil_div(codes, per_word); };
    switch (layer_.layout) {
      case ScaledLayout::f8_rows: check(*layer_.codes, DType::f8_e4m3, {layer_.out, layer_.in}); break;
      case ScaledLayout::i8_rows:
        check(*layer_.codes, DType::i8, {layer_.out, layer_.in});
        if (layer_.zeros) check(*layer_.zeros, DType::i8, layer_.scales->shape);
        break;
      case ScaledLayout::packed_rows:
        check(*layer_.codes, DType::i32, {layer_.out, words(layer_.in)});
        if (layer_.zeros) check(*layer_.zeros, DType::i32, {words(layer_.out), groups});
        break;
      case ScaledLayout::gptq:
        check_whole_words(per_word);
        check(*layer_.codes, DType::i32, {words(layer_.in), layer_.out});
        check(*layer_.zeros, DType::i32, {groups, words(layer_.out)});
        if (layer_.scales->shape != std::vector{groups, layer_.out}) {
          throw wrong_shape(*layer_.scales, {groups, layer_.out});
        }
        break;
    }
    check_scales(groups);
    if (layer_.order) check_order(groups);
  }

 private:
  Error wrong_shape(const Tensor& tensor, const std::vector<std::int64_t>& expected) const {
    return Error("quant.wrong-shape",
                 text(where_, ": '", tensor.name, "' is ", shape_text(tensor.shape), ", expected ",
                      shape_text(expected), " of a layer [", layer_.out, ", ", layer_.in, "] in ",
                      name_of(layer_.layout), " with ", layer_.bits, " bits and ", layer_.inputs, " inputs per scale"),
                 "Check that config.json belongs to these weights, or export them again");
  }

  void check(const Tensor& tensor, DType dtype, const std::vector<std::int64_t>& shape) const {
    if (tensor.dtype != dtype) throw wrong_dtype(tensor, name_of(dtype));
    if (tensor.shape != shape) throw wrong_shape(tensor, shape);
  }

  Error wrong_dtype(const Tensor& tensor, std::string_view expected) const {
    return Error("quant.wrong-dtype",
                 text(where_, ": '", tensor.name, "' is ", name_of(tensor.dtype), ", expected ", expected),
                 "Download or export the checkpoint again");
  }

  void check_whole_words(std::int64_t per_word) const {
    if (layer_.out % per_word == 0 && layer_.in % per_word == 0) return;
    throw Error("quant.wrong-shape",
                text(where_, ": out_features ", layer_.out, " and in_features ", layer_.in, " are not multiples of ",
                     per_word, ", as the layout ", name_of(layer_.layout), " needs"),
                "Use the model's checkpoint in another layout");
  }

  void check_scales(std::int64_t groups) const {
    const Tensor& scales = *layer_.scales;
    if (!is_floating_point(scales.dtype)) throw wrong_dtype(scales, "F16, BF16 or F32");
    const std::int64_t rows = ceil_div(layer_.out, layer_.outputs);
    if (scales.elements() != rows * groups) throw wrong_shape(scales, {rows, groups});
    const auto index = first_non_finite(scales);
    if (!index) return;
    float value = 0;
    convert(scales, *index, 1, &value);
    throw Error("quant.non-finite",
                text(where_, ": '", scales.name, "' [", *index, "] is ", std::isnan(value) ? "NaN" : "infinite",
                     ", expected a finite number"),
                "Quantize the model again: overflow in half precision or empty calibration data cause this");
  }

  void check_order(std::int64_t groups) const {
    check(*layer_.order, DType::i32, {layer_.in});
    for (std::int64_t k = 0; k < layer_.in; ++k) {
      const auto group = load_unaligned<std::int32_t>(layer_.order->bytes + 4 * k);
      if (group >= 0 && group < groups) continue;
      throw Error("quant.bad-group-index",
                  text(where_, ": '", layer_.order->name, "' [", k, "] is ", group, ", expected 0..", groups - 1),
                  "Download or export the checkpoint again");
    }
  }

  const ScaledTensor& layer_;
  const std::string& where_;
};

}  // namespace detail

/// Throws Error unless the tensors of `layer` have the dtypes and shapes of its layout, finite scales, and groups that
/// exist. where: folder and layer, for messages.
inline void check_scaled(const ScaledTensor& layer, const std::string& where) {
  detail::ScaledCheck(layer, where).run();
}

}}
