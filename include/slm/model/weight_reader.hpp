// WeightReader: reads tensors of a checkpoint by role into a backend's memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "slm/backend/weight_place.hpp"
#include "slm/config/model_config.hpp"
#include "slm/formats/block_rounding.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/finite.hpp"
#include "slm/io/activation_scales.hpp"
#include "slm/io/adapted_product.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/linear_source.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/model/expert_reader.hpp"
#include "slm/model/latent_weights.hpp"
#include "slm/model/layer_weights.hpp"
#include "slm/model/load_options.hpp"
#include "slm/model/stored_rows.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

/// A layer in a form that backends pack.
inline LinearSource packable(StoredLinear stored) {
  return std::visit(
      []<class Layer>(Layer& layer) -> LinearSource {
        if constexpr (std::is_same_v<Layer, ScaledTensor>) {
          return dequantized(layer);
        } else {
          return std::move(layer);
        }
      },
      stored);
}

}  // namespace detail

template <WeightFormat Format, Backend B>
struct WeightReader {
  using Layer = LayerWeights<Format, B>;
  using Matrix = typename Layer::Matrix;
  using Vector = typename Layer::Vector;

  const Checkpoint& checkpoint;
  B& device;
  WeightType type = WeightType::as_stored;  // for AnyFormat's matrices
  int bits = 0;                             // likewise: LoadOptions::bits
  const TensorNames& names = checkpoint.names();
  std::int64_t step_bytes = 0;            // bytes of the matrices made by pack_step()
  bool in_file = false;                   // true if a matrix refers to the checkpoint's mapped bytes
  std::optional<Tensor> whole_head = {};  // after pack_head()

  Layer layer(int l) {
    Layer layer;
    layer.index = l;
    const LayerFactors& factors = checkpoint.settings().factors;
    layer.attention_norm = norm(Role::attention_norm, l, factors.attention_in);
    if (factors.mixer_in != factors.attention_in)
      layer.mixer_input_norm = norm(Role::attention_norm, l, factors.mixer_in);
    layer.mlp_norm = norm(Role::mlp_norm, l);
    // A factor of a norm's weights is one of its output.
    layer.attention_output_norm = norm(Role::attention_output_norm, l, checkpoint.settings().residual_scale);
    layer.mlp_output_norm = norm(Role::mlp_output_norm, l, checkpoint.settings().residual_scale);
    layer.mixed_norm = norm(Role::mixed_norm, l);
    layer.gated_norm = norm(Role::gated_norm, l);
    layer.q_norm = norm(Role::q_norm, l);
    layer.k_norm = norm(Role::k_norm, l);
    layer.sinks = vector(names.weights(Role::sinks, l));
    // Each matrix follows the one that reads its output, since a backend may adapt its layout to that reader.
    const ModelConfig& shape = checkpoint.config();
    if (shape.is_latent()) {
      layer.attention_out = pack_step(Role::attention_out, l);
      if constexpr (AttendsLatents<B>) layer.latent = detail::read_latent<Format, B>(*this, l);
    } else if (shape.has_attention(l)) {
      layer.attention_out = pack_step(Role::attention_out, l);
      layer.qkv = pack_step(Role::qkv, l);
      if (shape.attention_gate) detail::read_gate<Format>(*this, layer);
    }
    if (names.has_experts(l)) {
      if constexpr (MixesExperts<B>) layer.experts = detail::read_experts<Format, B>(*this, l);
    }
    if (names.has_dense_mlp(l)) {
      layer.down = pack_step(Role::down, l);
      layer.gate_up = pack_step(Role::gate_up, l);
    }
    if (shape.has_mixer(l)) detail::read_mixer(*this, layer);
    if (!shape.attention_gate) layer.qkv_bias = vector(names.biases(Role::qkv, l));
    layer.attention_out_bias = vector(names.biases(Role::attention_out, l));
    layer.gate_up_bias = vector(names.biases(Role::gate_up, l));
    layer.down_bias = vector(names.biases(Role::down, l));
    for (const TensorName& scales : names.weights(Role::down_divisor, l)) {
      const bool there = activation_scales(checkpoint, scales.module(), checkpoint.config().ffn).has_value();
      if (there) layer.down_divisor = vector({scales});
    }
    layer.activation = activation(l);
    if (shape.shapes.inputs != 0) {
      layer.input_gate = pack_step(Role::own_input_gate, l);
      layer.input_out = pack_step(Role::own_input_out, l);
      layer.input_norm = norm(Role::own_input_norm, l);
    }
    if constexpr (MixesStreams<B>) {
      if (shape.has_streams()) layer.streams = detail::read_streams<Format, B>(*this, l);
    }
    if (shape.shapes.scaled) layer.factor = floats(names.weights(Role::layer_factor, l)).at(0);
    return layer;
  }

