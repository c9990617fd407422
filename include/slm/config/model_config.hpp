// ModelConfig: the shape of a model and its components; may be a compile-time constant. ModelSettings: values that
// differ between fine-tunes of one shape.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/config/latent_attention.hpp"
#include "slm/config/layer_factors.hpp"
#include "slm/config/layer_shapes.hpp"
#include "slm/config/mixture.hpp"
#include "slm/config/residual_streams.hpp"
#include "slm/core/architecture.hpp"
#include "slm/core/error.hpp"
#include "slm/core/mixer.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/suggested_sampling.hpp"

namespace slm { inline namespace v0_1 {

/// The affine parameters of a norm.
enum class NormAffine { none, weight, weight_and_bias };

/// How positions enter the computation.
enum class Positions {
  rope,     // queries and keys are rotated
  alibi,    // scores decrease linearly with distance, with one slope per head
  learned,  // a table whose rows are added to the embedding
  none,     // only by the causal mask
};

enum class BlockOrder {
  pre_norm,        // x += attention(norm(x)); x += mlp(norm(x))
  parallel,        // x += attention(n) + mlp(n), n = norm(x)
  parallel_norms,  // x += attention(norm(x)) + mlp(norm(x)), with two norms
  post_norm,       // x = norm(x + attention(x)); x = norm(x + mlp(x))
  output_norm,     // x += norm(attention(x)); x += norm(mlp(x))
  sandwich,        // x += norm(attention(norm(x))); x += norm(mlp(norm(x)))
};

constexpr bool is_parallel(BlockOrder order) {
  return order == BlockOrder::parallel || order == BlockOrder::parallel_norms;
}
/// Whether attention and MLP normalise their inputs.
constexpr bool norms_inputs(BlockOrder order) {
  return order != BlockOrder::post_norm && order != BlockOrder::output_norm;
}
/// Whether the outputs of attention and MLP are normalised before they are added.
constexpr bool norms_outputs(BlockOrder order) {
  return order == BlockOrder::output_norm || order == BlockOrder::sandwich;
}

enum class AttentionBias { none, qkv, all };  // all: q, k, v and the output projection

constexpr std::string_view name_of(NormAffine affine) {
  switch (affine) {
    case NormAffine::none: return "none";
    case NormAffine::weight: return "weight";
    case NormAffine::weight_and_bias: return "weight_and_bias";
  }
  return "?";
}

constexpr std::string_view name_of(Positions positions) {
  switch (positions) {
    case Positions::rope: return "rope";
    case Positions::alibi: return "alibi";
    case Positions::learned: return "learned";
    case Positions::none: return "none";
  }
  return "?";
}

constexpr std::string_view name_of(BlockOrder order) {
  switch (order) {
    case BlockOrder::pre_norm: return "pre_norm";
    case BlockOrder::parallel: return "parallel";
    case BlockOrder::parallel_norms: return "parallel_norms";
    case BlockOrder::post_norm: return "post_norm";
    case BlockOrder::output_norm: return "output_norm";
    case BlockOrder::sandwich: return "sandwich";
  }
  return "?";
}

constexpr std::string_view name_of(AttentionBias bias) {
  switch (bias) {
    case AttentionBias::none: return "none";
    case AttentionBias::qkv: return "qkv";
    case AttentionBias::all: return "all";
  }
  return "?";
}

/// The shape of a decoder and its components. Defaults are those of the Llama family.
struct ModelConfig {
  int layers = 0;
  int hidden = 0;    // width of the residual stream
  int ffn = 0;       // width of the MLP's inner layer
  int heads = 0;     // query heads
  int kv_heads = 0;  // key-value heads; heads % kv_heads == 0
  int head_dim = 0;  // need not be hidden / heads
  int vocab = 0;     // rows of the embedding table

  NormKind norm = NormKind::rms;
  NormAffine norm_affine = NormAffine::weight;
  ActivationKind activation = ActivationKind::silu;
  bool gated = true;  // activation(gate) * up, or activation(up)
  Positions positions = Positions::rope;
  int rotary = 0;              // leading dimensions of a head that are rotated; 0: all
  bool rotates_pairs = false;  // dimensions 2i and 2i + 1 rotate together, instead of i and i + rotary_dim / 2
  BlockOrder order = BlockOrder::pre_norm;
  QkNorm qk_norm = QkNorm::none;
  AttentionBias attention_bias = AttentionBias::none;
  bool mlp_bias = false;
  bool head_bias = false;
  bool inner_norms = false;    // of the inputs of the output projection and of the MLP's second matrix
  bool sinks = false;          // each head has a score whose weight is dropped
  bool final_norm = true;      // before the head
  int embedding = 0;           // width of the embedding table if it differs from hidden; 0: hidden
  MixtureConfig mixture = {};  // in place of the MLPs of all layers but ModelSettings::dense_layers

