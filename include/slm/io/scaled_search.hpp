// ScaledSearch: finds layers in GPTQ, FP8 and 8-bit integers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "slm/core/dim.hpp"
#include "slm/core/error.hpp"
#include "slm/formats/scaled_check.hpp"
#include "slm/io/layer_search.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

class ScaledSearch : public LayerSearch {
 public:
  using Form = StatedQuantization::Form;

  explicit ScaledSearch(const LayerSearch& search) : LayerSearch(search) {}

  /// FP8 codes with one scale per tensor, per output, per group of inputs or per block of outputs and inputs.
  StoredLinear float8(const Tensor& codes) const {
    if (settings().form != Form::fp8) check_method(Method::compressed_tensors, codes, "FP8");
    ScaledTensor layer = scaled_layer(codes, ScaledLayout::f8_rows);
    layer.scales = &need(codes, {".weight_scale", ".weight_scale_inv"});
    if (const Tensor* zeros = find(".weight_zero_point")) {
      throw Error("quant.unsupported-setting", text(where_, " has '", zeros->name, "': FP8 codes with zero points"),
                  "Use another checkpoint of the model");
    }
    set_extents(layer, true);
    return checked(layer);
  }

  /// compressed-tensors int-quantized.
  StoredLinear int8(const Tensor& codes) const {
    check_method(Method::compressed_tensors, codes, "8-bit integers");
    ScaledTensor layer = scaled_layer(codes, ScaledLayout::i8_rows);
    layer.scales = &need(codes, {".weight_scale"});
    layer.zeros = find(".weight_zero_point");
    set_extents(layer, false);
    return checked(layer);
  }

  bool has_eight_bits(const Tensor& codes) const {
    return in_ > 4 && codes.shape == std::vector{out_, ceil_div<std::int64_t>(in_, 4)};
  }

  /// compressed-tensors pack-quantized with eight bits.
  StoredLinear packed(const Tensor& codes) const {
    check_method(Method::compressed_tensors, codes, "compressed-tensors");
    ScaledTensor layer = scaled_layer(codes, ScaledLayout::packed_rows);
    layer.scales = &need(codes, {".weight_scale"});
    layer.zeros = find(".weight_zero_point");
    if (const Tensor* shape = find(".weight_shape")) check_stated_shape(*shape);
    set_extents(layer, false);
    return checked(layer);
  }

  /// GPTQ. Four bits with groups of adjacent inputs are read by kernels.
  StoredLinear gptq(const Tensor& codes) const {
    if (codes.shape.size() == 3) throw fused_experts(codes);
    ScaledTensor layer = scaled_layer(codes, ScaledLayout::gptq);
    layer.bits = settings().bits;
    layer.zeros_less_one = settings().zeros_less_one;
    layer.scales = &need(codes, {".scales"});
    layer.zeros = &need(codes, {".qzeros"});
    layer.order = find(".g_idx");
    if (layer.order && layer.order->elements() == 0) layer.order = nullptr;
    const Int4Rule& rule = settings().rules.front();
    const std::int64_t groups = layer.scales->shape.empty() ? 0 : layer.scales->shape[0];
    layer.inputs = rule.group > 0 ? rule.group : rule.group == -1 || groups < 1 ? in_ : ceil_div(in_, groups);
    if (groups != layer.groups()) {
      throw Error("quant.group-mismatch",
                  text(where_, ": '", settings().file, "' says group_size ", rule.group, ", but '", layer.scales->name,
                       "' has ", groups, " groups for ", in_, " inputs, expected ", layer.groups()),
                  "Check that config.json belongs to these weights");
    }
    check_scaled(layer, where_);
    if (layer.order && is_in_sequence(layer)) layer.order = nullptr;
    if (layer.bits != 4 || layer.order || in_ % layer.inputs != 0) return layer;
    Int4Tensor int4 = layer_of(codes);
    int4.layout = Int4Layout::gptq;
    int4.group = layer.inputs;
    int4.scales = layer.scales;
    int4.zeros = layer.zeros;
    int4.zeros_less_one = layer.zeros_less_one;
    return LayerSearch::checked(int4);
  }

 private:
  ScaledTensor scaled_layer(const Tensor& codes, ScaledLayout layout) const {
    ScaledTensor layer;
    layer.name = module_;
    layer.file = checkpoint_.folder().string();
    layer.layout = layout;
    layer.out = out_;
    layer.in = in_;
    layer.codes = &codes;
    return layer;
  }

  StoredLinear checked(const ScaledTensor& layer) const {
    check_scaled(layer, where_);
    return layer;
  }

  static bool is_in_sequence(const ScaledTensor& layer) {
    for (std::int64_t k = 0; k < layer.in; ++k) {
      if (load_unaligned<std::int32_t>(layer.order->bytes + 4 * k) != k / layer.inputs) return false;
    }
    return true;
  }

  /// Outputs and inputs per scale, from the shape of the scales. Blocks are 128 x 128 unless the settings state others.
  void set_extents(ScaledTensor& layer, bool floating) const {
    const std::vector<std::int64_t>& shape = layer.scales->shape;
    const auto [outputs, inputs] = block_of(floating);
    layer.outputs = 1;
    layer.inputs = in_;
    if (layer.scales->elements() == 1 && shape.size() <= 2) {
      layer.outputs = out_;
    } else if (floating && shape == std::vector{ceil_div(out_, outputs), ceil_div(in_, inputs)}) {
      layer.outputs = outputs;
      layer.inputs = inputs;
    } else if (shape.size() == 2 && shape[0] == out_ && shape[1] > 0 && in_ % shape[1] == 0) {
      layer.inputs = in_ / shape[1];
    } else if (shape != std::vector{out_}) {
      throw Error("quant.wrong-shape",
                  text(where_, ": '", layer.scales->name, "' is ", shape_text(shape), ", expected one scale, one per ",
                       "output, or one per group or block of a layer [", out_, ", ", in_, "]"),
                  "Check that config.json belongs to these weights, or export them again");
    }
    check_group(layer, floating);
  }

  std::array<std::int64_t, 2> block_of(bool floating) const {
    if (settings().block[0] != 0) return settings().block;
    for (const EightBitRule& rule : settings().eight_bits) {
      if (rule.floating == floating && rule.block[0] != 0) return rule.block;
    }
    return {128, 128};
  }

  /// Compares the group size with the config groups of the same number type: one of them must agree.
  void check_group(const ScaledTensor& layer, bool floating) const {
    const EightBitRule* other = nullptr;
    for (const EightBitRule& rule : settings().eight_bits) {
      if (rule.floating != floating) continue;
      const std::int64_t stated = rule.group == -1 ? in_ : rule.group;
      if (stated == 0 || (stated == layer.inputs && layer.outputs == 1)) return;
      other = &rule;
    }
    if (!other) return;
    throw Error(
        "quant.group-mismatch",
        text(where_, ": '", settings().file, "' says ", other->name, " ", other->group, ", but '", layer.scales->name,
             "' ", shape_text(layer.scales->shape), " implies ", layer.inputs, " inputs per scale"),
        "Check that config.json belongs to these weights");
  }
};

}}}