  Matrix pack(Role role, int layer = 0) { return pack(names.weights(role, layer), role, layer); }

  /// Packs these tensors as one matrix, where the matrix of `role` would be.
  Matrix pack(std::span<const TensorName> weights, Role role, int layer) {
    std::vector<typename Format::Source> sources;
    for (const TensorName& weight : weights)
      sources.push_back(source(weight, detail::stored_rows(checkpoint, role, sources.size())));
    return pack(sources, place_of(detail::adapted_product(role), layer));
  }

  /// Packs these sources as one matrix.
  Matrix pack(std::span<const typename Format::Source> sources, [[maybe_unused]] const WeightPlace& place) {
    Matrix matrix = [&] {
      if constexpr (PacksByPlace<B, Format>) {
        return device.template pack<Format>(sources, place);
      } else {
        return device.template pack<Format>(sources);
      }
    }();
    if constexpr (requires { matrix.in_file(); }) in_file = in_file || matrix.in_file();
    return matrix;
  }

  /// Packs a floating-point matrix of a layer in fp32, whole on every rank.
  auto in_floats(Role role, int layer) {
    const TensorName weight = names.weights(role, layer).front();
    const Tensor tensors[] = {checkpoint.tensor(weight.name, weight.shape)};
    auto matrix = [&] {
      if constexpr (PacksByPlace<B, Fp32>) {
        WeightPlace place = place_of(std::nullopt, layer);
        place.whole = true;
        return device.template pack<Fp32>(tensors, place);
      } else {
        return device.template pack<Fp32>(tensors);
      }
    }();
    if constexpr (requires { matrix.in_file(); }) in_file = in_file || matrix.in_file();
    return matrix;
  }

  /// Packs the first rows of the head, or of the embedding if that is the head. Throws model.head-tokens.
  Matrix pack_head(std::int64_t rows) {
    const auto error = [this](const std::string& fault) {
      return Error("model.head-tokens", text("'", checkpoint.folder().string(), "': ", fault),
                   "Set LoadOptions::head_tokens only for a model with a head on the CPU, up to the vocabulary's size");
    };
    if (rows < 0 || rows > checkpoint.config().vocab) {
      throw error(text("expected head_tokens of 0 to ", checkpoint.config().vocab, ", found ", rows));
    }
    if constexpr (B::chooses || PacksByPlace<B, Format>) {
      throw error("this backend supports whole heads only");
    } else {
      if (checkpoint.settings().headless) throw error("expected a model with a head");
      const bool tied = checkpoint.settings().tied_embeddings;
      const TensorName name = names.weights(tied ? Role::embedding : Role::head).front();
      std::vector<typename Format::Source> sources{source(name)};
      Tensor* tensor = nullptr;
      if constexpr (DenseFormat<Format>) {
        tensor = &sources.front();
      } else {
        tensor = std::get_if<Tensor>(&sources.front());
      }
      if (tensor == nullptr) throw error("expected a head in floating point or GGUF blocks");
      whole_head = *tensor;
      in_file = in_file || tensor->owner == nullptr;
      tensor->size_bytes =
          tensor->size_bytes / static_cast<std::size_t>(tensor->shape[0]) * static_cast<std::size_t>(rows);
      tensor->shape[0] = rows;
      Matrix matrix = device.template pack<Format>(sources);
      if constexpr (requires { matrix.in_file(); }) in_file = in_file || matrix.in_file();
      return matrix;
    }
  }

