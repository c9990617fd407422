// The weights of a model, in the backend's own order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/alibi.hpp"
#include "slm/model/rope.hpp"
#include "slm/model/tensor_names.hpp"
#include "slm/quant/format.hpp"

namespace slm {

/// Where the embedding table is stored. A tied checkpoint may hold its one table under either name.
inline TensorName stored_embedding(const Checkpoint& checkpoint) {
  const TensorNames names(checkpoint);
  const bool as_head = checkpoint.settings().tied_embeddings && !checkpoint.has(names.embedding().name) &&
                       checkpoint.has(names.head().name);
  return as_head ? names.head() : names.embedding();
}

/// Weight and bias of a norm; empty where the architecture has none.
template <Backend B>
struct NormWeights {
  typename B::template Buffer<float> weight;
  typename B::template Buffer<float> bias;
};

/// The elements of a buffer in device memory; null where it is empty.
template <class Buffer>
const float* data_or_null(const Buffer& buffer) {
  return buffer.size() == 0 ? nullptr : buffer.data();
}

template <Backend B>
Norm norm_of(const NormWeights<B>& weights, NormKind kind, float epsilon) {
  return {.weight = data_or_null(weights.weight), .epsilon = epsilon, .bias = data_or_null(weights.bias), .kind = kind};
}

template <WeightFormat Format, Backend B>
struct LayerWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Vector = typename B::template Buffer<float>;

  NormWeights<B> attention_norm, mlp_norm;  // [hidden]
  NormWeights<B> q_norm, k_norm;            // [head_dim], or [heads * dim] and [kv_heads * dim]
  Matrix qkv;                               // [heads * dim + 2 * kv_heads * dim, hidden]
  Matrix attention_out;                     // [hidden, heads * dim]
  Matrix gate_up;                           // [2 * ffn, hidden]; [ffn, hidden] without a gate
  Matrix down;                              // [hidden, ffn]
  Vector qkv_bias, attention_out_bias;      // empty where the architecture has none
  Vector gate_up_bias, down_bias;
  Vector down_divisor;  // [ffn] or empty
};

template <WeightFormat Format, Backend B>
struct ModelWeights {
  using Layer = LayerWeights<Format, B>;
  using Matrix = typename Layer::Matrix;
  using Vector = typename Layer::Vector;

  /// An embedding table that is narrower than the model.
  struct Projection {
    Matrix positions;  // [context + offset, hidden]
    Matrix in;         // [hidden, embedding]
    Matrix out;        // [embedding, hidden]
  };

  std::shared_ptr<const Checkpoint> checkpoint;  // matrices may refer to its mapped bytes
  Matrix embedding;                              // [vocab, hidden] or [vocab, embedding]
  std::optional<Projection> projection;
  Vector positions;             // [context + offset, hidden], or empty
  NormWeights<B> final_norm;    // [hidden]
  Vector head_bias;             // [vocab] or empty
  Vector inverse_frequency[2];  // [rotary_dim / 2]; the second is LongRoPE's beyond the original context, or empty
  Vector alibi;                 // [heads] or empty
  std::vector<Layer> layers;
  std::int64_t step_bytes = 0;  // weight bytes that one decode step reads

  const Matrix& head() const { return untied_head ? *untied_head : embedding; }  // [vocab, hidden]

  /// progress(fraction) is called after each layer.
  ModelWeights(std::shared_ptr<const Checkpoint> source, B& device, const std::function<void(double)>& progress)
      : checkpoint(std::move(source)) {
    const ModelConfig& shape = checkpoint->config();
    const ModelSettings& settings = checkpoint->settings();
    const TensorNames names(*checkpoint);
    read_positions(device, shape, settings, names);
    embedding = pack(device, {stored_embedding(*checkpoint)});
    step_bytes += embedding.bytes() / shape.vocab;  // one row of it
    if (!settings.tied_embeddings) untied_head = pack(device, {names.head()});
    step_bytes += head().bytes();
    if (shape.head_bias) head_bias = bias(device, {names.head()});
    // Scaling the last norm scales the logits, which a head without bias leaves to it.
    if (shape.final_norm) final_norm = norm(device, shape, names.final_norm(), settings.logit_scale);
    for (int l = 0; l < shape.layers; ++l) {
      read_layer(device, shape, names, l, layers.emplace_back());
      if (progress) progress((l + 1.0) / shape.layers);
    }
  }

