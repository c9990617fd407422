// ExpertWeights: the weights of a layer's mixture of experts, in the backend's layout.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "slm/backend/mixture.hpp"
#include "slm/config/model_config.hpp"
#include "slm/formats/format.hpp"

namespace slm { inline namespace v0_1 {

template <WeightFormat Format, Backend B>
struct ExpertWeights {
  using Matrix = typename B::template Matrix<Format>;
  using Router = typename B::template Matrix<Fp32>;
  using Vector = typename B::template Buffer<float>;

  Router router;                        // [experts, hidden]
  Router shared_gate;                   // [1, hidden], or empty
  std::vector<Expert<Matrix>> experts;  // the last one is the shared expert, if there is one
  ExpertTableOf<Matrix> table;
  Vector router_bias, choice_bias;  // [experts], or empty
  Vector gate_up_bias, down_bias;   // of the router's experts, one after another, or empty
  Vector shared_up_bias, shared_down_bias;
  // Of experts beside an MLP, else empty:
  Vector router_norm, factors;            // [hidden] and [experts]
  Vector norm, output_norm, beside_norm;  // [hidden]: of the experts' input and result, and of the MLP's output

  /// An RMS norm with these weights.
  static Norm norm_by(const Vector& weight, float epsilon) { return {.weight = weight.data(), .epsilon = epsilon}; }

  /// Bytes that a step of one row reads.
  std::int64_t active_bytes(const MixtureConfig& shape) const {
    std::int64_t chosen = 0, others = router.bytes() + shared_gate.bytes();
    for (std::size_t e = 0; e < experts.size(); ++e)
      (static_cast<int>(e) < shape.experts ? chosen : others) += experts[e].bytes();
    return others + chosen / shape.experts * shape.chosen;
  }

  /// epsilon: of the norms.
  Mixture<Matrix, Router> mixture(const MixtureConfig& shape, const RouterSettings& settings, Activation activation,
                                  bool gated, float epsilon) const {
    const auto data = [](const Vector& vector) { return vector.size() == 0 ? nullptr : vector.data(); };
    return {.router = router,
            .router_bias = data(router_bias),
            .shared_gate = shape.shared_gate ? &shared_gate : nullptr,
            .routing = {.experts = shape.experts,
                        .chosen = shape.chosen,
                        .scores = shape.scores,
                        .settings = settings,
                        .choice_bias = data(choice_bias),
                        .factors = data(factors)},
            .experts = experts,
            .table = &table,
            .activation = activation,
            .gated = gated,
            .router_norm = shape.beside_mlp ? std::optional(norm_by(router_norm, epsilon)) : std::nullopt,
            .output_norm = shape.beside_mlp ? norm_by(output_norm, epsilon) : Norm{.kind = NormKind::none}};
  }
};

}}