  Mixer mixer = {};             // the recurrence of the layers that have one
  LayerSet mixer_layers = {};   // layers with the mixer
  LayerSet no_attention = {};   // layers without attention
  LayerSet no_mlp = {};         // layers without an MLP
  bool attention_gate = false;  // the attention output is multiplied by sigmoid(gate); q has the gate's rows too
  LayerShapes shapes = {};
  LatentAttention latent = {};
  ResidualStreams streams = {};

  constexpr bool operator==(const ModelConfig&) const = default;

  constexpr int rotary_dim() const { return positions != Positions::rope ? 0 : rotary != 0 ? rotary : head_dim; }
  constexpr int embedding_dim() const { return embedding != 0 ? embedding : hidden; }
  constexpr bool has_mixer(int layer) const { return mixer_layers.has(layer); }
  constexpr bool has_attention(int layer) const { return !no_attention.has(layer); }
  constexpr bool has_mlp(int layer) const { return !no_mlp.has(layer); }
  constexpr int kv_heads_of(int layer) const {
    return shapes.kv_heads != 0 && shapes.wide_heads.has(layer) ? shapes.kv_heads : kv_heads;
  }
  constexpr int head_dim_of(int layer) const { return shapes.wide_heads.has(layer) ? shapes.head_dim : head_dim; }
  constexpr int ffn_of(int layer) const { return shapes.wide_mlps.has(layer) ? shapes.ffn : ffn; }
  constexpr int rotary_dim_of(int layer) const { return shapes.wide_heads.has(layer) ? shapes.head_dim : rotary_dim(); }
  /// Widths of the widest layer's queries and MLP.
  constexpr std::int64_t most_queries() const {
    return std::int64_t{heads} * (shapes.head_dim > head_dim ? shapes.head_dim : head_dim);
  }
  /// Width of the attention output, the input of the output projection.
  constexpr std::int64_t attended(int layer) const {
    return std::int64_t{heads} * (is_latent() ? latent.value : head_dim_of(layer));
  }
  constexpr bool is_latent() const { return latent.rank != 0; }
  constexpr int most_ffn() const { return shapes.ffn > ffn ? shapes.ffn : ffn; }
  constexpr bool has_streams() const { return streams.count != 0; }
  constexpr int input_rows() const { return shapes.input_rows != 0 ? shapes.input_rows : vocab; }
  /// Whether all layers have the same shape, and there is one residual stream.
  constexpr bool is_uniform() const { return shapes == LayerShapes{} && !mixture.beside_mlp && !has_streams(); }
  /// Whether a layer lacks attention or an MLP, or has a further part.
  constexpr bool is_hybrid() const {
    return mixer.kind != MixerKind::none || attention_gate || !no_attention.empty() || !no_mlp.empty();
  }
  /// Whether every layer is attention and MLP, of one shape.
  constexpr bool is_plain() const { return !is_hybrid() && is_uniform(); }
};

/// Returns the fault of the sets of layers, or an empty string.
constexpr std::string_view fault_of_layers(const ModelConfig& config) {
  if (!config.is_hybrid() && config.mixer_layers.empty()) return {};
  if (const std::string_view fault = fault_of(config.mixer); !fault.empty()) return fault;
  if (config.order != BlockOrder::pre_norm || config.inner_norms) return "recurrent layers need order pre_norm";
  if ((config.mixer.kind == MixerKind::none) != config.mixer_layers.empty()) return "mixer and mixer_layers disagree";
  for (const LayerSet* set : {&config.mixer_layers, &config.no_attention, &config.no_mlp}) {
    if (!set->within(config.layers)) return "a set of layers has a layer that the model lacks";
  }
  for (int l = 0; l < config.layers; ++l) {
    if (!config.has_mixer(l) && !config.has_attention(l) && !config.has_mlp(l)) return "a layer computes nothing";
  }
  return {};
}

/// Returns the fault of a shape, or an empty string if the shape is valid. The bounds keep every product of two fields
/// well inside 64 bits.
constexpr std::string_view fault_of(const ModelConfig& config) {
  const auto within = [](int value, int limit) { return value >= 1 && value <= limit; };
  if (!within(config.layers, 1024)) return "layers must be 1..1024";
  if (!within(config.hidden, 1 << 20)) return "hidden must be 1..1048576";
  if (!within(config.ffn, 1 << 22)) return "ffn must be 1..4194304";
  if (!within(config.heads, 4096)) return "heads must be 1..4096";
  if (!within(config.kv_heads, config.heads)) return "kv_heads must be 1..heads";
  if (config.heads % config.kv_heads != 0) return "heads must be a multiple of kv_heads";
  if (!within(config.head_dim, 1024)) return "head_dim must be 1..1024";
  if (config.positions == Positions::rope && config.rotary == 0 && config.head_dim % 2 != 0) {
    return "head_dim must be even (rotary embedding turns pairs)";
  }
  if (config.rotary < 0 || config.rotary > config.head_dim || config.rotary % 2 != 0) {
    return "rotary must be even and at most head_dim";
  }
  if (config.rotary != 0 && config.positions != Positions::rope) return "rotary needs rotary positions";
  if (config.rotates_pairs && config.positions != Positions::rope) return "rotates_pairs needs rotary positions";
  if (config.activation == ActivationKind::soft_cap) return "soft_cap is an activation of logits only";
  if (!within(config.vocab, most_vocab)) return "vocab must be 1..1000000";
  if (config.embedding < 0 || config.embedding > 1 << 20) return "embedding must be 0..1048576";
  if (config.embedding != 0 && config.positions != Positions::learned)
    return "a narrow embedding needs learned positions";
  if (config.norm == NormKind::none) return "norm must be rms or layer";
  const BlockOrder of_mixtures = config.mixture.beside_mlp ? BlockOrder::sandwich : BlockOrder::pre_norm;
  if (config.mixture.experts != 0 && (config.order != of_mixtures || config.inner_norms))
    return "a mixture of experts needs blocks in pre_norm order, or sandwich beside an MLP, without inner norms";
  if (config.mixture.expert_bias && !config.gated) return "experts with biases need a gate";
  if (const std::string_view fault = fault_of(config.mixture, config.layers); !fault.empty()) return fault;
  if (const std::string_view fault = fault_of(config.shapes, config.layers, config.heads); !fault.empty()) return fault;
  const bool usual = config.positions == Positions::rope && config.rotary == 0 && !config.is_hybrid() &&
                     !config.inner_norms && config.embedding == 0 && norms_outputs(config.order);
  if (!config.is_uniform() && !usual) return "layers of different shapes need whole rotated heads and norms of outputs";
  if (const auto fault = fault_of(config.latent, config.kv_heads, config.head_dim, config.rotary); !fault.empty())
    return fault;
  const bool plain = config.is_plain() && config.order == BlockOrder::pre_norm && config.qk_norm == QkNorm::none &&
                     config.attention_bias == AttentionBias::none && !config.inner_norms && !config.sinks;
  if (config.is_latent() && !plain) return "latent attention needs plain blocks in pre_norm order without biases";
  if (const std::string_view fault = fault_of(config.streams); !fault.empty()) return fault;
  const bool sandwich = config.order == BlockOrder::sandwich && config.norm == NormKind::rms &&
                        config.norm_affine == NormAffine::weight && config.gated && config.mixture.experts == 0;
  if (config.has_streams() && (!sandwich || config.shapes.inputs == 0 || config.shapes.scaled))
    return "residual streams need RMS norms in sandwich order, gated MLPs and own inputs of layers without factors";
  return fault_of_layers(config);
}

/// How the trained rotary frequencies are rescaled for longer contexts.
struct RopeScaling {
  enum class Kind { none, linear, llama3, longrope, divisors, yarn } kind = Kind::none;
  float factor = 1;
  float low_frequency_factor = 1;
  float high_frequency_factor = 4;
  float original_context = 8192;
  // Divisors of the frequencies. LongRoPE has two sets: up to the original context and beyond it   [rotary_dim / 2]
  std::vector<float> short_factors = {};
  std::vector<float> long_factors = {};
  float attention_factor = 1;  // factor of cosines and sines
  // YaRN: rotations within the original context above which frequencies stay, and below which they are divided by the
  // factor. truncate: the bounds between are whole dimensions.
  float beta_fast = 32;
  float beta_slow = 1;
  bool truncate = true;

