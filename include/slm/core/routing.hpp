// How the router of a mixture of experts weighs them. A config selects it; backends compute it.
#pragma once

#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// How the router's logits become scores.
enum class RouterScores {
  softmax,
  sigmoid,
  masked,  // two experts, one after the other: each by a softmax over those whose logit is close to the largest
};

constexpr std::string_view name_of(RouterScores scores) {
  switch (scores) {
    case RouterScores::softmax: return "softmax";
    case RouterScores::sigmoid: return "sigmoid";
    case RouterScores::masked: return "masked";
  }
  return "?";
}

/// Settings of a router besides its shape. A weight is the expert's score, divided by the sum of the chosen ones'
/// scores if `normalizes`, times `scale`.
struct RouterSettings {
  bool normalizes = false;
  float added_to_sum = 0;
  float least_sum = 0;
  float scale = 1;
  // If there are groups of adjacent experts, only those of `kept_groups` groups can be chosen: those with the largest
  // sum of the two best scores of a group, or with the best score.
  int groups = 0;
  int kept_groups = 0;
  bool by_best = false;
  // If the limit is not 0, an expert's inner activation is g * sigmoid(alpha * g) * (u + 1), where g is the gate, at
  // most the limit, and u is up, clamped to [-limit, limit].
  float gate_limit = 0;
  float gate_alpha = 1;
  float closeness = 0;  // of masked scores: the largest part of a logit by which it differs from the largest one

  bool operator==(const RouterSettings&) const = default;
};

}}
