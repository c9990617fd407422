// One transformer block: backend operations for attention and MLP, each added to the residual stream. The traits of the
// config select the operations, never the name of a model family.
#pragma once

#include <cstdint>
#include <limits>

#include "slm/backend/concept.hpp"
#include "slm/config/registry.hpp"
#include "slm/model/block_inputs.hpp"
#include "slm/model/streams.hpp"
#include "slm/model/weights.hpp"

namespace slm { inline namespace v0_1 {

/// Computes q, k, v = projections of input_norm(x), then the attention output `mixed`.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_attention(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
                   KvLayer kv, const Norm& input_norm, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;  // a constant unless Shape is Dynamic
  const Heads heads{.query = shape.heads, .kv = shape.kv_heads_of(layer.index), .dim = shape.head_dim_of(layer.index)};
  QkvShaping shaping{
      .clip = settings.clip_qkv, .clips_normed = settings.clips_normed, .norm = shape.qk_norm, .query = {}, .key = {}};
  if (shape.shapes.value_norm) shaping.value = {.epsilon = settings.norm_epsilon};
  if (shape.qk_norm != QkNorm::none) {
    shaping.query = norm_of<B>(layer.q_norm, shape.norm, settings.norm_epsilon);
    shaping.key = norm_of<B>(layer.k_norm, shape.norm, settings.norm_epsilon);
  }
  const auto projections = linear(layer.qkv, layer.qkv_bias, layer.number(AdaptedProduct::qkv));
  step.qkv(rows.x, input_norm, projections, settings.rope, heads, kv, rows.q, shaping);
  Attention attention = settings.attention;
  attention.sinks = data_or_null(layer.sinks);
  step.attend(rows.q, heads, kv, rows.mixed, attention);
  if constexpr (RecurrentStep<Step>) {
    if (shape.attention_gate) {  // overwrites q
      const auto gate =
          linear(layer.attention_gate, layer.attention_gate_bias, layer.number(AdaptedProduct::attention_gate));
      step.mlp(rows.x, input_norm, gate, ActivationKind::identity, nullptr, rows.q);
      step.gate(rows.mixed, rows.q);
    }
  }
  if (shape.inner_norms) {
    step.normalize(rows.mixed, norm_of<B>(layer.mixed_norm, shape.norm, settings.norm_epsilon));
  }
}

/// Epsilon of the norms of latents, in all models.
inline constexpr float latent_epsilon = 1e-6f;

/// The output of latent attention, in the memory of q.
template <Backend B>
View<typename B::Activation, 2> latent_output(const ModelConfig& shape, const Activations<B>& rows) {
  return {rows.q.data, rows.x.extent(0), std::int64_t{shape.heads} * shape.latent.value};
}

/// Computes queries, the cached row and latent_output().
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_latent_attention(Step& step, const Shape& config, const LayerWeights<Format, B>& layer,
                          const BlockSettings& settings, KvLayer kv, const Norm& input_norm,
                          const Activations<B>& rows) {
  if constexpr (AttendsLatents<B>) {
    using Rows = typename Activations<B>::Rows;
    const ModelConfig& shape = config.value;
    const LatentWeights<Format, B>& weights = *layer.latent;
    const Heads heads{.query = shape.heads, .kv = 1, .dim = shape.head_dim};
    const std::int64_t count = rows.x.extent(0), all = std::int64_t{heads.query} * heads.dim;
    const auto columns = [](Rows view, std::int64_t first, std::int64_t width) {
      view.data += first;
      view.extents[1] = width;
      return view;
    };
    const auto multiply = [&](const Rows& x, const Norm& norm, const auto& matrix, const Rows& to) {
      step.mlp(x, norm, Linear{matrix}, ActivationKind::identity, nullptr, to);
    };
    const auto norm_by = [](const auto& weight) { return Norm{.weight = weight.data(), .epsilon = latent_epsilon}; };
    const Rows q = columns(rows.q, 0, all), cached = columns(rows.q, all, heads.dim);
    const Rows stored_heads{rows.mixed.data, count, weights.query.out};
    if (shape.latent.query_rank != 0) {
      const Rows low{rows.gated.data, count, weights.query_low.out};
      multiply(rows.x, input_norm, weights.query_low, low);
      multiply(low, norm_by(weights.query_norm), weights.query, stored_heads);
    } else {
      multiply(rows.x, input_norm, weights.query, stored_heads);
    }
    multiply(rows.x, input_norm, weights.latent, cached);
    step.normalize(columns(cached, shape.rotary, shape.latent.rank), norm_by(weights.norm));
    step.multiply_heads(stored_heads, weights.keys, heads.query, q);
    step.finish_qkv(rows.q, settings.rope, heads, kv, q);
    step.attend(q, heads, kv, rows.mixed, settings.attention);
    step.multiply_heads(rows.mixed, weights.values, heads.query, latent_output<B>(shape, rows));
  }
}

/// Computes the outputs of the layer's recurrence, `inner`.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_mixer(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
               KvLayer kv, const Norm& input_norm, const Activations<B>& rows) {
  if constexpr (RecurrentStep<Step>) {
    const auto in = linear(layer.mixer_in, layer.mixer_in_bias, layer.number(AdaptedProduct::mixer_in));
    step.mlp(rows.x, input_norm, in, ActivationKind::identity, nullptr, rows.projected);
    step.recur(rows.projected, layer.recurrence(config.value.mixer, settings.factors, settings.norm_epsilon), kv.state,
               rows.inner);
  }
}

