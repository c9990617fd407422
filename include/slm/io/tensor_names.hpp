// TensorNames: all tensors of a model by role and layer, with the shapes that its config implies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/config/model_config.hpp"
#include "slm/core/error.hpp"
#include "slm/io/family.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/name_prefixes.hpp"
#include "slm/io/tensor_roles.hpp"

namespace slm { inline namespace v0_1 {

/// A TensorTable applied to a config. Roles that the model lacks are empty; readers need no other test.
class TensorNames {
 public:
  /// Uses the prefix of the table.
  explicit TensorNames(const ModelConfig& config, const ModelSettings& settings = {}, const TensorTable& table = {})
      : TensorNames(config, settings, table, {std::string{table.prefix}, {}}) {}

  /// one_table_as_head: the table of a tied model has the head's name.
  TensorNames(const ModelConfig& config, const ModelSettings& settings, const TensorTable& table, NamePrefixes prefixes,
              bool one_table_as_head = false)
      : shape_(config),
        position_rows_(std::int64_t{settings.context} + settings.position_offset),
        tied_(settings.tied_embeddings || settings.headless),
        one_table_as_head_(one_table_as_head),
        dense_layers_(settings.dense_layers),
        table_(table),
        prefixes_(std::move(prefixes)) {}

  /// The names of the same model with a separate head.
  TensorNames untied() const {
    TensorNames names = *this;
    names.tied_ = names.one_table_as_head_ = false;
    return names;
  }

  std::vector<TensorName> weights(Role role, int layer = 0) const {
    const std::int64_t hidden = shape_.hidden, ffn = shape_.ffn, embedding = shape_.embedding_dim();
    const std::int64_t q = std::int64_t{shape_.heads} * shape_.head_dim;
    const std::int64_t kv = std::int64_t{shape_.kv_heads} * shape_.head_dim;
    const bool narrow = shape_.embedding != 0;
    if (is_of_layer(role) && !is_in(role, layer)) return {};
    switch (role) {
      case Role::embedding:
        return one_table_as_head_ ? head(embedding) : one(outside(table_.embedding), {shape_.vocab, embedding});
      case Role::positions:
        if (shape_.positions != Positions::learned) return {};
        return one(outside(table_.positions), {position_rows_, hidden});
      case Role::project_in:
        return narrow ? one(outside(table_.project_in), {hidden, embedding}) : std::vector<TensorName>{};
      case Role::project_out:
        return narrow ? one(outside(table_.project_out), {embedding, hidden}) : std::vector<TensorName>{};
      case Role::attention_norm:
        if (shape_.order == BlockOrder::output_norm) return {};
        return norm(in(layer, table_.attention_norm), hidden);
      case Role::mlp_norm:
        if (shape_.order == BlockOrder::parallel || shape_.order == BlockOrder::output_norm) return {};
        return norm(in(layer, table_.mlp_norm), hidden);
      case Role::attention_output_norm:
        if (!norms_outputs(shape_.order)) return {};
        return norm(in(layer, table_.attention_output_norm), hidden);
      case Role::mlp_output_norm:
        if (!norms_outputs(shape_.order)) return {};
        return norm(in(layer, table_.mlp_output_norm), hidden);
      case Role::mixed_norm:
        return shape_.inner_norms ? norm(in(layer, table_.mixed_norm), q) : std::vector<TensorName>{};
      case Role::gated_norm:
        return shape_.inner_norms ? norm(in(layer, table_.gated_norm), ffn) : std::vector<TensorName>{};
      case Role::q_norm: return qk_norm(layer, table_.q_norm, shape_.heads);
      case Role::k_norm: return qk_norm(layer, table_.k_norm, shape_.kv_heads);
      case Role::sinks:
        if (!shape_.sinks) return {};
        return one(in_layer(layer, table_.sinks), {shape_.heads});
      case Role::mixer_in:
      case Role::mixer_conv:
      case Role::mixer_decay:
      case Role::mixer_dt_bias:
      case Role::mixer_skip:
      case Role::mixer_norm:
      case Role::mixer_out: return mixer(role, layer);
      case Role::qkv:
        if (table_.qkv[1].empty()) return {matrix(layer, table_.qkv[0], q + 2 * kv, hidden)};
        return {matrix(layer, table_.qkv[0], shape_.attention_gate ? 2 * q : q, hidden),
                matrix(layer, table_.qkv[1], kv, hidden), matrix(layer, table_.qkv[2], kv, hidden)};
      case Role::attention_out: return {matrix(layer, table_.attention_out, hidden, q)};
      case Role::gate_up:
        if (has_experts(layer)) return {};
        if (table_.up[1].empty()) return {matrix(layer, table_.up[0], (shape_.gated ? 2 : 1) * ffn, hidden)};
        return {matrix(layer, table_.up[0], ffn, hidden), matrix(layer, table_.up[1], ffn, hidden)};
      case Role::down_divisor:
        if (table_.activation_scales.empty()) return {};
        return one(text(numbered(layer), table_.activation_scales), {ffn});
      case Role::activation: return activation(layer);
      case Role::down:
        return has_experts(layer) ? std::vector<TensorName>{} : std::vector{matrix(layer, table_.down, hidden, ffn)};
      case Role::router:
      case Role::choice_bias:
      case Role::experts_up:
      case Role::experts_down:
      case Role::shared_up:
      case Role::shared_down:
      case Role::shared_gate: return has_experts(layer) ? of_experts(role, layer) : std::vector<TensorName>{};
      case Role::final_norm:
        return shape_.final_norm ? norm(outside(table_.final_norm), hidden) : std::vector<TensorName>{};
      case Role::head: return tied_ ? std::vector<TensorName>{} : head(embedding);
    }
    return {};
  }