  /// Packs a matrix that every decode step reads.
  Matrix pack_step(Role role, int layer = 0) {
    Matrix matrix = pack(role, layer);
    step_bytes += matrix.bytes();
    return matrix;
  }

  /// Packs a matrix of one source, likewise, whole on every rank.
  Matrix pack_step(typename Format::Source one, int layer) {
    const typename Format::Source sources[] = {std::move(one)};
    WeightPlace place = place_of(std::nullopt, layer);
    place.whole = true;
    Matrix matrix = pack(sources, place);
    step_bytes += matrix.bytes();
    return matrix;
  }

  WeightPlace place_of(std::optional<AdaptedProduct> product, int layer) const {
    const ModelConfig& shape = checkpoint.config();
    const bool of_mlp = product == AdaptedProduct::gate_up || product == AdaptedProduct::down;
    // A gate multiplies the outputs of all heads; every rank computes all heads of latents.
    const bool all_heads = (shape.attention_gate || shape.is_latent()) && !of_mlp;
    const bool of_experts = of_mlp && names.has_experts(layer);
    return {.product = product,
            .layer = layer,
            .layers = shape.layers,
            .at_both_ends = product == AdaptedProduct::embedding && checkpoint.settings().tied_embeddings,
            .heads = {.query = shape.heads, .kv = shape.kv_heads_of(layer), .dim = shape.head_dim_of(layer)},
            .norm = shape.qk_norm,
            .summed = !norms_outputs(shape.order) && !shape.inner_norms && !of_experts && !all_heads};
  }

  /// Concatenates the tensors; empty if there are none.
  Vector vector(const std::vector<TensorName>& tensors, float factor = 1, float offset = 0) const {
    if (tensors.empty()) return {};
    std::vector<float> values = floats(tensors);
    for (float& value : values) value = (value + offset) * factor;
    return device.upload(values.data(), values.size());
  }

  /// Concatenates tensors whose elements are stored in the order `rows`; empty: in their own order.
  Vector ordered(const std::vector<TensorName>& tensors, const std::vector<std::int64_t>& rows) const {
    if (tensors.empty() || rows.empty()) return vector(tensors);
    const std::vector<float> stored = floats(tensors);
    std::vector<float> values;
    for (std::size_t first = 0; first < stored.size(); first += rows.size()) {
      for (const std::int64_t row : rows) values.push_back(stored.at(first + static_cast<std::size_t>(row)));
    }
    return device.upload(values.data(), values.size());
  }

  /// The elements of the tensors, one after another.
  std::vector<float> floats(const std::vector<TensorName>& tensors) const {
    std::vector<float> values;
    for (const TensorName& name : tensors) {
      const Tensor& tensor = checkpoint.tensor(name.name, name.shape);
      if (const auto index = first_non_finite(tensor)) {
        throw Error(
            "checkpoint.non-finite",
            text("'", checkpoint.folder().string(), "': '", name.name, "' [", *index, "]: expected a finite number"),
            "Download or export the checkpoint again");
      }
      const auto start = values.size();
      values.resize(start + static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data() + start);
      if (names.is_grouped(name)) {
        const std::vector<float> stored(values.begin() + static_cast<std::ptrdiff_t>(start), values.end());
        for (std::size_t row = 0; row < stored.size(); ++row)
          values[start + row] = stored[static_cast<std::size_t>(names.stored_row(static_cast<std::int64_t>(row)))];
      }
    }
    return values;
  }

  NormWeights<B> norm(Role role, int layer = 0, float factor = 1) const {
    const float offset = names.norms_less_one() ? 1.0f : 0.0f;
    return {.weight = vector(names.weights(role, layer), factor, offset),
            .bias = vector(names.biases(role, layer), factor)};
  }

  /// rows: see detail::stored_rows().
  typename Format::Source source(const TensorName& weight, const std::vector<std::int64_t>& rows = {}) {
    LinearSource layer = stored(weight);
    if (names.is_grouped(weight)) regroup(layer);
    if (!rows.empty()) take_rows(layer, rows);
    return as_source(std::move(layer));
  }