/// Computes the MLP's inner activations of input_norm(x).
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_mlp(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
             const Norm& input_norm, const Activations<B>& rows) {
  const ModelConfig& shape = config.value;
  Activation activation = shape.activation;
  if (shape.activation == ActivationKind::xielu) activation = layer.activation;
  activation.factor = settings.factors.mlp_gate;
  const auto up = linear(layer.gate_up, layer.gate_up_bias, layer.number(AdaptedProduct::gate_up));
  if (settings.gate_cutoff > -std::numeric_limits<float>::infinity()) {
    if constexpr (MixesStreams<B>) {
      step.mlp(rows.x, input_norm, up, ActivationKind::identity, nullptr, rows.gate_up);
      step.gate_some(rows.gate_up, settings.gate_cutoff, activation, rows.gated);
    }
  } else if (shape.gated) {
    step.gated_mlp(rows.x, input_norm, up, rows.gated, activation);
  } else {
    step.mlp(rows.x, input_norm, up, activation, data_or_null(layer.down_divisor), rows.gated);
  }
  if (shape.inner_norms) {
    step.normalize(rows.gated, norm_of<B>(layer.gated_norm, shape.norm, settings.norm_epsilon));
  }
}

/// x += factor * output, or x += norm(output), where output is the product of `input`.
template <Backend B, class Step, Config Shape, class Matrix>
void add_output(Step& step, const Shape& config, const BlockSettings& settings, const NormWeights<B>& norm,
                View<const typename B::Activation, 2> input, const Linear<Matrix>& output, float factor,
                const Activations<B>& rows) {
  if (norms_outputs(config.value.order)) {
    step.mlp(input, Norm{.kind = NormKind::none}, output, ActivationKind::identity, nullptr, rows.branch);
    step.add(rows.branch, norm_of<B>(norm, config.value.norm, settings.norm_epsilon), rows.x);
  } else {
    step.project(input, output, rows.x, settings.residual_scale * factor);
  }
}

