// The search of scales on random sequences, compared with all candidates on all sequences.
#include "slm/awq/scale_search.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "support/errors.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::quantize;
using slm::testing::error_id;
using slm::testing::Random;

namespace {

/// One layer with inputs of very different magnitudes.
struct Problem {
  static constexpr std::int64_t in = 64, out = 16, tokens = 8;
  FloatVector bias;
  FloatLinear linear;
  std::vector<std::vector<float>> texts;  // [sequences][tokens, in]
  std::vector<float> x_mean = std::vector<float>(in);
  Rounding rounding{.quantizer = {}, .group = 32};
  std::map<std::size_t, int> asked;  // uses of each sequence

  Problem(std::size_t sequences, std::uint64_t seed) {
    Random random(seed);
    linear.in = in;
    linear.bias = &bias;
    linear.parts = {{.name = "layer.weight", .shape = {out, in}}};
    linear.weight = random.vector(static_cast<std::size_t>(out * in));
    std::vector<float> sizes;
    for (std::int64_t k = 0; k < in; ++k) sizes.push_back(std::exp(3 * random()));
    for (std::size_t s = 0; s < sequences; ++s) {
      std::vector<float>& text = texts.emplace_back(random.vector(static_cast<std::size_t>(tokens * in)));
      for (std::size_t i = 0; i < text.size(); ++i) {
        text[i] *= sizes[i % in];
        x_mean[i % in] += std::abs(text[i]) / static_cast<float>(sequences * tokens);
      }
    }
  }

  double squares(std::span<const float> rounded, std::size_t s) const {
    double sum = 0;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t n = 0; n < out; ++n) {
        double error = 0;
        for (std::int64_t k = 0; k < in; ++k) {
          const auto at = static_cast<std::size_t>(n * in + k);
          error += double{texts[s][static_cast<std::size_t>(t * in + k)]} * (rounded[at] - linear.weight[at]);
        }
        sum += error * error;
      }
    }
    return sum;
  }

  OutputError error() {
    return {.of =
                [this](std::span<const FloatMatrix> rounded, std::size_t s) {
                  ++asked[s];
                  return squares({rounded[0].segments[0].data, linear.weight.size()}, s);
                },
            .sequences = texts.size(),
            .elements = static_cast<double>(texts.size() * tokens * out)};
  }

  template <class Told>
  SearchOutcome search(const OutputError& by, Told told) {
    SearchOutcome outcome;
    FloatLinear* const consumers[] = {&linear};
    outcome.scales = search_scales(std::span<FloatLinear* const>(consumers), x_mean, SharedFeatures::none(in), rounding,
                                   by, outcome, told);
    return outcome;
  }

  double mean_of(std::span<const float> scales) {
    const std::vector<float> rounded = round_trip_scaled(linear, scales, rounding);
    double sum = 0;
    for (std::size_t s = 0; s < texts.size(); ++s) sum += squares(rounded, s);
    return sum / error().elements;
  }
};

void ignore(double) {}

}  // namespace

TEST_CASE("a search finds almost the best candidate of all sequences, for 1/5 of the work") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Problem problem(16, seed);
    const SearchOutcome found = problem.search(problem.error(), ignore);
    CHECK(problem.asked[0] == 40);
    CHECK(problem.asked[1] == 11);
    CHECK(problem.asked[15] == 4);

    std::vector<float> w(Problem::in);
    awq::add_relative_weights<float>(problem.linear.weight, Problem::in, 32, w);
    for (float& mean : w) mean /= Problem::out;
    double best = std::numeric_limits<double>::infinity();
    for (const awq::Candidate candidate : awq::candidates()) {
      best = std::min(best, problem.mean_of(awq::scales_of<float>(candidate, problem.x_mean, w)));
    }
    CHECK(found.best == Approx(problem.mean_of(found.scales)).epsilon(1e-12));
    CHECK(found.rounded == Approx(problem.mean_of(std::vector(Problem::in, 1.0f))).epsilon(1e-12));
    CHECK(found.best <= found.rounded);
    CHECK(found.best <= 1.05 * best);
  }
}

TEST_CASE("rounding alone is compared on every sequence, and wins if the first sequence is misleading") {
  Problem problem(8, 3);
  const auto honest = problem.error();
  const std::vector<float> alone = round_trip_scaled(problem.linear, std::vector(Problem::in, 1.0f), problem.rounding);
  OutputError misled = honest;
  misled.of = [&](std::span<const FloatMatrix> rounded, std::size_t s) {
    const bool is_alone = std::equal(alone.begin(), alone.end(), rounded[0].segments[0].data);
    return honest.of(rounded, s) * ((s == 0) == is_alone ? 100 : 1);
  };
  const SearchOutcome found = problem.search(misled, ignore);
  CHECK(found.chosen.is_identity());
  CHECK(found.best == found.rounded);
}

TEST_CASE("a search reports its progress from 0 to 1, for any number of sequences") {
  for (const std::size_t sequences : {1u, 2u, 4u, 5u, 16u, 17u}) {
    CAPTURE(sequences);
    Problem problem(sequences, 5);
    double last = 0;
    bool rises = true;
    problem.search(problem.error(), [&](double share) { rises = rises && std::exchange(last, share) < share; });
    CHECK(rises);
    CHECK(last == Approx(1));
    for (std::size_t s = 0; s < sequences; ++s) CHECK(problem.asked[s] >= 2);
  }
}

TEST_CASE("activations that are not finite are rejected") {
  Problem problem(4, 7);
  problem.texts[2][5] = std::numeric_limits<float>::quiet_NaN();
  CHECK(error_id([&] { problem.search(problem.error(), ignore); }) == "quantize.non-finite");
}
