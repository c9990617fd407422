// Mixture: a mixture of experts as an operand, and the choice of a row's experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/backend/concept.hpp"
#include "slm/core/rounded_math.hpp"
#include "slm/core/routing.hpp"

namespace slm { inline namespace v0_1 {

/// An expert: down . (activation(gate) * up), with the halves gate and up of x . gate_up^T; or down . activation(up),
/// where gate_up has the rows of up only.
template <class Matrix>
struct Expert {
  Matrix gate_up;                       // [2 * ffn, hidden] or [ffn, hidden]
  Matrix down;                          // [hidden, ffn]
  const float* gate_up_bias = nullptr;  // [2 * ffn]; null: none
  const float* down_bias = nullptr;     // [hidden]; null: none

  std::int64_t ffn() const { return down.in; }
  std::int64_t bytes() const { return gate_up.bytes() + down.bytes(); }
};

/// How a router chooses.
struct Routing {
  int experts = 0;
  int chosen = 0;  // of a row
  RouterScores scores = RouterScores::softmax;
  RouterSettings settings = {};
  const float* choice_bias = nullptr;  // [experts]; null: none
  const float* factors = nullptr;      // [experts]: of the experts' weights; null: none
};

/// Data that a backend keeps of the experts of a layer beside their matrices: Matrix::ExpertTable, made by
/// B::tabulate(), or none.
struct NoExpertTable {};

namespace detail {
template <class Matrix>
struct ExpertTableOf {
  using type = NoExpertTable;
};
template <class Matrix>
requires requires { typename Matrix::ExpertTable; }
struct ExpertTableOf<Matrix> {
  using type = typename Matrix::ExpertTable;
};
}  // namespace detail

template <class Matrix>
using ExpertTableOf = typename detail::ExpertTableOf<Matrix>::type;

/// The sizes of a mixture's activations.
struct MixtureWidths {
  int experts = 0;  // of the router
  int chosen = 0;
  bool shared = false;
  int hidden = 0;
  int inner = 0;  // rows of the widest gate_up

  int of_row() const { return chosen + (shared ? 1 : 0); }
};

/// The result of a row is the sum over its experts, by ascending index, of weight * expert(x). The shared expert, which
/// all rows take, is the last of the experts, after those of the router.
template <class Matrix, class Router>
struct Mixture {
  const Router& router;                 // [experts, hidden] in fp32
  const float* router_bias = nullptr;   // [experts]; null: none
  const Router* shared_gate = nullptr;  // [1, hidden] in fp32: the shared expert's weight is its sigmoid; null: 1
  Routing routing = {};
  std::span<const Expert<Matrix>> experts = {};
  const ExpertTableOf<Matrix>* table = nullptr;
  Activation activation = {};
  bool gated = true;
  std::optional<Norm> router_norm = {};         // of the router's input; none: that of the experts' inputs
  Norm output_norm = {.kind = NormKind::none};  // of the result

