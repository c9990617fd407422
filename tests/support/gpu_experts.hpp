// Mixtures of experts of backend::Gpu against Reference. The same bodies run on emulated and real devices.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "slm/backend/mixture.hpp"
#include "support/gpu_layer.hpp"

namespace slm::testing {

struct MixtureCase {
  std::string name;
  int experts = 8, chosen = 2, hidden = 32, ffn = 48, shared_ffn = 0;
  bool shared_gate = false, gated = true, biases = false, choice_bias = false, factors = false;
  RouterScores scores = RouterScores::softmax;
  RouterSettings settings = {};
  bool ties = false;       // the router's logits are the inputs, few different numbers
  bool own_norms = false;  // of the router's input and of the result
};

inline const std::vector<MixtureCase> mixture_cases{
    {.name = "softmax", .settings = {.normalizes = true}},
    {.name = "odd sizes", .experts = 5, .chosen = 3, .hidden = 37, .ffn = 21, .settings = {.scale = 2.5f}},
    {.name = "ties", .experts = 40, .chosen = 6, .hidden = 40, .ffn = 16, .ties = true},
    {.name = "all experts", .experts = 4, .chosen = 4, .ffn = 20, .factors = true},
    {.name = "no gate", .experts = 6, .ffn = 24, .gated = false},
    {.name = "shared", .experts = 6, .chosen = 2, .ffn = 20, .shared_ffn = 36, .shared_gate = true},
    {.name = "shared of the same shape", .experts = 6, .chosen = 1, .ffn = 32, .shared_ffn = 32},
    {.name = "limits and biases",
     .biases = true,
     .settings = {.normalizes = true, .gate_limit = 0.5f, .gate_alpha = 1.7f}},
    {.name = "sigmoid",
     .experts = 16,
     .chosen = 4,
     .choice_bias = true,
     .scores = RouterScores::sigmoid,
     .settings = {.normalizes = true, .added_to_sum = 1e-6f}},
    {.name = "groups",
     .experts = 24,
     .chosen = 5,
     .hidden = 24,
     .choice_bias = true,
     .scores = RouterScores::sigmoid,
     .settings = {.normalizes = true, .scale = 2, .groups = 6, .kept_groups = 2},
     .ties = true},
    {.name = "groups by the best",
     .experts = 24,
     .chosen = 5,
     .hidden = 24,
     .settings = {.groups = 6, .kept_groups = 2, .by_best = true},
     .ties = true},
    {.name = "norms", .experts = 6, .chosen = 2, .hidden = 37, .ffn = 24, .own_norms = true},
    {.name = "masked", .experts = 12, .scores = RouterScores::masked, .settings = {.closeness = 0.2f}},
    {.name = "many", .experts = 300, .chosen = 9, .hidden = 32, .ffn = 16, .settings = {.normalizes = true}}};

/// The random weights of a case.
template <class Format>
struct RandomExperts {
  MixtureCase of;
  RandomTensor<Fp32> router, shared_gate;
  std::deque<RandomTensor<Format>> gate, up, down;
  std::vector<float> norm, router_norm, output_norm, router_bias, choice_bias, factors, up_bias, down_bias;

  explicit RandomExperts(const MixtureCase& shape)
      : of(shape), router(of.experts, of.hidden, 1), shared_gate(1, of.hidden, 2) {
    Random random(5);
    if (of.ties) {
      auto* const numbers = reinterpret_cast<float*>(const_cast<std::byte*>(router.tensor.bytes));
      for (int i = 0; i < of.experts * of.hidden; ++i) numbers[i] = i / of.hidden == i % of.hidden ? 1 : 0;
    }
    const int all = of.experts + (of.shared_ffn != 0 ? 1 : 0);
    for (int e = 0; e < all; ++e) {
      const int ffn = e < of.experts ? of.ffn : of.shared_ffn;
      gate.emplace_back(ffn, of.hidden, 10 + 3 * e);
      up.emplace_back(ffn, of.hidden, 11 + 3 * e);
      down.emplace_back(of.hidden, ffn, 12 + 3 * e);
    }
    const auto some = [&](int count) { return random.vector(static_cast<std::size_t>(count)); };
    norm = some(of.hidden);
    router_bias = some(of.experts);
    factors = some(of.experts);
    up_bias = some(2 * of.ffn * all);
    down_bias = some(of.hidden * all);
    router_norm = some(of.hidden);
    output_norm = some(of.hidden);
    for (const float bias : some(of.experts)) choice_bias.push_back(of.ties ? std::round(bias * 4) / 4 : bias);
  }

  std::vector<float> inputs(int rows) const {
    std::vector<float> x = Random(7).vector(static_cast<std::size_t>(rows * of.hidden));
    for (float& v : x) v = of.ties ? std::round(v * 2) / 2 : v;
    return x;
  }
};

/// The weights of a case on a backend.
template <class B, class Format>
class MixtureOn {
 public:
  using Matrix = typename B::template Matrix<Format>;
  using Router = typename B::template Matrix<Fp32>;

