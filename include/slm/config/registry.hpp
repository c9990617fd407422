// Registry: a list of compile-time configs, and the lookup of a run-time shape in it.
#pragma once

#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 {

/// A config has a name and a ModelConfig value. Static configs are empty types with a constexpr value; Dynamic holds
/// its value at run time.
template <class C>
concept Config = requires(const C& config) {
  { C::name } -> std::convertible_to<std::string_view>;
  { config.value } -> std::convertible_to<const ModelConfig&>;
};

/// A config with a run-time shape, for checkpoints outside the registry.
struct Dynamic {
  static constexpr std::string_view name = "dynamic";
  ModelConfig value;
};

/// A config whose shape is a compile-time constant.
template <class C>
concept StaticConfig = Config<C> && std::is_empty_v<C>;

namespace detail {

/// The shape of one config is sound. Each config is evaluated alone, since clang limits the steps of one evaluation.
template <StaticConfig Model>
inline constexpr bool is_sound = fault_of(Model::value).empty();

}  // namespace detail

template <StaticConfig... Models>
struct Registry {
  static_assert((detail::is_sound<Models> && ...), "a registered config has an unsound shape");
};

/// Calls f(Model{}) for the first config with this shape. Returns false if there is none.
template <class... Models, class F>
bool visit(Registry<Models...>, const ModelConfig& shape, F&& f) {
  return ((Models::value == shape && (f(Models{}), true)) || ...);
}

namespace detail {

/// Calls f(name, member pointer) for each field: f("layers", &ModelConfig::layers) etc.
template <class F>
void for_each_member(F&& f) {
  f("layers", &ModelConfig::layers);
  f("hidden", &ModelConfig::hidden);
  f("ffn", &ModelConfig::ffn);
  f("heads", &ModelConfig::heads);
  f("kv_heads", &ModelConfig::kv_heads);
  f("head_dim", &ModelConfig::head_dim);
  f("vocab", &ModelConfig::vocab);
  f("norm", &ModelConfig::norm);
  f("norm_affine", &ModelConfig::norm_affine);
  f("activation", &ModelConfig::activation);
  f("gated", &ModelConfig::gated);
  f("positions", &ModelConfig::positions);
  f("rotary", &ModelConfig::rotary);
  f("rotates_pairs", &ModelConfig::rotates_pairs);
  f("order", &ModelConfig::order);
  f("qk_norm", &ModelConfig::qk_norm);
  f("attention_bias", &ModelConfig::attention_bias);
  f("mlp_bias", &ModelConfig::mlp_bias);
  f("head_bias", &ModelConfig::head_bias);
  f("inner_norms", &ModelConfig::inner_norms);
  f("sinks", &ModelConfig::sinks);
  f("final_norm", &ModelConfig::final_norm);
  f("embedding", &ModelConfig::embedding);
  f("mixture", &ModelConfig::mixture);
  f("mixer", &ModelConfig::mixer);
  f("mixer_layers", &ModelConfig::mixer_layers);
  f("no_attention", &ModelConfig::no_attention);
  f("no_mlp", &ModelConfig::no_mlp);
  f("attention_gate", &ModelConfig::attention_gate);
  f("shapes", &ModelConfig::shapes);
  f("latent", &ModelConfig::latent);
  f("streams", &ModelConfig::streams);
}

/// A value as C++ source without namespace: 12, true, NormKind::layer.
inline std::string source_of(int value) { return text(value); }
inline std::string source_of(bool value) { return value ? "true" : "false"; }
inline std::string source_of(NormKind value) { return text("NormKind::", name_of(value)); }
inline std::string source_of(NormAffine value) { return text("NormAffine::", name_of(value)); }
inline std::string source_of(ActivationKind value) { return text("ActivationKind::", name_of(value)); }
inline std::string source_of(Positions value) { return text("Positions::", name_of(value)); }
inline std::string source_of(BlockOrder value) { return text("BlockOrder::", name_of(value)); }
inline std::string source_of(QkNorm value) { return text("QkNorm::", name_of(value)); }
inline std::string source_of(AttentionBias value) { return text("AttentionBias::", name_of(value)); }
inline std::string source_of(const MixtureConfig& value) {
  const MixtureConfig none;
  std::string fields;
  const auto add = [&](const char* name, const auto& field, const auto& otherwise) {
    if (field != otherwise) fields += text(fields.empty() ? "" : ", ", ".", name, " = ", source_of(field));
  };
  add("experts", value.experts, none.experts);
  add("chosen", value.chosen, none.chosen);
  add("ffn", value.ffn, none.ffn);
  add("shared_ffn", value.shared_ffn, none.shared_ffn);
  add("shared_gate", value.shared_gate, none.shared_gate);
  if (value.scores != none.scores)
    fields += text(fields.empty() ? "" : ", ", ".scores = slm::RouterScores::", name_of(value.scores));
  add("router_bias", value.router_bias, none.router_bias);
  add("choice_bias", value.choice_bias, none.choice_bias);
  add("expert_bias", value.expert_bias, none.expert_bias);
  add("beside_mlp", value.beside_mlp, none.beside_mlp);
  return text("{", fields, "}");
}
inline std::string source_of(const LayerSet& layers) {
  std::string list;
  for (int layer = 0; layer < LayerSet::most_layers; ++layer) {
    if (layers.has(layer)) list += text(list.empty() ? "" : ", ", layer);
  }
  return text("{", list, "}");
}
inline std::string source_of(const LayerShapes& shapes) {
  return text("{.wide_heads = ", source_of(shapes.wide_heads), ", .kv_heads = ", shapes.kv_heads,
              ", .head_dim = ", shapes.head_dim, ", .keys_as_values = ", source_of(shapes.keys_as_values),
              ", .borrowing = ", source_of(shapes.borrowing), ", .wide_mlps = ", source_of(shapes.wide_mlps),
              ", .ffn = ", shapes.ffn, ", .inputs = ", shapes.inputs, ", .input_rows = ", shapes.input_rows,
              ", .value_norm = ", source_of(shapes.value_norm), ", .scaled = ", source_of(shapes.scaled), "}");
}
inline std::string source_of(const LatentAttention& latent) {
  return text("{.rank = ", latent.rank, ", .query_rank = ", latent.query_rank, ", .unrotated = ", latent.unrotated,
              ", .value = ", latent.value, "}");
}
inline std::string source_of(const ResidualStreams& streams) {
  return text("{.count = ", streams.count, ", .low_rank = ", streams.low_rank,
              ", .scaled = ", source_of(streams.scaled), "}");
}
inline std::string source_of(const Mixer& mixer) {
  return text("{.kind = slm::MixerKind::", name_of(mixer.kind), ", .taps = ", mixer.taps, ", .heads = ", mixer.heads,
              ", .head_dim = ", mixer.head_dim, ", .groups = ", mixer.groups, ", .state = ", mixer.state,
              ", .bias = ", mixer.bias, ", .conv_bias = ", mixer.conv_bias, ", .tiled = ", mixer.tiled,
              ", .norm = slm::MixerNorm::", name_of(mixer.norm), "}");
}

}  // namespace detail

