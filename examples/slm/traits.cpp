// The traits of a model in words, for slm info.
#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli.hpp"

namespace cli {

namespace {

std::string norms_of(const slm::ModelConfig& config, bool less_one) {
  std::string words = config.norm == slm::NormKind::rms ? "RMS norms" : "LayerNorms";
  if (config.norm_affine == slm::NormAffine::none) words += " without weights";
  if (config.norm_affine == slm::NormAffine::weight_and_bias) words += " with biases";
  return less_one ? words + ", stored as weight - 1" : words;
}

std::string order_of(slm::BlockOrder order) {
  switch (order) {
    case slm::BlockOrder::pre_norm: return "norms of inputs";
    case slm::BlockOrder::parallel: return "attention and MLP in parallel, with one norm";
    case slm::BlockOrder::parallel_norms: return "attention and MLP in parallel, with two norms";
    case slm::BlockOrder::post_norm: return "norms of the sums";
    case slm::BlockOrder::output_norm: return "norms of outputs";
    case slm::BlockOrder::sandwich: return "norms of inputs and outputs";
  }
  return "?";
}

std::string qk_norm_of(slm::QkNorm norm) {
  switch (norm) {
    case slm::QkNorm::none: return {};
    case slm::QkNorm::per_head: return "a norm of every query and key head";
    case slm::QkNorm::whole: return "norms of all query heads and of all key heads";
    case slm::QkNorm::own_weights: return "a norm of every query and key head, with weights of each";
    case slm::QkNorm::rotated: return "a norm of every query and key head after the rotation";
  }
  return "?";
}

std::string text_of(float value) { return OrderedJson(exact_digits(value)).dump(); }

std::string rotation_of(const slm::ModelConfig& config, const slm::ModelSettings& settings) {
  std::string words = slm::text("rotary, base ", text_of(settings.rope_theta));
  if (config.rotary_dim() != config.head_dim) {
    words += slm::text(", ", config.rotary_dim(), " of ", config.head_dim, " dimensions");
  }
  if (config.rotates_pairs) words += ", neighbouring dimensions";
  const slm::RopeScaling& scaling = settings.rope_scaling;
  using Kind = slm::RopeScaling::Kind;
  if (scaling.kind != Kind::none) words += slm::text(", ", slm::name_of(scaling.kind), " scaling");
  if (scaling.kind == Kind::linear || scaling.kind == Kind::llama3 || scaling.kind == Kind::yarn) {
    words += slm::text(" by ", text_of(scaling.factor));
  }
  return words;
}

std::string mixer_of(slm::MixerKind kind) {
  switch (kind) {
    case slm::MixerKind::none: return "no recurrence";
    case slm::MixerKind::short_conv: return "a short convolution";
    case slm::MixerKind::delta_net: return "a gated delta net";
    case slm::MixerKind::mamba2: return "Mamba-2";
  }
  return "?";
}

std::string positions_of(const slm::ModelConfig& config, const slm::ModelSettings& settings) {
  switch (config.positions) {
    case slm::Positions::rope: return rotation_of(config, settings);
    case slm::Positions::alibi: return "ALiBi";
    case slm::Positions::learned: return "learned positions";
    case slm::Positions::none: return "no positions";
  }
  return "?";
}

}  // namespace

double exact_digits(float value) {
  std::ostringstream digits;
  digits << std::setprecision(std::numeric_limits<float>::digits10) << value;
  return std::stod(digits.str());
}

std::vector<std::string> traits_of(const slm::Checkpoint& checkpoint) {
  const slm::ModelConfig& config = checkpoint.config();
  const slm::ModelSettings& settings = checkpoint.settings();
  const slm::TensorNames& names = checkpoint.names();
  std::vector<std::string> traits{norms_of(config, names.norms_less_one()), order_of(config.order)};
  const auto add = [&](bool has, std::string trait) {
    if (has) traits.push_back(std::move(trait));
  };
  const auto number = [&](const char* what, float value, float off) {
    add(value != off, slm::text(what, " ", text_of(value)));
  };
  const auto layers = [&](std::ptrdiff_t count) { return slm::text(" in ", count, " of ", config.layers, " layers"); };

  add(config.inner_norms, "norms before the second matrices of attention and MLP");
  add(config.qk_norm != slm::QkNorm::none, qk_norm_of(config.qk_norm));
  traits.push_back(slm::text(slm::name_of(config.activation), config.gated ? " with a gate" : " without a gate"));
  if (const slm::MixtureConfig& mixture = config.mixture; mixture.experts != 0) {
    std::ptrdiff_t sparse = 0;
    for (int layer = 0; layer < config.layers; ++layer) sparse += names.has_experts(layer) ? 1 : 0;
    traits.push_back(slm::text(mixture.chosen, " of ", mixture.experts, " experts", layers(sparse)));
    add(mixture.shared_ffn != 0, "a shared expert");
    add(mixture.beside_mlp, "experts beside an MLP");
    add(mixture.scores == slm::RouterScores::sigmoid, "sigmoid router");
    add(settings.router.groups > 1,
        slm::text("experts of ", settings.router.kept_groups, " of ", settings.router.groups, " groups"));
    number("factor of experts' weights", settings.router.scale, 1);
  }
  const auto of_layers = [&](const auto& belongs) {
    std::ptrdiff_t count = 0;
    for (int layer = 0; layer < config.layers; ++layer) count += belongs(layer) ? 1 : 0;
    return layers(count);
  };
  if (config.mixer.kind != slm::MixerKind::none) {
    traits.push_back(mixer_of(config.mixer.kind) + of_layers([&](int layer) { return config.has_mixer(layer); }));
    traits.push_back("attention" + of_layers([&](int layer) { return config.has_attention(layer); }));
  }
  add(config.attention_gate, "a gate of attention's outputs");
  add(config.is_latent(), slm::text("keys and values of all heads from a latent, ", config.latent.rank, " wide"));
  add(config.latent.query_rank != 0, slm::text("queries from ", config.latent.query_rank, " numbers"));
  const slm::LayerShapes& shapes = config.shapes;
  const auto with = [&](const char* what, const slm::LayerSet& set) {
    if (!set.empty()) traits.push_back(what + of_layers([&](int layer) { return set.has(layer); }));
  };
  with(slm::text("heads of ", shapes.head_dim).c_str(), shapes.wide_heads);
  with("keys as values", shapes.keys_as_values);
  with("keys and values of an earlier layer", shapes.borrowing);
  with(slm::text("MLPs of ", shapes.ffn).c_str(), shapes.wide_mlps);
  add(shapes.inputs != 0, slm::text("an own input of each layer, ", shapes.inputs, " wide"));
  add(shapes.value_norm, "a norm of every value head");
  add(config.has_streams(), slm::text(config.streams.count, " residual streams"));
  add(config.streams.low_rank != 0, slm::text("a branch of rank ", config.streams.low_rank, " beside attention"));
  const auto drops = [&](int layer) { return settings.gate_cutoff(layer) > -std::numeric_limits<float>::infinity(); };
  if (settings.drops_gates()) traits.push_back("MLPs that drop gates" + of_layers(drops));
  traits.push_back(positions_of(config, settings));
  const std::vector<bool>& unrotated = settings.unrotated_layers;
  const auto still = std::count(unrotated.begin(), unrotated.end(), true);
  add(still > 0, "no rotation" + layers(still));
  if (settings.window > 0) {
    const std::vector<bool>& windowed = settings.windowed_layers;
    const auto count = windowed.empty() ? config.layers : std::count(windowed.begin(), windowed.end(), true);
    add(count > 0, slm::text("window of ", settings.window, layers(count)));
    number("rotary base of layers with the window", settings.windowed_rope_theta, 0);
  }
  add(config.attention_bias == slm::AttentionBias::qkv, "biases of q, k, v");
  add(config.attention_bias == slm::AttentionBias::all, "biases of attention");
  add(config.mlp_bias, "biases of the MLP");
  add(config.head_bias, "bias of the head");
  add(names.groups_qkv(), "one matrix with the queries, key and value of each group");
  number("factor of the embedding", settings.embedding_scale, 1);
  number("factor of attention's and MLP's outputs", settings.residual_scale, 1);
  add(settings.factors != slm::LayerFactors{}, "factors of single inputs and outputs of layers");
  number("factor of scores", settings.attention_scale, 0);
  number("factor of logits", settings.logit_scale, 1);
  number("soft cap of scores", settings.attention_cap, 0);
  number("soft cap of logits", settings.logit_cap, 0);
  number("clip of q, k, v", settings.clip_qkv, 0);
  number("growth of queries with the position", settings.temperature, 0);
  add(settings.tied_embeddings, "the head is the embedding");
  return traits;
}

}  // namespace cli
