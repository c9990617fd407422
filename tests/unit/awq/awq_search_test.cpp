// The quantizer's arithmetic against worked examples computed elsewhere in double precision.
#include "slm/awq/awq_search.hpp"

#include <catch2/catch.hpp>
#include <limits>

using namespace slm;

namespace {

template <class Real>
struct Layer {
  static constexpr std::size_t in = 8, out = 4, group = 4, tokens = 4;
  std::vector<Real> weight, x, x_mean = std::vector<Real>(in), w_mean = std::vector<Real>(in);

  Layer() {
    for (std::size_t n = 0; n < out; ++n) {
      for (std::size_t k = 0; k < in; ++k) {
        weight.push_back(static_cast<Real>(std::sin(1.7 * double(n) + 2.3 * double(k) + 0.4) / 2));
      }
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t k = 0; k < in; ++k) {
        x.push_back(static_cast<Real>(std::cos(0.9 * double(t) + 1.1 * double(k)) * (k == 2 ? 8 : 1)));
        x_mean[k] += std::abs(x.back()) / Real(tokens);
      }
    }
    awq::add_relative_weights<Real>(weight, in, group, w_mean);
    for (Real& mean : w_mean) mean /= Real(out);
  }

  Real loss(awq::Candidate candidate, const GroupQuantizer& quantizer) const {
    const auto scales = awq::scales_of<Real>(candidate, x_mean, w_mean);
    std::vector<Real> rounded(in);
    Real sum = 0;
    for (std::size_t n = 0; n < out; ++n) {
      const std::span<const Real> row(weight.data() + n * in, in);
      awq::round_trip_scaled<Real>(quantizer, row, scales, group, rounded.data());
      for (std::size_t t = 0; t < tokens; ++t) {
        Real error = 0;
        for (std::size_t k = 0; k < in; ++k) error += x[t * in + k] * (rounded[k] - row[k]);
        sum += error * error;
      }
    }
    return sum / Real(tokens * out);
  }

  int best(bool duo, const GroupQuantizer& quantizer) const {
    int best = 0;
    for (int point = 1; point < awq::grid_points; ++point) {
      if (loss({duo, point}, quantizer) < loss({duo, best}, quantizer)) best = point;
    }
    return best;
  }
};

constexpr GroupQuantizer exact{.scale_type = ScaleType::exact};

}  // namespace

TEST_CASE("means and scales of the worked example") {
  const Layer<double> layer;
  const double x_mean[] = {.688221, .657917, 4.855585, .703972, .635699, .641772, .702095, .597563};
  const double w_mean[] = {.664842, .659025, .736189, .621446, .624298, .734514, .663225, .664538};
  const double plain[] = {.761947, .751723, 1.369237, .767137, .744015, .746140, .766523, .730334};
  const double duo[] = {.767842, .760164, 1.423899, .808656, .777974, .702297, .774450, .731022};
  const auto plain_scales = awq::scales_of<double>({false, 6}, layer.x_mean, layer.w_mean);
  const auto duo_scales = awq::scales_of<double>({true, 7}, layer.x_mean, layer.w_mean);
  for (std::size_t k = 0; k < layer.in; ++k) {
    CHECK(layer.x_mean[k] == Approx(x_mean[k]).epsilon(2e-6));
    CHECK(layer.w_mean[k] == Approx(w_mean[k]).epsilon(2e-6));
    CHECK(plain_scales[k] == Approx(plain[k]).epsilon(2e-6));
    CHECK(duo_scales[k] == Approx(duo[k]).epsilon(2e-6));
  }
}

TEST_CASE("losses of the worked example, and the best point in float too") {
  const Layer<double> layer;
  const double plain[] = {.0095177, .0082859, .0113197, .0055154, .0105584, .0074846, .0003628,
                          .0085290, .0050772, .0019432, .0088088, .0065556, .0022990, .0089165,
                          .0084060, .0062496, .0061907, .0102045, .0133319, .0067500};
  const double duo[] = {.0160022, .0103629, .0040178, .0172735, .0041288, .0099395, .0060604,
                        .0022049, .0107488, .0054055, .0027309, .0074591, .0100260, .0044767,
                        .0092969, .0049442, .0057576, .0073796, .0066403, .0067680};
  for (int point = 0; point < awq::grid_points; ++point) {
    CHECK(layer.loss({false, point}, exact) == Approx(plain[point]).margin(6e-8));
    CHECK(layer.loss({true, point}, exact) == Approx(duo[point]).margin(6e-8));
  }
  CHECK(layer.loss({false, 6}, exact) == Approx(3.62805e-4).epsilon(2e-6));
  CHECK(layer.loss({true, 7}, exact) == Approx(2.204915e-3).epsilon(1e-6));
  CHECK(Layer<float>{}.best(false, exact) == 6);
  CHECK(Layer<float>{}.best(true, exact) == 7);
}

