// WeightReader: tensors of a checkpoint, by their roles, into the memory of a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/activation_scales.hpp"
#include "slm/model/layer_weights.hpp"
#include "slm/model/linear_source.hpp"
#include "slm/model/tensor_names.hpp"

namespace slm {

template <WeightFormat Format, Backend B>
struct WeightReader {
  using Layer = LayerWeights<Format, B>;
  using Matrix = typename Layer::Matrix;
  using Vector = typename Layer::Vector;

  const Checkpoint& checkpoint;
  B& device;
  TensorNames names{checkpoint};
  std::int64_t step_bytes = 0;                            // of the matrices that pack_step() has made
  std::vector<std::unique_ptr<std::byte[]>> turned = {};  // matrices may refer to these bytes too

  Layer layer(int l) {
    const ModelConfig& shape = checkpoint.config();
    Layer layer;
    layer.attention_norm = norm(names.attention_norm(l));
    if (shape.order != BlockOrder::parallel) layer.mlp_norm = norm(names.mlp_norm(l));
    if (shape.qk_norm != QkNorm::none) {
      layer.q_norm = norm(names.q_norm(l));
      layer.k_norm = norm(names.k_norm(l));
    }
    layer.qkv = pack_step(names.qkv(l));
    layer.attention_out = pack_step(names.attention_out(l));
    layer.gate_up = pack_step(names.gate_up(l));
    layer.down = pack_step(names.down(l));
    if (shape.attention_bias != AttentionBias::none) layer.qkv_bias = bias(names.qkv(l));
    if (shape.attention_bias == AttentionBias::all) layer.attention_out_bias = bias(names.attention_out(l));
    if (shape.mlp_bias) {
      layer.gate_up_bias = bias(names.gate_up(l));
      layer.down_bias = bias(names.down(l));
    }
    if (const TensorName scales = names.activation_scales(l); checkpoint.has(scales.name)) {
      if (activation_scales(checkpoint, scales.module(), shape.ffn)) layer.down_divisor = vector({scales});
    }
    return layer;
  }

  Matrix pack(const std::vector<TensorName>& weights) {
    std::vector<typename Format::Source> sources;
    for (const TensorName& weight : weights) sources.push_back(source(weight));
    return device.template pack<Format>(sources);
  }

  Matrix pack_step(const std::vector<TensorName>& weights) {
    Matrix matrix = pack(weights);
    step_bytes += matrix.bytes();
    return matrix;
  }

  Vector vector(const std::vector<TensorName>& tensors, float factor = 1) const {
    std::vector<float> values;
    for (const TensorName& name : tensors) {
      const Tensor& tensor = checkpoint.tensor(name.name, name.shape);
      if (const auto index = first_non_finite(tensor)) {
        throw Error(
            "checkpoint.non-finite",
            text("'", checkpoint.folder().string(), "': '", name.name, "' [", *index, "] is not a finite number"),
            "Download or export the checkpoint again");
      }
      const auto start = values.size();
      values.resize(start + static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data() + start);
    }
    for (float& value : values) value *= factor;
    return device.upload(values.data(), values.size());
  }

  Vector bias(const std::vector<TensorName>& weights, float factor = 1) const {
    std::vector<TensorName> biases;
    for (const TensorName& weight : weights) biases.push_back(TensorNames::bias_of(weight));
    return vector(biases, factor);
  }

  NormWeights<B> norm(const TensorName& weight, float factor = 1) const {
    const ModelConfig& shape = checkpoint.config();
    NormWeights<B> norm;
    if (shape.norm_affine != NormAffine::none) norm.weight = vector({weight}, factor);
    if (shape.norm_affine == NormAffine::weight_and_bias) norm.bias = bias({weight}, factor);
    return norm;
  }

 private:
  typename Format::Source source(const TensorName& weight) {
    if (weight.transposed) return transpose(checkpoint.tensor(weight.name, weight.shape));
    if constexpr (DenseFormat<Format>) {
      return checkpoint.tensor(weight.name, weight.shape);
    } else {
      const std::string module = weight.module();
      LinearSource layer = linear_source(checkpoint, module, weight.shape.at(0), weight.shape.at(1));
      if (const auto* int4 = std::get_if<Int4Tensor>(&layer); int4 && Format::group != any_group) {
        const std::int64_t group = Format::group == whole_row ? int4->in : Format::group;
        if (int4->group != group) {
          throw Error("quant.other-group",
                      text("'", checkpoint.folder().string(), "', layer '", module, "' has groups of ", int4->group,
                           " inputs, the model's type says ", group),
                      "Name the checkpoint's group in AwqInt4<...>, or AwqInt4<> for any");
        }
      }
      return layer;
    }
  }

  /// [in, out] -> a copy [out, in], in the format's own type so that pack() need not make a second one.
  Tensor transpose(const Tensor& tensor) {
    const auto copy = [&]<class Element>(Element, DType dtype) {
      const std::int64_t in = tensor.shape[0], out = tensor.shape[1];
      Tensor whole = tensor;
      whole.dtype = dtype;
      whole.shape = {out, in};
      whole.size_bytes = static_cast<std::size_t>(in * out) * sizeof(Element);
      auto bytes = std::make_unique_for_overwrite<std::byte[]>(whole.size_bytes);
      std::vector<Element> row(static_cast<std::size_t>(out));
      for (std::int64_t i = 0; i < in; ++i) {
        convert(tensor, i * out, out, row.data());
        for (std::int64_t o = 0; o < out; ++o) {
          std::memcpy(bytes.get() + (o * in + i) * std::int64_t{sizeof(Element)}, &row[static_cast<std::size_t>(o)],
                      sizeof(Element));
        }
      }
      whole.bytes = bytes.get();
      turned.push_back(std::move(bytes));
      return whole;
    };
    if constexpr (DenseFormat<Format>) {
      return copy(typename Format::Element{}, Format::dtype);
    } else {
      return copy(float{}, DType::f32);
    }
  }
};

}  // namespace slm
