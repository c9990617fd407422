// Folds: pairs of places in a block between which scales can be moved without changing its function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "slm/config/model_config.hpp"

namespace slm { inline namespace v0_1 { namespace quantize {

/// The tensor divided by the scales -> the linear layers whose columns are multiplied. These are all readers of the
/// divided output.
enum class Fold {
  norm_to_qkv,         // attention norm -> q, k, v
  norm_to_qkv_and_up,  // the norm of a parallel block -> q, k, v and the first matrix of the MLP
  value_to_out,        // rows of v -> output projection
  norm_to_up,          // MLP norm -> gate and up
  up_to_down,          // rows of up -> down, if the operations between are homogeneous
  activation_to_down,  // a divisor of the activation, stored in the checkpoint -> down
};

constexpr std::string_view name_of(Fold fold) {
  switch (fold) {
    case Fold::norm_to_qkv: return "norm -> qkv";
    case Fold::norm_to_qkv_and_up: return "norm -> qkv, up";
    case Fold::value_to_out: return "v -> out";
    case Fold::norm_to_up: return "norm -> up";
    case Fold::up_to_down: return "up -> down";
    case Fold::activation_to_down: return "activation -> down";
  }
  return "?";
}

/// The folds of an architecture, from its traits. divisors: whether the checkpoint format stores divisors of the
/// activation, as AutoAWQ does for MPT.
inline std::vector<Fold> folds_of(const ModelConfig& shape, const ModelSettings& settings, bool divisors) {
  std::vector<Fold> folds;
  const bool scalable_norm = shape.norm_affine != NormAffine::none;
  const bool own_norms = norms_inputs(shape.order) && shape.order != BlockOrder::parallel;
  if (scalable_norm && own_norms) folds.push_back(Fold::norm_to_qkv);
  if (scalable_norm && shape.order == BlockOrder::parallel) folds.push_back(Fold::norm_to_qkv_and_up);
  if (settings.clip_qkv == 0) folds.push_back(Fold::value_to_out);  // a clip is not homogeneous
  if (scalable_norm && own_norms) folds.push_back(Fold::norm_to_up);
  const bool passes_factors = shape.gated || shape.activation == ActivationKind::relu;
  if (passes_factors) {
    folds.push_back(Fold::up_to_down);
  } else if (divisors) {
    folds.push_back(Fold::activation_to_down);
  }
  return folds;
}

}}}
