// MixtureConfig: the shape of the mixtures of experts that replace the MLPs of a model.
#pragma once

#include <string_view>

#include "slm/core/routing.hpp"

namespace slm { inline namespace v0_1 {

/// A router chooses some experts for each row; the row's result is the weighted sum of their results. An expert is an
/// MLP, with a gate if ModelConfig::gated.
struct MixtureConfig {
  int experts = 0;           // 0: no mixture
  int chosen = 0;            // experts of a row
  int ffn = 0;               // inner width of an expert
  int shared_ffn = 0;        // inner width of an expert that every row takes in addition; 0: none
  bool shared_gate = false;  // that expert's result is multiplied by sigmoid(gate . x)
  RouterScores scores = RouterScores::softmax;
  bool router_bias = false;  // added to the logits
  bool choice_bias = false;  // added to the scores for the choice, not for the weights
  bool expert_bias = false;
  // The mixture is added to the layer's MLP instead of replacing it. Inputs and outputs of both have own norms, the
  // router's input has one with a scale, and each expert's weight has a factor.
  bool beside_mlp = false;

  constexpr bool operator==(const MixtureConfig&) const = default;
};

/// Returns the fault of a mixture in a model of this many layers, or an empty string.
constexpr std::string_view fault_of(const MixtureConfig& mixture, int layers) {
  if (mixture == MixtureConfig{}) return {};
  if (mixture.experts < 1 || mixture.experts > 1024) return "experts must be 1..1024";
  if (layers * mixture.experts > 1 << 17) return "a model must have at most 131072 experts in all layers";
  if (mixture.chosen < 1 || mixture.chosen > mixture.experts) return "the experts of a token must be 1..experts";
  if (mixture.ffn < 1 || mixture.ffn > 1 << 22) return "the width of an expert must be 1..4194304";
  if (mixture.shared_ffn < 0 || mixture.shared_ffn > 1 << 22) return "the width of a shared expert must be 0..4194304";
  if (mixture.shared_gate && mixture.shared_ffn == 0) return "a gate of a shared expert needs a shared expert";
  if (mixture.scores == RouterScores::masked && mixture.chosen != 2) return "masked scores choose two experts";
  if (mixture.beside_mlp && (mixture.shared_ffn != 0 || mixture.expert_bias || mixture.router_bias))
    return "experts beside an MLP have no shared expert and no biases";
  return {};
}

}}
