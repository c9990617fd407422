// Reads the experts, the mixer and the attention gate of a layer into a backend's memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/rounded_math.hpp"
#include "slm/io/checkpoint.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/tensor_names.hpp"
#include "slm/model/experts.hpp"
#include "slm/model/layer_weights.hpp"
#include "slm/model/stored_rows.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Throws model.no-mixtures if a backend does not compute mixtures of experts and the model has them.
template <Backend B>
void check_mixture(const Checkpoint& checkpoint) {
  if (MixesExperts<B> || checkpoint.config().mixture.experts == 0) return;
  throw Error("model.no-mixtures",
              text("'", checkpoint.folder().string(), "' has a mixture of experts, which the backend ", B::name,
                   " does not compute"),
              "Load it without ranks");
}

/// Reader: a WeightReader.
template <WeightFormat Format, Backend B, class Reader>
ExpertWeights<Format, B> read_experts(Reader& reader, int layer) {
  const TensorNames& names = reader.names;
  const MixtureConfig& shape = reader.checkpoint.config().mixture;
  ExpertWeights<Format, B> weights;
  weights.router = reader.in_floats(Role::router, layer);
  weights.router_bias = reader.vector(names.biases(Role::router, layer));
  weights.choice_bias = reader.vector(names.weights(Role::choice_bias, layer));
  weights.gate_up_bias =
      reader.ordered(names.biases(Role::experts_up, layer), stored_rows(reader.checkpoint, Role::gate_up, 0));
  weights.down_bias = reader.vector(names.biases(Role::experts_down, layer));
  const std::vector<TensorName> up = names.weights(Role::experts_up, layer);
  const std::vector<TensorName> down = names.weights(Role::experts_down, layer);
  const std::size_t count = down.size(), parts = up.size() / count;
  const auto bias = [](const auto& all, std::size_t e, std::int64_t rows) {
    return all.size() == 0 ? nullptr : all.data() + static_cast<std::int64_t>(e) * rows;
  };
  for (std::size_t e = 0; e < count; ++e) {
    Expert<typename Reader::Matrix> expert;
    expert.down = reader.pack(std::span(down).subspan(e, 1), Role::down, layer);
    expert.gate_up = reader.pack(std::span(up).subspan(e * parts, parts), Role::gate_up, layer);
    expert.gate_up_bias = bias(weights.gate_up_bias, e, std::int64_t{2} * shape.ffn);
    expert.down_bias = bias(weights.down_bias, e, reader.checkpoint.config().hidden);
    weights.experts.push_back(std::move(expert));
  }
  if (shape.shared_ffn != 0) {
    Expert<typename Reader::Matrix> shared;
    shared.down = reader.pack(names.weights(Role::shared_down, layer), Role::down, layer);
    shared.gate_up = reader.pack(names.weights(Role::shared_up, layer), Role::gate_up, layer);
    weights.shared_up_bias = reader.vector(names.biases(Role::shared_up, layer));
    weights.shared_down_bias = reader.vector(names.biases(Role::shared_down, layer));
    shared.gate_up_bias = data_or_null(weights.shared_up_bias);
    shared.down_bias = data_or_null(weights.shared_down_bias);
    weights.experts.push_back(std::move(shared));
  }
  if constexpr (requires { reader.device.template tabulate<Format>(weights.experts); })
    weights.table = reader.device.template tabulate<Format>(weights.experts);
  if (shape.beside_mlp) {
    const auto hidden = static_cast<float>(reader.checkpoint.config().hidden);
    weights.router_norm = reader.vector(names.weights(Role::router_norm, layer), 1 / std::sqrt(hidden));
    weights.factors = reader.vector(names.weights(Role::expert_factors, layer));
    weights.norm = reader.vector(names.weights(Role::expert_norm, layer));
    weights.output_norm = reader.vector(names.weights(Role::expert_output_norm, layer));
    weights.beside_norm = reader.vector(names.weights(Role::beside_norm, layer));
  }
  if (shape.shared_gate) weights.shared_gate = reader.in_floats(Role::shared_gate, layer);
  reader.step_bytes += weights.active_bytes(shape);
  return weights;
}

/// Reader: a WeightReader.
template <class Format, class Reader>
void read_gate(Reader& reader, typename Reader::Layer& layer) {
  const ModelConfig& shape = reader.checkpoint.config();
  const std::vector<typename Format::Source> gate{
      reader.source(reader.names.weights(Role::qkv, layer.index).front(), rows_of_gated(shape, true))};
  layer.attention_gate = reader.pack(gate, reader.place_of(AdaptedProduct::attention_gate, layer.index));
  reader.step_bytes += layer.attention_gate.bytes();
  const auto biases = reader.names.biases(Role::qkv, layer.index);
  if (biases.empty()) return;
  const std::vector<float> stored = reader.floats(biases);
  std::vector<float> query, gates;
  for (const std::int64_t row : rows_of_gated(shape, false)) query.push_back(stored[static_cast<std::size_t>(row)]);
  for (const std::int64_t row : rows_of_gated(shape, true)) gates.push_back(stored[static_cast<std::size_t>(row)]);
  query.insert(query.end(), stored.begin() + static_cast<std::ptrdiff_t>(2 * query.size()), stored.end());
  layer.qkv_bias = reader.device.upload(query.data(), query.size());
  layer.attention_gate_bias = reader.device.upload(gates.data(), gates.size());
}

/// Reader: a WeightReader.
template <class Reader>
void read_mixer(Reader& reader, typename Reader::Layer& layer) {
  const int l = layer.index;
  const TensorNames& names = reader.names;
  layer.mixer_out = reader.pack_step(Role::mixer_out, l);
  layer.mixer_in = reader.pack_step(Role::mixer_in, l);
  layer.mixer_in_bias = reader.vector(names.biases(Role::mixer_in, l));
  layer.mixer_out_bias = reader.vector(names.biases(Role::mixer_out, l));
  // [channels, taps] -> [taps, channels]
  std::vector<float> stored = reader.floats(names.weights(Role::mixer_conv, l));
  const Mixer& mixer = reader.checkpoint.config().mixer;
  const auto taps = static_cast<std::size_t>(mixer.taps), channels = stored.size() / taps;
  if (mixer.kind == MixerKind::mamba2) {  // a factor of a channel's input is one of its taps
    const auto inner = static_cast<std::size_t>(mixer.inner()), keys = static_cast<std::size_t>(mixer.keys());
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const std::size_t channel = i / taps, part = channel < inner ? 1 : 2 + (channel - inner) / keys;
      stored[i] *= reader.checkpoint.settings().factors.projected[part];
    }
  }
  std::vector<float> conv(stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) conv[i % taps * channels + i / taps] = stored[i];
  layer.conv = reader.device.upload(conv.data(), conv.size());
  layer.conv_bias = reader.vector(names.biases(Role::mixer_conv, l));
  std::vector<float> decay = reader.floats(names.weights(Role::mixer_decay, l));
  if (names.logs_decay()) {
    for (float& value : decay) value = -rounded_exp(value);
  }
  layer.decay = reader.device.upload(decay.data(), decay.size());
  layer.dt_bias = reader.vector(names.weights(Role::mixer_dt_bias, l));
  layer.skip = reader.vector(names.weights(Role::mixer_skip, l));
  layer.mixer_norm = reader.vector(names.weights(Role::mixer_norm, l));
}

}}}