TEST_CASE("the identity does not change rounding") {
  const Layer<double> layer;
  CHECK(awq::candidates().front().is_identity());
  for (const double scale : awq::scales_of<double>({false, 0}, layer.x_mean, layer.w_mean)) CHECK(scale == 1);
  CHECK(layer.loss({false, 0}, exact) == Approx(0.0095177).margin(6e-8));
}

TEST_CASE("clips of the worked example") {
  const Layer<double> layer;
  const struct {
    int point;
    double limit, error;
  } expected[4][2] = {{{0, .47946, 1.625e-4}, {0, .49901, 1.3085e-3}},
                      {{5, .35685, 2.1185e-3}, {0, .47701, 4.029e-4}},
                      {{0, .47832, 1.4753e-3}, {0, .47442, 3.827e-4}},
                      {{3, .42438, 2.4975e-3}, {0, .48070, 2.274e-4}}};
  for (std::size_t g = 0; g < 2; ++g) {
    std::vector<double> moments(16);
    for (std::size_t t = 0; t < layer.tokens; ++t) {
      const double* x = &layer.x[t * layer.in + g * layer.group];
      for (std::size_t i = 0; i < 16; ++i) moments[i] += x[i / 4] * x[i % 4] / double(layer.tokens);
    }
    for (std::size_t n = 0; n < layer.out; ++n) {
      const std::span<const double> group(&layer.weight[n * layer.in + g * layer.group], layer.group);
      const auto clip = awq::best_clip<double>(exact, group, moments.data());
      CHECK(clip.point == expected[n][g].point);
      CHECK(clip.limit == Approx(expected[n][g].limit).margin(6e-6));
      CHECK(clip.error == Approx(expected[n][g].error).margin(6e-8));
    }
  }
}

TEST_CASE("dead features and groups have valid scales") {
  const std::vector<float> zeros(8, 0.0f), weight(8, 0.0f);
  for (const awq::Candidate candidate : awq::candidates()) {
    for (const float scale : awq::scales_of<float>(candidate, zeros, zeros)) {
      CHECK(std::isfinite(scale));
      CHECK(scale > 0);
    }
  }
  std::vector<float> out(8, 1.0f);
  GroupQuantizer{}.round_trip(std::span<const float>(weight), out.data());
  CHECK(out == weight);
}

TEST_CASE("rounding of one group") {
  const std::vector<double> weight{.1, -.2, .33, -.6, .9, .04, -.47, .7};
  for (const ScaleType type : {ScaleType::exact, ScaleType::f16, ScaleType::bf16}) {
    const GroupQuantizer quantizer{.scale_type = type};
    const auto grid = quantizer.grid<double>(weight);
    CHECK(grid.zero == 6);
    const int codes[] = {7, 4, 9, 0, 15, 6, 1, 13};
    for (std::size_t i = 0; i < weight.size(); ++i) CHECK(quantizer.code(weight[i], grid) == codes[i]);
    if (type == ScaleType::f16) CHECK(grid.scale == Approx(0.0999756).epsilon(1e-6));
  }
  // A group of one sign: its range must reach zero, or every weight would become the same value.
  const std::vector<double> positive{.5, .55, .6, .65, .7, .75, .8, .52};
  std::vector<double> back(8);
  exact.round_trip<double>(positive, back.data());
  for (std::size_t i = 0; i < 8; ++i) CHECK(std::abs(back[i] - positive[i]) <= .8 / 30 + 1e-12);
  // Symmetric: zero point 8, scale = largest / 7.5.
  const auto symmetric = GroupQuantizer{.scale_type = ScaleType::exact, .symmetric = true}.grid<double>(positive);
  CHECK(symmetric.zero == 8);
  CHECK(symmetric.scale == Approx(.8 / 7.5));
  // Weights under the smallest half-precision scale become zero, not garbage.
  const std::vector<float> tiny(8, 1e-9f);
  std::vector<float> none(8, 1.0f);
  GroupQuantizer{}.round_trip<float>(tiny, none.data());
  for (const float value : none) CHECK(value == 0);
}