  bool operator==(const RopeScaling&) const = default;
};

constexpr std::string_view name_of(RopeScaling::Kind kind) {
  switch (kind) {
    case RopeScaling::Kind::none: return "none";
    case RopeScaling::Kind::linear: return "linear";
    case RopeScaling::Kind::llama3: return "llama3";
    case RopeScaling::Kind::longrope: return "longrope";
    case RopeScaling::Kind::divisors: return "divisors";
    case RopeScaling::Kind::yarn: return "yarn";
  }
  return "?";
}

/// Properties of a checkpoint besides its shape.
struct ModelSettings {
  int context = 2048;  // max_position_embeddings
  float norm_epsilon = 1e-6f;
  float rope_theta = 10000;
  RopeScaling rope_scaling = {};
  bool tied_embeddings = false;  // the head is the embedding table
  bool headless = false;         // no head: the model returns hidden states only
  float clip_qkv = 0;            // queries, keys and values are clamped to [-clip, clip]; 0: off
  bool clips_normed = false;     // queries and keys are clamped after their norm instead of before
  float attention_scale = 0;     // factor of q . k; 0: 1 / sqrt(head_dim)
  float attention_cap = 0;       // scores are cap * tanh(score / cap); 0: off
  float temperature = 0;  // queries are multiplied by 1 + temperature * ln(1 + floor(position / temperature_context))
  int temperature_context = 1;
  float alibi_bias_max = 8;        // the smallest slope is 2^-alibi_bias_max
  bool alibi_power_of_two = true;  // slopes are computed for the next power of two of heads; surplus ones are dropped
  float logit_scale = 1;           // factor of all logits
  float logit_cap = 0;             // logits are cap * tanh(logit / cap); 0: off
  float embedding_scale = 1;       // factor of the embedding
  float residual_scale = 1;        // factor of what attention, mixer and MLP add
  LayerFactors factors = {};       // further ones
  int window = 0;                  // sliding window: positions that a query attends to, itself included; 0: no window
  std::vector<bool> windowed_layers = {};    // layers with the window; empty: all
  float windowed_rope_theta = 0;             // layers with the window rotate by this base, unscaled; 0: like the others
  std::vector<bool> unrotated_layers = {};   // layers without rotation; empty: none
  std::vector<bool> dense_layers = {};       // layers with an MLP in a model with experts; empty: none
  RouterSettings router = {};                // of a model with experts
  std::vector<Activation> activations = {};  // xIELU of each layer, if the weights do not state it
  std::vector<float> gate_cutoffs = {};      // of each layer, see gate_cutoff(); empty: none
  int position_offset = 0;                   // row of the learned position table for position 0
  std::vector<Token> end_tokens = {};
  SuggestedSampling sampling = {};