  /// A matrix [out, in] of the file, in a form that backends pack.
  LinearSource stored(const TensorName& weight) {
    if (detail::is_stored_transposed(checkpoint, weight))
      return transpose(checkpoint.tensor(weight.name, weight.shape));
    return detail::packable(linear_source(checkpoint, weight));
  }

  /// The layer in the asked type. Throws model.quantized and quant.other-group.
  typename Format::Source as_source(LinearSource layer) {
    const auto* int4 = std::get_if<Int4Tensor>(&layer);
    if constexpr (DenseFormat<Format>) {
      if (!int4) return std::get<Tensor>(std::move(layer));
      throw Error("model.quantized",
                  text("'", checkpoint.folder().string(), "', layer '", int4->name,
                       "': expected floating-point weights, found 4-bit weights"),
                  "Load it with WeightType::as_stored, or use the floating-point checkpoint of the model");
    } else {
      if (int4 && Format::group != any_group) {
        const std::int64_t group = Format::group == whole_row ? int4->in : Format::group;
        if (int4->group != group) {
          throw Error("quant.other-group",
                      text("'", checkpoint.folder().string(), "', layer '", int4->name, "' has groups of ", int4->group,
                           " inputs, expected ", group),
                      "Use the checkpoint's group size in AwqInt4<...>, or AwqInt4<> for any");
        }
      }
      return as_asked(std::move(layer));
    }
  }

 private:
  /// The activation of a layer, with xIELU's parameters.
  Activation activation(int layer) const {
    const ModelSettings& settings = checkpoint.settings();
    const Activation activation = checkpoint.config().activation;
    if (activation.kind != ActivationKind::xielu) return activation;
    if (!settings.activations.empty()) return settings.activations[static_cast<std::size_t>(layer)];
    const std::vector<float> stored = floats(names.weights(Role::activation, layer));
    return stored_xielu(stored.at(0), stored.at(1), stored.at(2), stored.at(3));
  }

  /// Orders the rows of a fused matrix as q, k, v.
  void regroup(LinearSource& layer) const {
    std::vector<std::int64_t> order(static_cast<std::size_t>(out_features(layer)));
    for (std::size_t row = 0; row < order.size(); ++row) {
      order[row] = names.stored_row(static_cast<std::int64_t>(row));
    }
    take_rows(layer, std::move(order));
  }

  /// Replaces a matrix by its given rows.
  void take_rows(LinearSource& layer, std::vector<std::int64_t> rows) const {
    if (auto* const int4 = std::get_if<Int4Tensor>(&layer)) {
      int4->out = static_cast<std::int64_t>(rows.size());
      int4->order = std::make_shared<const std::vector<std::int64_t>>(std::move(rows));
      return;
    }
    Tensor& tensor = std::get<Tensor>(layer);
    const std::size_t row_bytes = tensor.size_bytes / static_cast<std::size_t>(tensor.shape[0]);
    tensor.shape[0] = static_cast<std::int64_t>(rows.size());
    tensor.size_bytes = rows.size() * row_bytes;
    auto bytes = std::make_unique_for_overwrite<std::byte[]>(tensor.size_bytes);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      std::memcpy(bytes.get() + row * row_bytes, tensor.bytes + static_cast<std::size_t>(rows[row]) * row_bytes,
                  row_bytes);
    }
    tensor.bytes = bytes.get();
    tensor.owner = std::move(bytes);
  }

  LinearSource as_asked(LinearSource layer) const {
    const auto* tensor = std::get_if<Tensor>(&layer);
    if (tensor == nullptr) return layer;
    if (bits != 0) return rounded_to_blocks(*tensor, bits);
    switch (type) {
      case WeightType::f32: return converted<float>(*tensor, DType::f32);
      case WeightType::f16: return converted<half_t>(*tensor, DType::f16);
      case WeightType::bf16: return converted<bfloat16_t>(*tensor, DType::bf16);
      default: return layer;
    }
  }

  /// [in, out] -> a copy [out, in], in the format's element type, so that pack() needs no second copy.
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
      whole.owner = std::move(bytes);
      return whole;
    };
    if constexpr (DenseFormat<Format>) {
      return copy(typename Format::Element{}, Format::dtype);
    } else {
      return copy(float{}, DType::f32);
    }
  }
};

}}
