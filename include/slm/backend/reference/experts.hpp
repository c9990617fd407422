// The mixtures of experts of backend::Reference, row by row.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "slm/backend/mixture.hpp"
#include "slm/backend/reference/row_functions.hpp"

namespace slm { inline namespace v0_1 { namespace backend::reference {

/// to [hidden] += factor * mixture(row), where row is norm(x), and routed the router's input. product(weight, bias,
/// row) returns weight . row + bias.
template <class Matrix, class Router, class Product>
void add_experts(const Mixture<Matrix, Router>& mixture, const std::vector<float>& row,
                 const std::vector<float>& routed, float factor, float* to, Product product) {
  std::vector<Choice> choices(static_cast<std::size_t>(mixture.routing.chosen));
  std::vector<float> logits = product(mixture.router, mixture.router_bias, routed);
  choose_experts(mixture.routing, logits, choices);
  if (mixture.has_shared()) choices.push_back({mixture.routing.experts, 1});
  if (mixture.shared_gate != nullptr) {
    choices.back().weight = slm::detail::rounded_sigmoid(product(*mixture.shared_gate, nullptr, row)[0]);
  }
  std::vector<float> sum(row.size());
  for (const Choice& choice : choices) {
    const Expert<Matrix>& expert = mixture.experts[static_cast<std::size_t>(choice.expert)];
    std::vector<float> inner = product(expert.gate_up, expert.gate_up_bias, row);
    std::vector<float> gated(static_cast<std::size_t>(expert.ffn()));
    if (mixture.gated) limit_gates(mixture.routing.settings, inner.data(), inner.data() + gated.size(), expert.ffn());
    for (std::size_t i = 0; i < gated.size(); ++i)
      gated[i] = activate(mixture.activation, inner[i]) * (mixture.gated ? inner[gated.size() + i] : 1);
    const std::vector<float> result = product(expert.down, expert.down_bias, gated);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += choice.weight * result[i];
  }
  normalize_row(sum.data(), static_cast<std::int64_t>(sum.size()), mixture.output_norm, sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i) to[i] += factor * sum[i];
}

}}}