/// x += norm(norm(MLP) + norm(experts)), each with its own input norm.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_mlp_beside_experts(Step& step, const Shape& config, const LayerWeights<Format, B>& layer,
                            const BlockSettings& settings, const Norm& mlp_norm, const Activations<B>& rows) {
  if constexpr (MixesExperts<B>) {
    const ModelConfig& shape = config.value;
    const ExpertWeights<Format, B>& experts = *layer.experts;
    const float epsilon = settings.norm_epsilon;
    run_mlp<B>(step, config, layer, settings, mlp_norm, rows);
    const auto down = linear(layer.down, layer.down_bias, layer.number(AdaptedProduct::down));
    step.mlp(rows.gated, Norm{.kind = NormKind::none}, down, ActivationKind::identity, nullptr, rows.branch);
    step.normalize(rows.branch, experts.norm_by(experts.beside_norm, epsilon));
    const auto mixture = experts.mixture(shape.mixture, settings.router, shape.activation, shape.gated, epsilon);
    step.add_mixture(rows.x, experts.norm_by(experts.norm, epsilon), mixture, rows.branch);
    step.add(rows.branch, norm_of<B>(layer.mlp_output_norm, shape.norm, epsilon), rows.x);
  }
}

/// The product of x with the layer's own input, activation(gate . x) * input, in the memory of gated.
template <Backend B, class Step, Config Shape, WeightFormat Format>
View<typename B::Activation, 2> own_input(Step& step, const Shape& config, const LayerWeights<Format, B>& layer,
                                          const Activations<B>& rows) {
  const std::int64_t width = config.value.shapes.inputs;
  const View<typename B::Activation, 2> gate{rows.gated.data, rows.x.extent(0), width};
  const Activation activation = config.value.activation;
  step.mlp(rows.x, Norm{.kind = NormKind::none}, Linear{layer.input_gate}, activation, nullptr, gate);
  step.multiply_rows(gate, rows.inputs);
  return gate;
}

/// Adds what the layer's own input gives, x += norm(out . own_input()), then x *= factor.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void finish_layer(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
                  const Activations<B>& rows) {
  if constexpr (ShapesLayers<Step>) {
    const ModelConfig& shape = config.value;
    const Norm as_it_is{.kind = NormKind::none};
    if (shape.shapes.inputs != 0) {
      const auto gate = own_input<B>(step, config, layer, rows);
      step.mlp(gate, as_it_is, Linear{layer.input_out}, ActivationKind::identity, nullptr, rows.branch);
      step.add(rows.branch, norm_of<B>(layer.input_norm, shape.norm, settings.norm_epsilon), rows.x);
    }
    if (shape.shapes.scaled) step.scale(rows.x, layer.factor);
  }
}

/// A block of a model with residual streams.
template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_stream_block(Step& step, const Shape& config, const LayerWeights<Format, B>& layer,
                      const BlockSettings& settings, KvLayer kv, const Activations<B>& rows) {
  if constexpr (MixesStreams<B>) {
    const ModelConfig& shape = config.value;
    const float epsilon = settings.norm_epsilon;
    predict_streams<B>(step, *layer.streams, epsilon, rows);
    step.copy_rows(rows.x, rows.normed);
    step.normalize(rows.normed, norm_of<B>(layer.attention_norm, shape.norm, epsilon));
    Activations<B> of_attention = rows;
    of_attention.x = rows.normed;
    run_attention<B>(step, config, layer, settings, kv, Norm{.kind = NormKind::none}, of_attention);
    const auto out = linear(layer.attention_out, layer.attention_out_bias, layer.number(AdaptedProduct::attention_out));
    add_output<B>(step, config, settings, layer.attention_output_norm, rows.mixed, out, 1, rows);
    add_low_rank<B>(step, *layer.streams, epsilon, rows);
    run_mlp<B>(step, config, layer, settings, norm_of<B>(layer.mlp_norm, shape.norm, epsilon), rows);
    const auto down = linear(layer.down, layer.down_bias, layer.number(AdaptedProduct::down));
    add_output<B>(step, config, settings, layer.mlp_output_norm, rows.gated, down, 1, rows);
    correct_streams<B>(step, *layer.streams, epsilon, rows);
    const auto gate = own_input<B>(step, config, layer, rows);
    step.mlp(gate, Norm{.kind = NormKind::none}, Linear{layer.input_out}, ActivationKind::identity, nullptr,
             rows.branch);
    step.normalize(rows.branch, norm_of<B>(layer.input_norm, shape.norm, epsilon));
    for (int stream = 1; stream < shape.streams.count; ++stream)
      step.add(rows.branch, Norm{.kind = NormKind::none}, stream_of<B>(rows, stream));
  }
}

