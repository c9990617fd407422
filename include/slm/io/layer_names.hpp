// LayerNames: the tensors of a layer's mixer, experts and further parts, with the shapes that the config implies.
#pragma once

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

namespace slm { inline namespace v0_1 { namespace detail {

/// Base of TensorNames.
class LayerNames {
 public:
  /// The name of a tensor that holds the matrices of stream_in or stream_out; empty: there is none.
  std::string all_streams(Role role) const {
    const std::string_view name = role == Role::stream_in ? table_.streams.all_in : table_.streams.all_out;
    return name.empty() ? std::string{} : text(prefixes_.model, name);
  }

  /// The common prefix of all layer names up to the number: "model.layers.".
  std::string layers() const { return text(prefixes_.model, table_.layer.substr(0, table_.layer.find("{}"))); }

 protected:
  LayerNames(const ModelConfig& config, const TensorTable& table, NamePrefixes prefixes)
      : shape_(config), table_(table), prefixes_(std::move(prefixes)) {}

  std::string numbered(int layer) const {
    return text(layers(), layer, table_.layer.substr(table_.layer.find("{}") + 2));
  }

  std::string in(int layer, std::string_view module) const { return text(numbered(layer), module, ".weight"); }

  static std::vector<TensorName> one(std::string name, std::vector<std::int64_t> shape) {
    return {{std::move(name), std::move(shape)}};
  }

  std::vector<TensorName> norm(std::string name, std::int64_t width) const {
    if (shape_.norm_affine == NormAffine::none) return {};
    return one(std::move(name), {width});
  }

  std::vector<TensorName> qk_norm(int layer, std::string_view module, std::int64_t heads) const {
    const std::int64_t dim = shape_.head_dim_of(layer);
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
      case Role::router_norm:
        if (mixture.beside_mlp) names = one(text(numbered(layer), table.router_norm), {hidden});
        break;
      case Role::expert_factors:
        if (mixture.beside_mlp) names = one(text(numbered(layer), table.factors), {count});
        break;
      case Role::expert_norm:
        if (mixture.beside_mlp) names = one(in(layer, table.norm), {hidden});
        break;
      case Role::expert_output_norm:
        if (mixture.beside_mlp) names = one(in(layer, table.output_norm), {hidden});
        break;
      case Role::beside_norm:
        if (mixture.beside_mlp) names = one(in(layer, table.beside_norm), {hidden});
        break;
      default: break;
    }
    return names;
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

  std::vector<TensorName> of_latent(Role role, int layer) const {
    const LatentAttention& latent = shape_.latent;
    const LatentTable& table = table_.latent;
    const std::int64_t heads = shape_.heads, rank = latent.rank, from = latent.query_rank;
    const std::int64_t query = heads * (latent.unrotated + shape_.rotary);
    switch (role) {
      case Role::latent_query_low:
        return from == 0 ? std::vector<TensorName>{}
                         : std::vector{matrix(layer, table.query_latent, from, shape_.hidden)};
      case Role::latent_query_norm:
        return from == 0 ? std::vector<TensorName>{} : one(in(layer, table.query_norm), {from});
      case Role::latent_query:
        return {from == 0 ? matrix(layer, table.query, query, shape_.hidden)
                          : matrix(layer, table.query_heads, query, from)};
      case Role::latent: return {matrix(layer, table.latent, shape_.head_dim, shape_.hidden)};
      case Role::latent_norm: return one(in(layer, table.norm), {rank});
      default: break;
    }
    if (table.heads[1].empty()) return {matrix(layer, table.heads[0], heads * (latent.unrotated + latent.value), rank)};
    return {{in(layer, table.heads[0]), {heads, rank, latent.unrotated}},
            {in(layer, table.heads[1]), {heads, latent.value, rank}}};
  }

  /// The parts of layers whose shapes differ.
  std::vector<TensorName> of_shapes(Role role, int layer) const {
    const LayerShapes& shapes = shape_.shapes;
    const InputTable& inputs = table_.inputs;
    const std::int64_t hidden = shape_.hidden, width = shapes.inputs, all = width * shape_.layers;
    const auto outside = [this](std::string_view module) { return text(prefixes_.model, module, ".weight"); };
    if (role == Role::layer_factor) {
      return shapes.scaled ? one(text(numbered(layer), table_.layer_factor), {1}) : std::vector<TensorName>{};
    }
    if (width == 0) return {};
    switch (role) {
      case Role::input_table: return one(outside(inputs.table), {shape_.input_rows(), all});
      case Role::input_from_embedding: return one(outside(inputs.from_embedding), {all, hidden});
      case Role::input_norm: return one(outside(inputs.norm), {width});
      case Role::own_input_gate: return one(in(layer, inputs.gate), {width, hidden});
      case Role::own_input_out: return one(in(layer, inputs.out), {hidden, width});
      case Role::own_input_norm: return one(in(layer, inputs.output_norm), {hidden});
      default: return {};
    }
  }

  /// The parts of residual streams.
  std::vector<TensorName> of_streams(Role role, int layer) const {
    const StreamTable& table = table_.streams;
    const std::int64_t hidden = shape_.hidden, count = shape_.streams.count, rank = shape_.streams.low_rank;
    if (count == 0) return {};
    const auto of_each = [&](std::string_view pattern) {
      std::vector<TensorName> names;
      for (int stream = 0; stream + 1 < count; ++stream)
        names.push_back({text(prefixes_.model, of_expert(pattern, stream), ".weight"), {hidden, hidden}});
      return names;
    };
    switch (role) {
      case Role::stream_in: return of_each(table.in);
      case Role::stream_out: return of_each(table.out);
      case Role::stream_router_norm: return one(in(layer, table.router_norm), {hidden});
      case Role::stream_router: return one(in(layer, table.router), {count, hidden});
      case Role::stream_prediction: return one(in(layer, table.prediction), {count * count, count});
      case Role::stream_correction: return one(in(layer, table.correction), {count, count});
      case Role::stream_scale:
        return shape_.streams.scaled ? one(text(numbered(layer), table.scale), {hidden}) : std::vector<TensorName>{};
      case Role::low_rank_in: return one(in(layer, table.low_rank_in), {rank, hidden});
      case Role::low_rank_out: return one(in(layer, table.low_rank_out), {hidden, rank});
      default: return one(in(layer, table.low_rank_norm), {hidden});
    }
  }

  TensorName matrix(int layer, std::string_view module, std::int64_t out, std::int64_t inputs) const {
    if (table_.transposed) return {in(layer, module), {inputs, out}, true};
    return {in(layer, module), {out, inputs}};
  }

  ModelConfig shape_;
  TensorTable table_;
  NamePrefixes prefixes_;
};

}}}