  std::vector<TensorName> biases(Role role, int layer = 0) const {
    std::vector<TensorName> biases;
    if (!is_biased(role)) return biases;
    const bool of_head = role == Role::head;  // a head may have a bias even if its weight is the embedding's
    for (const TensorName& weight : of_head ? head(shape_.embedding_dim()) : weights(role, layer)) {
      biases.push_back(bias_of(weight));
    }
    return biases;
  }

  /// Calls visit(role, layer, weights, biases) for every non-empty role, in a fixed order; layer is 0 outside the
  /// layers.
  template <class Visit>
  void for_each(Visit&& visit) const {
    const auto visit_roles = [&](Role first, Role last, int layer) {
      for (int r = static_cast<int>(first); r <= static_cast<int>(last); ++r) {
        const Role role = static_cast<Role>(r);
        const auto weights = this->weights(role, layer), biases = this->biases(role, layer);
        if (!weights.empty() || !biases.empty()) visit(role, layer, weights, biases);
      }
    };
    visit_roles(Role::embedding, Role::project_out, 0);
    for (int l = 0; l < shape_.layers; ++l) visit_roles(Role::attention_norm, Role::down, l);
    visit_roles(Role::final_norm, Role::head, 0);
  }

  /// All tensors that the model requires.
  std::vector<TensorName> all() const {
    std::vector<TensorName> names;
    for_each([&](Role role, int, const auto& weights, const auto& biases) {
      if (is_optional(role)) return;
      for (std::size_t i = 0; i < std::max(weights.size(), biases.size()); ++i) {
        if (i < weights.size()) names.push_back(weights[i]);
        if (i < biases.size()) names.push_back(biases[i]);
      }
    });
    return names;
  }

  /// The bias of a weight: "...weight" -> "...bias", one element per output.
  static TensorName bias_of(const TensorName& weight) {
    return {weight.module() + ".bias", {weight.transposed ? weight.shape.back() : weight.shape.front()}};
  }

  /// Whether a layer has experts instead of an MLP.
  bool has_experts(int layer) const {
    const auto index = static_cast<std::size_t>(layer);
    return shape_.mixture.experts != 0 && shape_.has_mlp(layer) &&
           !(index < dense_layers_.size() && dense_layers_[index]);
  }

  bool norms_less_one() const { return table_.norms_less_one; }
  /// Whether the decay of recurrent layers is stored as A_log.
  bool logs_decay() const { return !table_.of_gguf; }
  bool groups_qkv() const { return table_.grouped_qkv; }

  /// Whether a tensor is a fused qkv whose rows are stored group by group, or its bias.
  bool is_grouped(const TensorName& name) const {
    return table_.grouped_qkv &&
           (name.name.ends_with(text(table_.qkv[0], ".weight")) || name.name.ends_with(text(table_.qkv[0], ".bias")));
  }
  /// The stored row of such a tensor for row `row` of q | k | v.
  std::int64_t stored_row(std::int64_t row) const {
    const std::int64_t dim = shape_.head_dim, group = shape_.heads / shape_.kv_heads, head = row / dim;
    const bool query = head < shape_.heads;
    const std::int64_t part = query ? 0 : (head - shape_.heads) / shape_.kv_heads;  // 0: key, 1: value
    const std::int64_t kv_head = query ? head / group : (head - shape_.heads) % shape_.kv_heads;
    const std::int64_t place = query ? head % group : group + part;
    return (kv_head * (group + 2) + place) * dim + row % dim;
  }