template <Backend B, class Step, Config Shape, WeightFormat Format>
void run_block(Step& step, const Shape& config, const LayerWeights<Format, B>& layer, const BlockSettings& settings,
               KvLayer kv, const Activations<B>& of_model) {
  const ModelConfig& shape = config.value;
  const Activations<B> rows = of_layer(shape, layer.index, of_model);
  if (shape.has_streams()) return run_stream_block<B>(step, config, layer, settings, kv, rows);
  const Norm attention_norm = norm_of<B>(layer.attention_norm, shape.norm, settings.norm_epsilon);
  const Norm mlp_norm = norm_of<B>(layer.mlp_norm, shape.norm, settings.norm_epsilon);
  const Norm as_it_is{.kind = NormKind::none};
  const bool before = norms_inputs(shape.order), parallel = is_parallel(shape.order);
  const auto attention_out =
      linear(layer.attention_out, layer.attention_out_bias, layer.number(AdaptedProduct::attention_out));
  const auto down = linear(layer.down, layer.down_bias, layer.number(AdaptedProduct::down));

  // The recurrence is first, since q overwrites its inputs.
  if (shape.has_mixer(layer.index)) {
    const bool own = layer.mixer_input_norm.weight.size() != 0;
    const Norm norm = own ? norm_of<B>(layer.mixer_input_norm, shape.norm, settings.norm_epsilon) : attention_norm;
    run_mixer<B>(step, config, layer, settings, kv, norm, rows);
  }
  if (shape.is_latent()) {
    run_latent_attention<B>(step, config, layer, settings, kv, attention_norm, rows);
  } else if (shape.has_attention(layer.index)) {
    run_attention<B>(step, config, layer, settings, kv, before ? attention_norm : as_it_is, rows);
  }
  if (shape.has_mixer(layer.index)) {
    const auto out = linear(layer.mixer_out, layer.mixer_out_bias, layer.number(AdaptedProduct::mixer_out));
    step.project(rows.inner, out, rows.x, settings.residual_scale * settings.factors.mixer_out);
  }
  if (parallel) {  // x does not contain the attention output yet
    const bool one_norm = shape.order == BlockOrder::parallel;
    run_mlp<B>(step, config, layer, settings, one_norm ? attention_norm : mlp_norm, rows);
  }
  if (shape.has_attention(layer.index))
    add_output<B>(step, config, settings, layer.attention_output_norm,
                  shape.is_latent() ? latent_output<B>(shape, rows) : rows.mixed, attention_out,
                  settings.factors.attention_out, rows);
  if (shape.order == BlockOrder::post_norm) step.normalize(rows.x, attention_norm);

  if (!shape.has_mlp(layer.index)) return;
  if (shape.mixture.beside_mlp) {
    run_mlp_beside_experts<B>(step, config, layer, settings, mlp_norm, rows);
    return finish_layer<B>(step, config, layer, settings, rows);
  }
  if constexpr (MixesExperts<B>) {
    if (layer.experts) {
      const auto mixture =
          layer.experts->mixture(shape.mixture, settings.router, shape.activation, shape.gated, settings.norm_epsilon);
      return step.add_mixture(rows.x, mlp_norm, mixture, rows.x, settings.residual_scale);
    }
  }
  if (!parallel) run_mlp<B>(step, config, layer, settings, before ? mlp_norm : as_it_is, rows);
  add_output<B>(step, config, settings, layer.mlp_output_norm, rows.gated, down, settings.factors.mlp_out, rows);
  if (shape.order == BlockOrder::post_norm) step.normalize(rows.x, mlp_norm);
  finish_layer<B>(step, config, layer, settings, rows);
}

}}