 private:
  void read_positions(B& device, const ModelConfig& shape, const ModelSettings& settings, const TensorNames& names) {
    if (shape.positions == Positions::rope) {
      for (const bool beyond : {false, true}) {
        if (beyond && settings.rope_scaling.kind != RopeScaling::Kind::longrope) break;
        const auto frequencies = inverse_frequencies(shape.rotary_dim(), settings, beyond);
        inverse_frequency[beyond] = device.upload(frequencies.data(), frequencies.size());
      }
    }
    if (shape.positions == Positions::alibi) {
      const auto slopes = alibi_slopes(shape.heads, settings);
      alibi = device.upload(slopes.data(), slopes.size());
    }
    if (shape.embedding != 0) {
      projection = Projection{.positions = {}, .in = pack_step(device, {names.project_in()}), .out = {}};
      projection->out = pack_step(device, {names.project_out()});
      if (shape.positions == Positions::learned) projection->positions = pack(device, {names.positions(settings)});
    } else if (shape.positions == Positions::learned) {
      positions = vector(device, {names.positions(settings)});
    }
  }

  void read_layer(B& device, const ModelConfig& shape, const TensorNames& names, int l, Layer& layer) {
    layer.attention_norm = norm(device, shape, names.attention_norm(l));
    if (shape.order != BlockOrder::parallel) layer.mlp_norm = norm(device, shape, names.mlp_norm(l));
    if (shape.qk_norm != QkNorm::none) {
      layer.q_norm = norm(device, shape, names.q_norm(l));
      layer.k_norm = norm(device, shape, names.k_norm(l));
    }
    layer.qkv = pack_step(device, names.qkv(l));
    layer.attention_out = pack_step(device, names.attention_out(l));
    layer.gate_up = pack_step(device, names.gate_up(l));
    layer.down = pack_step(device, names.down(l));
    if (shape.attention_bias != AttentionBias::none) layer.qkv_bias = bias(device, names.qkv(l));
    if (shape.attention_bias == AttentionBias::all) layer.attention_out_bias = bias(device, names.attention_out(l));
    if (shape.mlp_bias) {
      layer.gate_up_bias = bias(device, names.gate_up(l));
      layer.down_bias = bias(device, names.down(l));
    }
    if (const TensorName scales = names.activation_scales(l); checkpoint->has(scales.name)) {
      layer.down_divisor = vector(device, {scales});
    }
  }

  std::optional<Matrix> untied_head;
  std::vector<std::unique_ptr<std::byte[]>> turned;  // matrices may refer to these bytes too

  Matrix pack(B& device, const std::vector<TensorName>& names) {
    std::vector<typename Format::Source> sources;
    for (const TensorName& name : names) {
      const Tensor& tensor = checkpoint->tensor(name.name, name.shape);
      sources.push_back(name.transposed ? transpose(tensor) : tensor);
    }
    return device.template pack<Format>(sources);
  }

  Matrix pack_step(B& device, const std::vector<TensorName>& names) {
    Matrix matrix = pack(device, names);
    step_bytes += matrix.bytes();
    return matrix;
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

  Vector vector(B& device, const std::vector<TensorName>& names, float factor = 1) const {
    std::vector<float> values;
    for (const TensorName& name : names) {
      const Tensor& tensor = checkpoint->tensor(name.name, name.shape);
      const auto start = values.size();
      values.resize(start + static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data() + start);
    }
    for (float& value : values) value *= factor;
    return device.upload(values.data(), values.size());
  }

  Vector bias(B& device, const std::vector<TensorName>& weights, float factor = 1) const {
    std::vector<TensorName> names;
    for (const TensorName& weight : weights) names.push_back(TensorNames::bias_of(weight));
    return vector(device, names, factor);
  }

  NormWeights<B> norm(B& device, const ModelConfig& shape, const TensorName& weight, float factor = 1) const {
    NormWeights<B> norm;
    if (shape.norm_affine != NormAffine::none) norm.weight = vector(device, {weight}, factor);
    if (shape.norm_affine == NormAffine::weight_and_bias) norm.bias = bias(device, {weight}, factor);
    return norm;
  }
};

}  // namespace slm
