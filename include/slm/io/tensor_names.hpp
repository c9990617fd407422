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
#include "slm/io/layer_names.hpp"
#include "slm/io/mixer_rows.hpp"
#include "slm/io/name_prefixes.hpp"
#include "slm/io/tensor_roles.hpp"

namespace slm { inline namespace v0_1 {

/// A TensorTable applied to a config. Roles that the model lacks are empty; readers need no other test.
class TensorNames : public detail::LayerNames {
 public:
  /// Uses the prefix of the table.
  explicit TensorNames(const ModelConfig& config, const ModelSettings& settings = {}, const TensorTable& table = {})
      : TensorNames(config, settings, table, {std::string{table.prefix}, {}}) {}

  /// one_table_as_head: the table of a tied model has the head's name.
  TensorNames(const ModelConfig& config, const ModelSettings& settings, const TensorTable& table, NamePrefixes prefixes,
              bool one_table_as_head = false)
      : LayerNames(config, table, std::move(prefixes)),
        position_rows_(std::int64_t{settings.context} + settings.position_offset),
        tied_(settings.tied_embeddings || settings.headless),
        one_table_as_head_(one_table_as_head),
        dense_layers_(settings.dense_layers) {}

  /// The names of the same model with a separate head.
  TensorNames untied() const {
    TensorNames names = *this;
    names.tied_ = names.one_table_as_head_ = false;
    return names;
  }

  std::vector<TensorName> weights(Role role, int layer = 0) const {
    const std::int64_t hidden = shape_.hidden, ffn = shape_.ffn_of(layer), embedding = shape_.embedding_dim();
    const std::int64_t q = shape_.attended(layer);
    const std::int64_t kv = std::int64_t{shape_.kv_heads_of(layer)} * shape_.head_dim_of(layer);
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
      case Role::k_norm:
        if (shape_.shapes.borrowing.has(layer)) return {};
        return qk_norm(layer, table_.k_norm, shape_.kv_heads_of(layer));
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
      case Role::latent_query_low:
      case Role::latent_query_norm:
      case Role::latent_query:
      case Role::latent:
      case Role::latent_norm:
      case Role::latent_heads: return of_latent(role, layer);
      case Role::qkv: {
        if (shape_.is_latent()) return {};
        if (table_.qkv[1].empty()) return {matrix(layer, table_.qkv[0], q + 2 * kv, hidden)};
        std::vector<TensorName> parts{matrix(layer, table_.qkv[0], shape_.attention_gate ? 2 * q : q, hidden)};
        if (shape_.shapes.borrowing.has(layer)) return parts;
        parts.push_back(matrix(layer, table_.qkv[1], kv, hidden));
        if (!shape_.shapes.keys_as_values.has(layer)) parts.push_back(matrix(layer, table_.qkv[2], kv, hidden));
        return parts;
      }
      case Role::attention_out: return {matrix(layer, table_.attention_out, hidden, q)};
      case Role::gate_up:
        if (!has_dense_mlp(layer)) return {};
        if (table_.up[1].empty()) return {matrix(layer, table_.up[0], (shape_.gated ? 2 : 1) * ffn, hidden)};
        return {matrix(layer, table_.up[0], ffn, hidden), matrix(layer, table_.up[1], ffn, hidden)};
      case Role::down_divisor:
        if (table_.activation_scales.empty()) return {};
        return one(text(numbered(layer), table_.activation_scales), {ffn});
      case Role::activation: return activation(layer);
      case Role::down:
        return has_dense_mlp(layer) ? std::vector{matrix(layer, table_.down, hidden, ffn)} : std::vector<TensorName>{};
      case Role::router:
      case Role::choice_bias:
      case Role::experts_up:
      case Role::experts_down:
      case Role::shared_up:
      case Role::shared_down:
      case Role::shared_gate:
      case Role::router_norm:
      case Role::expert_factors:
      case Role::expert_norm:
      case Role::expert_output_norm:
      case Role::beside_norm: return has_experts(layer) ? of_experts(role, layer) : std::vector<TensorName>{};
      case Role::input_table:
      case Role::input_from_embedding:
      case Role::input_norm:
      case Role::own_input_gate:
      case Role::own_input_out:
      case Role::own_input_norm:
      case Role::layer_factor: return of_shapes(role, layer);
      case Role::stream_in:
      case Role::stream_out:
      case Role::stream_router_norm:
      case Role::stream_router:
      case Role::stream_prediction:
      case Role::stream_correction:
      case Role::stream_scale:
      case Role::low_rank_in:
      case Role::low_rank_out:
      case Role::low_rank_norm: return of_streams(role, layer);
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
    visit_roles(Role::embedding, Role::stream_out, 0);
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

  /// Whether a layer has experts, instead of an MLP or beside it.
  bool has_experts(int layer) const {
    const auto index = static_cast<std::size_t>(layer);
    return shape_.mixture.experts != 0 && shape_.has_mlp(layer) &&
           !(index < dense_layers_.size() && dense_layers_[index]);
  }

  /// Whether a layer has an MLP that is no expert.
  bool has_dense_mlp(int layer) const {
    return shape_.has_mlp(layer) && (!has_experts(layer) || shape_.mixture.beside_mlp);
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

  std::vector<TensorName> head(std::int64_t width) const {
    return one(text(prefixes_.head, table_.head, ".weight"), {shape_.vocab, width});
  }

  /// Whether a layer has the part of the model that a role belongs to.
  bool is_in(Role role, int layer) const {
    if (is_of_mixer(role)) return shape_.has_mixer(layer);
    if (is_of_latent(role)) return shape_.is_latent() && shape_.has_attention(layer);
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

  std::int64_t position_rows_;
  bool tied_;  // or headless: no separate head is read
  bool one_table_as_head_;
  std::vector<bool> dense_layers_;
};

}}
