// The weights of a model, in the backend's own order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/config/model_config.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/model/linear_source.hpp"
#include "slm/model/rope.hpp"
#include "slm/model/tensor_names.hpp"
#include "slm/quant/format.hpp"

namespace slm {

/// Where the embedding table is stored. A tied checkpoint may hold its one table under either name.
inline TensorName stored_embedding(const Checkpoint& checkpoint) {
  const TensorNames names(checkpoint.config());
  const bool as_head = checkpoint.settings().tied_embeddings && !checkpoint.has(names.embedding().name) &&
                       checkpoint.has(names.head().name);
  return as_head ? names.head() : names.embedding();
}

template <WeightFormat Format, Backend B>
struct LayerWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Vector = typename B::template Buffer<float>;

  Vector attention_norm;                // [hidden]
  Vector mlp_norm;                      // [hidden]
  Matrix qkv;                           // [heads * dim + 2 * kv_heads * dim, hidden]
  Matrix attention_out;                 // [hidden, heads * dim]
  Matrix gate_up;                       // [2 * ffn, hidden]
  Matrix down;                          // [hidden, ffn]
  Vector qkv_bias, attention_out_bias;  // empty without attention_bias
  Vector gate_up_bias, down_bias;       // empty without mlp_bias
};

template <WeightFormat Format, Backend B>
struct ModelWeights {
  using Layer = LayerWeights<Format, B>;
  using Matrix = typename Layer::Matrix;
  using Vector = typename Layer::Vector;

  std::shared_ptr<const Checkpoint> checkpoint;  // matrices may refer to its mapped bytes
  Matrix embedding;                              // [vocab, hidden]
  Vector final_norm;                             // [hidden]
  Vector inverse_frequency;                      // [head_dim / 2]
  std::vector<Layer> layers;
  std::int64_t step_bytes = 0;  // weight bytes that one decode step reads

  const Matrix& head() const { return untied_head ? *untied_head : embedding; }  // [vocab, hidden]

  /// progress(fraction) is called after each layer.
  ModelWeights(std::shared_ptr<const Checkpoint> source, B& device, const std::function<void(double)>& progress)
      : checkpoint(std::move(source)) {
    const ModelConfig& shape = checkpoint->config();
    const ModelSettings& settings = checkpoint->settings();
    const TensorNames names(shape);
    const auto frequencies = inverse_frequencies(shape.head_dim, settings);
    inverse_frequency = device.upload(frequencies.data(), frequencies.size());
    embedding = pack(device, {stored_embedding(*checkpoint)});
    step_bytes = embedding.bytes() / shape.vocab;  // one row of it
    if (!settings.tied_embeddings) untied_head = pack(device, {names.head()});
    step_bytes += head().bytes();
    final_norm = vector(device, {names.final_norm()});
    for (int l = 0; l < shape.layers; ++l) {
      Layer& layer = layers.emplace_back();
      layer.attention_norm = vector(device, {names.attention_norm(l)});
      layer.mlp_norm = vector(device, {names.mlp_norm(l)});
      layer.qkv = pack_step(device, names.qkv(l));
      layer.attention_out = pack_step(device, names.attention_out(l));
      layer.gate_up = pack_step(device, names.gate_up(l));
      layer.down = pack_step(device, names.down(l));
      if (settings.attention_bias) {
        layer.qkv_bias = bias(device, names.qkv(l));
        layer.attention_out_bias = bias(device, names.attention_out(l));
      }
      if (settings.mlp_bias) {
        layer.gate_up_bias = bias(device, names.gate_up(l));
        layer.down_bias = bias(device, names.down(l));
      }
      if (progress) progress((l + 1.0) / shape.layers);
    }
  }

 private:
  std::optional<Matrix> untied_head;

  Matrix pack(B& device, const std::vector<TensorName>& names) const {
    std::vector<typename Format::Source> sources;
    for (const TensorName& name : names) sources.push_back(source(name));
    return device.template pack<Format>(sources);
  }

  typename Format::Source source(const TensorName& weight) const {
    if constexpr (DenseFormat<Format>) {
      return checkpoint->tensor(weight.name, weight.shape);
    } else {
      const std::string module = weight.name.substr(0, weight.name.rfind('.'));
      LinearSource layer = linear_source(*checkpoint, module, weight.shape.at(0), weight.shape.at(1));
      if (const auto* int4 = std::get_if<Int4Tensor>(&layer); int4 && Format::group != any_group) {
        const std::int64_t group = Format::group == whole_row ? int4->in : Format::group;
        if (int4->group != group) {
          throw Error("quant.other-group",
                      text("'", checkpoint->folder().string(), "', layer '", module, "' has groups of ", int4->group,
                           " inputs, the model's type says ", group),
                      "Name the checkpoint's group in AwqInt4<...>, or AwqInt4<> for any");
        }
      }
      return layer;
    }
  }

  Matrix pack_step(B& device, const std::vector<TensorName>& names) {
    Matrix matrix = pack(device, names);
    step_bytes += matrix.bytes();
    return matrix;
  }

  Vector vector(B& device, const std::vector<TensorName>& names) const {
    std::vector<float> values;
    for (const auto& [name, shape] : names) {
      const Tensor& tensor = checkpoint->tensor(name, shape);
      const auto start = values.size();
      values.resize(start + static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data() + start);
    }
    return device.upload(values.data(), values.size());
  }

  Vector bias(B& device, const std::vector<TensorName>& weights) const {
    std::vector<TensorName> names;
    for (const TensorName& weight : weights) names.push_back(TensorNames::bias_of(weight));
    return vector(device, names);
  }
};

}  // namespace slm