  /// The stored rows of a matrix of mixer_in in the order that backends take; empty: they have it.
  std::vector<std::int64_t> mixer_in_rows(std::size_t matrix) const {
    return detail::mixer_in_rows(table_.mixer_in, shape_.mixer, matrix);
  }

  const NamePrefixes& prefixes() const { return prefixes_; }

  /// The name of a tensor below the prefix of a layer.
  std::string in_layer(int layer, std::string_view tensor) const { return text(numbered(layer), tensor); }
  const ExpertTable& experts() const { return table_.experts; }

  /// The common prefix of all layer names up to the number: "model.layers.".
  std::string layers() const { return text(prefixes_.model, table_.layer.substr(0, table_.layer.find("{}"))); }

 private:
  bool is_biased(Role role) const {
    switch (role) {
      case Role::attention_norm:
      case Role::mlp_norm:
      case Role::attention_output_norm:
      case Role::mlp_output_norm:
      case Role::mixed_norm:
      case Role::gated_norm:
      case Role::final_norm: return shape_.norm_affine == NormAffine::weight_and_bias;
      case Role::q_norm:
      case Role::k_norm:
        return shape_.norm_affine == NormAffine::weight_and_bias && shape_.qk_norm != QkNorm::own_weights;
      case Role::qkv: return shape_.attention_bias != AttentionBias::none;
      case Role::attention_out: return shape_.attention_bias == AttentionBias::all;
      case Role::gate_up:
      case Role::down:
      case Role::shared_up:
      case Role::shared_down: return shape_.mlp_bias;
      case Role::router: return shape_.mixture.router_bias;
      case Role::experts_up:
      case Role::experts_down: return shape_.mixture.expert_bias;
      case Role::mixer_in:
      case Role::mixer_out: return shape_.mixer.bias;
      case Role::mixer_conv: return shape_.mixer.conv_bias;
      case Role::head: return shape_.head_bias;
      default: return false;
    }
  }

  std::string outside(std::string_view module) const { return text(prefixes_.model, module, ".weight"); }

  std::string numbered(int layer) const {
    return text(layers(), layer, table_.layer.substr(table_.layer.find("{}") + 2));
  }

  std::string in(int layer, std::string_view module) const { return text(numbered(layer), module, ".weight"); }

  static std::vector<TensorName> one(std::string name, std::vector<std::int64_t> shape) {
    return {{std::move(name), std::move(shape)}};
  }

  std::vector<TensorName> head(std::int64_t width) const {
    return one(text(prefixes_.head, table_.head, ".weight"), {shape_.vocab, width});
  }

  std::vector<TensorName> norm(std::string name, std::int64_t width) const {
    if (shape_.norm_affine == NormAffine::none) return {};
    return one(std::move(name), {width});
  }

  std::vector<TensorName> qk_norm(int layer, std::string_view module, std::int64_t heads) const {
    const std::int64_t dim = shape_.head_dim;
    if (shape_.qk_norm == QkNorm::none) return {};
    if (shape_.qk_norm != QkNorm::own_weights)
      return norm(in(layer, module), shape_.qk_norm == QkNorm::whole ? heads * dim : dim);
    std::vector<TensorName> names;
    if (!table_.norm_per_head) return one(in(layer, module), {heads, dim});
    for (std::int64_t head = 0; head < heads; ++head) names.push_back({in(layer, text(module, ".", head)), {dim}});
    return names;
  }

  std::vector<TensorName> activation(int layer) const {
    std::vector<TensorName> names;
    if (shape_.activation != ActivationKind::xielu || table_.activation[0].empty()) return names;
    for (const std::string_view name : table_.activation) {
      const bool vector = name != table_.activation[2] && name != table_.activation[3];
      names.push_back(
          {text(numbered(layer), name), vector ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{}});
    }
    return names;
  }