  bool has_shared() const { return static_cast<int>(experts.size()) > routing.experts; }
  int experts_of_row() const { return routing.chosen + (has_shared() ? 1 : 0); }
  MixtureWidths widths() const {
    return {.experts = routing.experts,
            .chosen = routing.chosen,
            .shared = has_shared(),
            .hidden = static_cast<int>(experts.front().down.out),
            .inner = static_cast<int>(std::max(experts.front().gate_up.out, experts.back().gate_up.out))};
  }
};

/// Changes gate and up [count] so that silu(gate) * up is the limited inner activation of RouterSettings.
inline void limit_gates(const RouterSettings& settings, float* gate, float* up, std::int64_t count) {
  const float limit = settings.gate_limit, alpha = settings.gate_alpha;
  for (std::int64_t i = 0; limit != 0 && i < count; ++i) {
    gate[i] = alpha * std::min(gate[i], limit);
    up[i] = (std::clamp(up[i], -limit, limit) + 1) / alpha;
  }
}

/// One expert of a row.
struct Choice {
  int expert = 0;
  float weight = 0;
};

namespace detail {

/// The groups whose experts may be chosen, as flags. marks: of all experts.
inline std::vector<bool> kept_groups(const Routing& routing, std::span<const float> marks) {
  const auto groups = static_cast<std::size_t>(routing.settings.groups), size = marks.size() / groups;
  std::vector<std::pair<float, std::size_t>> sums;
  for (std::size_t g = 0; g < groups; ++g) {
    std::vector<float> best(marks.begin() + static_cast<std::ptrdiff_t>(g * size),
                            marks.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    const std::ptrdiff_t counted = routing.settings.by_best ? 1 : 2;
    std::partial_sort(best.begin(), best.begin() + counted, best.end(), std::greater<>{});
    sums.emplace_back(-(counted == 1 ? best[0] : best[0] + best[1]), g);
  }
  std::sort(sums.begin(), sums.end());
  std::vector<bool> kept(groups);
  for (int i = 0; i < routing.settings.kept_groups; ++i) kept[sums[static_cast<std::size_t>(i)].second] = true;
  return kept;
}

/// Chooses two experts, one after the other: the one with the largest logit of those left, weighted by its share of a
/// softmax over those left that are close to it.
inline void choose_masked(const Routing& routing, std::span<const float> logits, std::span<Choice> choices) {
  std::vector<bool> left(logits.size(), true);
  for (Choice& choice : choices) {
    float best = -std::numeric_limits<float>::infinity();
    choice.expert = -1;
    for (std::size_t e = 0; e < logits.size(); ++e) {
      if (left[e] && (choice.expert < 0 || logits[e] > best)) best = logits[e], choice.expert = static_cast<int>(e);
    }
    float sum = 0;
    for (std::size_t e = 0; e < logits.size(); ++e) {
      const bool far = (best - logits[e]) / std::max(std::abs(logits[e]), best) > routing.settings.closeness;
      if (left[e] && !far) sum += slm::detail::rounded_exp(logits[e] - best);
    }
    choice.weight = 1 / sum;
    left[static_cast<std::size_t>(choice.expert)] = false;
  }
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
}

}  // namespace detail

/// Chooses the experts of a row from the router's logits, which become scores. choices [chosen]: by ascending index. Of
/// equal scores the one with the lower index is chosen first.
inline void choose_experts(const Routing& routing, std::span<float> logits, std::span<Choice> choices) {
  if (routing.scores == RouterScores::masked) return detail::choose_masked(routing, logits, choices);
  if (routing.scores == RouterScores::softmax) {
    const float largest = *std::max_element(logits.begin(), logits.end());
    float sum = 0;
    for (float& logit : logits) sum += logit = slm::detail::rounded_exp(logit - largest);
    for (float& logit : logits) logit /= sum;
  } else {
    for (float& logit : logits) logit = slm::detail::rounded_sigmoid(logit);
  }
  // A better expert moves the worse ones back; the last one drops out. Scores that are not numbers are never better.
  const auto mark_of = [&](int e) {
    return logits[static_cast<std::size_t>(e)] + (routing.choice_bias != nullptr ? routing.choice_bias[e] : 0);
  };
  std::vector<bool> kept;
  if (routing.settings.groups > 1) {
    std::vector<float> marks;
    for (int e = 0; e < static_cast<int>(logits.size()); ++e) marks.push_back(mark_of(e));
    kept = detail::kept_groups(routing, marks);
  }
  std::size_t held = 0;
  for (int e = 0; e < static_cast<int>(logits.size()); ++e) {
    if (!kept.empty() && !kept[static_cast<std::size_t>(e) * kept.size() / logits.size()]) continue;
    const float mark = mark_of(e);
    std::size_t place = held;
    while (place > 0 && mark > choices[place - 1].weight) --place;
    if (place == choices.size()) continue;
    if (held < choices.size()) ++held;
    std::move_backward(choices.begin() + static_cast<std::ptrdiff_t>(place),
                       choices.begin() + static_cast<std::ptrdiff_t>(held) - 1,
                       choices.begin() + static_cast<std::ptrdiff_t>(held));
    choices[place] = {e, mark};
  }
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) { return a.expert < b.expert; });
  float sum = 0;
  for (Choice& choice : choices) sum += choice.weight = logits[static_cast<std::size_t>(choice.expert)];
  sum = std::max(sum + routing.settings.added_to_sum, routing.settings.least_sum);
  for (Choice& choice : choices) {
    if (routing.settings.normalizes) choice.weight /= sum;
    choice.weight *= routing.settings.scale;
    if (routing.factors != nullptr) choice.weight *= routing.factors[choice.expert];
  }
}

/// A step that computes mixtures of experts.
///   add_mixture        to [rows, hidden]      to += factor * mixture(norm(x)); to may be x
template <class B>
concept MixesExperts = Backend<B> &&
    requires(B device, const StepPlan& plan,
             Mixture<typename B::template Matrix<Fp32>, typename B::template Matrix<Fp32>> mixture,
             View<typename B::Activation, 2> rows, Norm norm, float factor) {
  device.begin(plan).add_mixture(rows, norm, mixture, rows, factor);
};

}}