/// Lists the differing fields: "layers 32 instead of 12, norm NormKind::layer instead of NormKind::rms".
inline std::string difference(const ModelConfig& found, const ModelConfig& known) {
  std::string list;
  detail::for_each_member([&](const char* name, auto member) {
    if (found.*member == known.*member) return;
    list += text(list.empty() ? "" : ", ", name, " ", detail::source_of(found.*member), " instead of ",
                 detail::source_of(known.*member));
  });
  return list;
}

/// The C++ source of a config struct. Fields with default values are omitted.
inline std::string source_of(const ModelConfig& shape, std::string_view name) {
  std::string fields;
  detail::for_each_member([&]<class Value>(const char* field, Value ModelConfig::*member) {
    if (shape.*member == ModelConfig{}.*member) return;
    const char* scope = std::is_enum_v<Value> ? "slm::" : "";
    fields += text(fields.empty() ? "" : ", ", ".", field, " = ", scope, detail::source_of(shape.*member));
  });
  return text("struct ", name, " { static constexpr std::string_view name = \"", name,
              "\"; static constexpr slm::ModelConfig value{", fields, "}; };");
}

/// The Error for a shape that is not in the registry.
template <class... Models>
Error not_registered(Registry<Models...>, const ModelConfig& shape, std::string_view where) {
  int fewest = std::numeric_limits<int>::max();
  std::string closest = "The registry is empty";
  [[maybe_unused]] const auto compare = [&](const ModelConfig& known, std::string_view name) {
    int differing = 0;
    detail::for_each_member([&](const char*, auto member) { differing += shape.*member != known.*member; });
    if (differing < fewest) {
      fewest = differing;
      closest = text("The closest one, ", name, ", differs: ", difference(shape, known));
    }
  };
  (compare(Models::value, Models::name), ...);
  return Error("config.not-registered", text("no registered config has the shape of ", where, ". ", closest),
               text("Add this to your registry, or allow the Dynamic fallback: ", source_of(shape, "MyModel")));
}

}}