  std::vector<TensorName> of_experts(Role role, int layer) const {
    const MixtureConfig& mixture = shape_.mixture;
    const ExpertTable& table = table_.experts;
    const std::int64_t hidden = shape_.hidden, ffn = mixture.ffn, shared = mixture.shared_ffn, count = mixture.experts;
    std::vector<TensorName> names;
    const auto add = [&](std::string_view module, std::int64_t out, std::int64_t in_features) {
      names.push_back({in(layer, module), {out, in_features}});
    };
    const auto add_expert = [&](std::string_view pattern, int e, std::int64_t out, std::int64_t in_features) {
      add(of_expert(pattern, e), out, in_features);
      names.back().transposed = table.transposed;
      if (table.transposed) std::swap(names.back().shape[0], names.back().shape[1]);
    };
    switch (role) {
      case Role::router: add(table.router, count, hidden); break;
      case Role::choice_bias:
        if (!mixture.choice_bias) break;
        names.push_back({text(numbered(layer), table.choice_bias), {count}});
        if (table.wide_choice_bias) names.back().shape = {1, count};
        break;
      case Role::experts_up:
        for (int e = 0; e < count; ++e) {
          if (table.up[1].empty()) {
            add_expert(table.up[0], e, shape_.gated ? 2 * ffn : ffn, hidden);
            continue;
          }
          for (const std::string_view module : table.up) add_expert(module, e, ffn, hidden);
        }
        break;
      case Role::experts_down:
        for (int e = 0; e < count; ++e) add_expert(table.down, e, hidden, ffn);
        break;
      case Role::shared_up:
        if (shared != 0 && table.shared_up[1].empty())
          add(table.shared_up[0], shape_.gated ? 2 * shared : shared, hidden);
        for (const std::string_view module : table.shared_up) {
          if (shared != 0 && !table.shared_up[1].empty()) add(module, shared, hidden);
        }
        break;
      case Role::shared_down:
        if (shared != 0) add(table.shared_down, hidden, shared);
        break;
      case Role::shared_gate:
        if (mixture.shared_gate) add(table.shared_gate, 1, hidden);
        break;
      default: break;
    }
    return names;
  }

  /// Whether a layer has the part of the model that a role belongs to.
  bool is_in(Role role, int layer) const {
    if (is_of_mixer(role)) return shape_.has_mixer(layer);
    switch (role) {
      case Role::attention_norm: return shape_.has_attention(layer) || shape_.has_mixer(layer);
      case Role::attention_output_norm:
      case Role::mixed_norm:
      case Role::q_norm:
      case Role::k_norm:
      case Role::sinks:
      case Role::qkv:
      case Role::attention_out: return shape_.has_attention(layer);
      default: return shape_.has_mlp(layer);
    }
  }

  std::vector<TensorName> mixer(Role role, int layer) const {
    const Mixer& mixer = shape_.mixer;
    const std::int64_t heads = mixer.heads, inner = mixer.inner();
    const auto vector = [&](std::size_t index) -> std::vector<TensorName> {
      const std::string_view name = table_.mixer_vectors[index];
      if (mixer.kind == MixerKind::short_conv || name.empty()) return {};
      const bool column = table_.of_gguf && mixer.kind == MixerKind::mamba2 && index != 1;
      return one(text(numbered(layer), name), column ? std::vector{heads, std::int64_t{1}} : std::vector{heads});
    };
    switch (role) {
      case Role::mixer_in: {
        std::vector<TensorName> parts;
        for (const std::int64_t outputs : detail::mixer_in_outputs(table_.mixer_in, mixer))
          parts.push_back(matrix(layer, table_.mixer_in[parts.size()], outputs, shape_.hidden));
        return parts;
      }
      case Role::mixer_conv: {
        const std::int64_t taps = mixer.taps, channels = mixer.channels();
        return one(in(layer, table_.mixer_conv),
                   table_.of_gguf ? std::vector{channels, taps} : std::vector{channels, std::int64_t{1}, taps});
      }
      case Role::mixer_decay: return vector(0);
      case Role::mixer_dt_bias: return vector(1);
      case Role::mixer_skip: return vector(2);
      case Role::mixer_norm: {
        if (mixer.kind == MixerKind::delta_net) return one(in(layer, table_.mixer_norm), {mixer.head_dim});
        if (mixer.kind == MixerKind::short_conv || mixer.norm == MixerNorm::none) return {};
        if (!table_.of_gguf) return one(in(layer, table_.mixer_norm), {inner});
        return one(in(layer, table_.mixer_norm), {mixer.groups, inner / mixer.groups});
      }
      default: return {matrix(layer, table_.mixer_out, shape_.hidden, inner)};
    }
  }

  TensorName matrix(int layer, std::string_view module, std::int64_t out, std::int64_t inputs) const {
    if (table_.transposed) return {in(layer, module), {inputs, out}, true};
    return {in(layer, module), {out, inputs}};
  }

  ModelConfig shape_;
  std::int64_t position_rows_;
  bool tied_;  // or headless: no separate head is read
  bool one_table_as_head_;
  std::vector<bool> dense_layers_;
  TensorTable table_;
  NamePrefixes prefixes_;
};

}}