  MixtureOn(B backend, const RandomExperts<Format>& source) : device(backend), of_(source.of) {
    router_ = device.template pack<Fp32>(std::vector<Tensor>{source.router.tensor});
    shared_gate_ = device.template pack<Fp32>(std::vector<Tensor>{source.shared_gate.tensor});
    for (std::size_t e = 0; e < source.gate.size(); ++e) {
      std::vector<Tensor> up{source.up[e].tensor};
      if (of_.gated) up.insert(up.begin(), source.gate[e].tensor);
      Expert<Matrix> expert{.gate_up = device.template pack<Format>(up),
                            .down = device.template pack<Format>(std::vector<Tensor>{source.down[e].tensor})};
      if (of_.biases) {
        expert.gate_up_bias = held(source.up_bias) + 2 * e * static_cast<std::size_t>(of_.ffn);
        expert.down_bias = held(source.down_bias) + e * static_cast<std::size_t>(of_.hidden);
      }
      experts_.push_back(std::move(expert));
    }
    if constexpr (requires { device.template tabulate<Format>(experts_); })
      table_ = device.template tabulate<Format>(experts_);
    norm_ = held(source.norm);
    mixture_.emplace(
        Mixture<Matrix, Router>{.router = router_,
                                .router_bias = of_.biases ? held(source.router_bias) : nullptr,
                                .shared_gate = of_.shared_gate ? &shared_gate_ : nullptr,
                                .routing = {.experts = of_.experts,
                                            .chosen = of_.chosen,
                                            .scores = of_.scores,
                                            .settings = of_.settings,
                                            .choice_bias = of_.choice_bias ? held(source.choice_bias) : nullptr,
                                            .factors = of_.factors ? held(source.factors) : nullptr},
                                .experts = experts_,
                                .table = &table_,
                                .activation = of_.gated ? ActivationKind::silu : ActivationKind::relu_squared,
                                .gated = of_.gated});
    if (!of_.own_norms) return;
    mixture_->router_norm = Norm{.weight = held(source.router_norm), .epsilon = 1e-5f};
    mixture_->output_norm = {.weight = held(source.output_norm), .epsilon = 1e-5f};
  }

  /// x [rows, hidden] plus the mixture.
  std::vector<float> add(const std::vector<float>& x) {
    const int rows = static_cast<int>(x.size()) / of_.hidden;
    const Norm norm = of_.ties ? Norm{.kind = NormKind::none} : Norm{.weight = norm_, .epsilon = 1e-5f};
    const TestPlan plan = plan_of(rows);
    auto step = device.begin(plan);
    if constexpr (B::own_memory) {
      // Padding rows are not a number, as in a step.
      std::vector<float> filled(static_cast<std::size_t>(step.rows() * of_.hidden), std::nanf(""));
      std::copy(x.begin(), x.end(), filled.begin());
      const auto values = step.scratch(0, of_.hidden);
      auto stream = device.runtime().make_stream();
      device.runtime().copy_in(values.data, filled.data(), filled.size() * sizeof(float), stream);
      device.runtime().synchronize(stream);
      step.add_mixture(values, norm, *mixture_, values, 0.5f);
      std::vector<float> found(x.size());
      step.read({values.data, rows, of_.hidden}, view_of(found, rows));
      return found;
    } else {
      std::vector<float> found = x;
      step.add_mixture(view_of(found, rows), norm, *mixture_, view_of(found, rows), 0.5f);
      return found;
    }
  }

  B device;

 private:
  const float* held(const std::vector<float>& values) {
    buffers_.push_back(device.upload(values.data(), values.size()));
    return buffers_.back().data();
  }

  MixtureCase of_;
  Router router_, shared_gate_;
  std::vector<Expert<Matrix>> experts_;
  ExpertTableOf<Matrix> table_;
  std::deque<typename B::template Buffer<float>> buffers_;
  const float* norm_ = nullptr;
  std::optional<Mixture<Matrix, Router>> mixture_;
};

/// The sums of Reference, and the same bits for a row alone and beside others, one of which is not a number.
template <class Device, class Format>
void check_experts(const MixtureCase& of, Device device) {
  CAPTURE(of.name);
  const RandomExperts<Format> weights(of);
  MixtureOn<backend::Reference, Format> plain({}, weights);
  MixtureOn<Device, Format> tested(device, weights);
  const auto hidden = static_cast<std::size_t>(of.hidden);
  for (const int rows : {1, 9, 40}) {
    CAPTURE(rows);
    const std::vector<float> x = weights.inputs(rows), found = tested.add(x), expected = plain.add(x);
    CHECK(worst(found, expected) < 4 * product_tolerance<Format>());
    std::vector<float> beside = x;
    if (rows > 1) std::fill_n(beside.begin() + static_cast<std::ptrdiff_t>(hidden), hidden, std::nanf(""));
    const std::vector<float> others = tested.add(beside);
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); r += 4) {
      const std::vector<float> one(x.begin() + static_cast<std::ptrdiff_t>(r * hidden),
                                   x.begin() + static_cast<std::ptrdiff_t>((r + 1) * hidden));
      const std::vector<float> alone = tested.add(one);
      CHECK(std::memcmp(alone.data(), &found[r * hidden], hidden * sizeof(float)) == 0);
      CHECK(std::memcmp(alone.data(), &others[r * hidden], hidden * sizeof(float)) == 0);
    }
  }
}

}  // namespace slm::testing