  bool operator==(const ModelSettings&) const = default;

  /// Window size of one layer; 0: none.
  int window_of(int layer) const {
    return windowed_layers.empty() || windowed_layers[static_cast<std::size_t>(layer)] ? window : 0;
  }
  /// Whether layers with and without the window rotate by different frequencies.
  bool has_two_ropes() const { return windowed_rope_theta != 0; }
  /// Whether a layer of a model with experts has an MLP instead.
  bool is_dense(int layer) const { return !dense_layers.empty() && dense_layers[static_cast<std::size_t>(layer)]; }
  bool drops_gates() const { return !gate_cutoffs.empty(); }
  /// Gates of an MLP count from mean + cutoff * deviation of the row; lower ones are 0. -infinity: all count.
  float gate_cutoff(int layer) const {
    return gate_cutoffs.empty() ? -std::numeric_limits<float>::infinity()
                                : gate_cutoffs[static_cast<std::size_t>(layer)];
  }
  bool rotates(int layer) const {
    return unrotated_layers.empty() || !unrotated_layers[static_cast<std::size_t>(layer)];
  }
};

/// The layer whose keys and values a layer reads: itself, or the last one before it with the same heads and window that
/// keeps its own; -1: none.
inline int kv_layer_of(const ModelConfig& config, const ModelSettings& settings, int layer) {
  if (!config.has_attention(layer)) return -1;
  if (!config.shapes.borrowing.has(layer)) return layer;
  for (int l = layer - 1; l >= 0; --l) {
    const bool alike = config.kv_heads_of(l) == config.kv_heads_of(layer) &&
                       config.head_dim_of(l) == config.head_dim_of(layer) &&
                       settings.window_of(l) == settings.window_of(layer);
    if (alike && config.has_attention(l) && !config.shapes.borrowing.has(l)) return l;
  }
  return -1;
}

/// Returns the fault of a checkpoint's layers, or an empty string. The config and its sets must be sound.
inline std::string fault_of(const ModelConfig& config, const ModelSettings& settings) {
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.shapes.borrowing.has(layer) && kv_layer_of(config, settings, layer) < 0) {
      return text("layer ", layer, " reads the keys and values of an earlier layer, and none has its heads and window");
    }
  }
  return {};
}

/// xIELU from stored parameters: the slopes are softplus of the alphas, that of negative inputs plus beta.
inline Activation stored_xielu(float alpha_p, float alpha_n, float beta, float epsilon) {
  const auto softplus = [](float x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  Activation activation = ActivationKind::xielu;
  activation.alpha_p = softplus(alpha_p);
  activation.alpha_n = beta + softplus(alpha_n);
  activation.beta = beta;
  activation.epsilon = epsilon;
  return activation;
}

}}
