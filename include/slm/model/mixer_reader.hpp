// Reads the mixer and the attention gate of a layer into a backend's memory.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/tensor_names.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Reader: a WeightReader.
template <class Format, class Reader>
void read_gate(Reader& reader, typename Reader::Layer& layer) {
  const ModelConfig& shape = reader.checkpoint.config();
  std::vector<typename Format::Source> gate{
      reader.source(reader.names.weights(Role::qkv, layer.index).front(), rows_of_gated(shape, true))};
  layer.attention_gate = reader.device.template pack<Format>(gate);
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
    for (float& value : decay) value = -std::exp(value);
  }
  layer.decay = reader.device.upload(decay.data(), decay.size());
  layer.dt_bias = reader.vector(names.weights(Role::mixer_dt_bias, l));
  layer.skip = reader.vector(names.weights(Role::mixer_skip, l));
  layer.mixer_norm = reader.vector(names.weights(Role::mixer_norm, l));
}

}}}
