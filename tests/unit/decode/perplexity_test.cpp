// Perplexity: the tokens scored in each window, against manual sums for a model with a known distribution.
#include "slm/decode/perplexity.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "support/errors.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using testing::error_id;
using testing::ToyModel;

namespace {

double log_likelihood(const ToyModel& model, std::span<const Token> before, Token token) {
  const std::vector<float> logits = model.logits_after(before);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  return double{logits[static_cast<std::size_t>(token)]} - std::log(sum);
}

/// One token at a time, by definition.
Perplexity by_hand(const ToyModel& model, std::span<const Token> tokens, std::size_t window, std::size_t stride) {
  Perplexity sum;
  std::vector<bool> scored(tokens.size());
  for (std::size_t begin = 0; begin < tokens.size(); begin += stride) {
    for (std::size_t t = begin + 1; t < std::min(begin + window, tokens.size()); ++t) {
      if (scored[t]) continue;
      scored[t] = true;
      sum.negative_log_likelihood -= log_likelihood(model, tokens.subspan(begin, t - begin), tokens[t]);
      ++sum.tokens;
    }
    // A window's first token, unless an earlier window scored it, is never scored.
    scored[begin] = true;
  }
  return sum;
}

}  // namespace

TEST_CASE("windows with and without overlap") {
  const ToyModel model({.vocab = 11, .seed = 3});
  for (const std::size_t length : {2u, 7u, 8u, 9u, 16u, 17u, 40u, 150u}) {
    std::vector<Token> tokens(length);
    for (std::size_t i = 0; i < length; ++i) tokens[i] = static_cast<Token>((i * i + 3 * i) % 11);
    for (const auto& [window, stride] : {std::pair{8, 8}, {8, 3}, {8, 1}, {2, 2}, {100, 100}, {100, 90}}) {
      const Perplexity expected =
          by_hand(model, tokens, static_cast<std::size_t>(window), static_cast<std::size_t>(stride));
      const Perplexity found = perplexity(model, tokens, {.window = window, .stride = stride});
      CAPTURE(length, window, stride);
      CHECK(found.tokens == expected.tokens);
      CHECK(found.negative_log_likelihood == Approx(expected.negative_log_likelihood).epsilon(1e-6));
      CHECK(found.value() == Approx(std::exp(found.negative_log_likelihood / double(found.tokens))));
    }
  }
}

TEST_CASE("a divergence is the mean of sum p log(p / q) over the scored tokens") {
  const ToyModel base({.vocab = 11, .seed = 3});
  const ToyModel model({.vocab = 11, .seed = 3, .other_share = 0.3});
  const int window = 8;
  std::vector<Token> tokens(60);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>((i * i + 3 * i) % 11);
  const auto probabilities = [](const ToyModel& of, std::span<const Token> before) {
    std::vector<double> p;
    for (const float logit : of.logits_after(before)) p.push_back(std::exp(double{logit}));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& each : p) each /= sum;
    return p;
  };
  std::vector<double> nats, exchanged;
  int same = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += window) {
    for (std::size_t t = begin + 1; t < std::min(begin + window, tokens.size()); ++t) {
      const auto before = std::span<const Token>(tokens).subspan(begin, t - begin);
      const std::vector<double> p = probabilities(base, before), q = probabilities(model, before);
      nats.push_back(0);
      exchanged.push_back(0);
      for (std::size_t i = 0; i < p.size(); ++i) {
        nats.back() += p[i] * std::log(p[i] / q[i]);
        exchanged.back() += q[i] * std::log(q[i] / p[i]);
      }
      same += std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
    }
  }
  const Divergence found = divergence(model, base, tokens, {.window = window});
  std::sort(nats.begin(), nats.end());
  REQUIRE(found.nats.size() == nats.size());
  for (std::size_t i = 0; i < nats.size(); ++i) CHECK(found.nats[i] == Approx(nats[i]).epsilon(1e-5).margin(1e-9));
  const auto mean = [](const std::vector<double>& of) {
    return std::accumulate(of.begin(), of.end(), 0.0) / static_cast<double>(of.size());
  };
  CHECK(found.mean() == Approx(mean(nats)).epsilon(1e-5));
  CHECK(found.mean() != Approx(mean(exchanged)).epsilon(1e-2));  // the models are not swapped
  CHECK(found.same_likeliest == same);
  CHECK(same < static_cast<int>(nats.size()));
  CHECK(found.quantile(0.5) == found.nats[(nats.size() + 1) / 2 - 1]);
  CHECK(found.quantile(1) == found.nats.back());
  CHECK(found.model.mean() == Approx(perplexity(model, tokens, {.window = window}).mean()).epsilon(1e-12));
  CHECK(found.base.mean() == Approx(perplexity(base, tokens, {.window = window}).mean()).epsilon(1e-12));

  const Divergence none = divergence(base, base, tokens, {.window = window});
  CHECK(none.mean() == 0);
  CHECK(none.same_share() == 1);
}

TEST_CASE("texts that cannot be scored are rejected") {
  const ToyModel model({.vocab = 11, .seed = 3});
  const std::vector<Token> one{4}, two{4, 5}, foreign{4, 11}, negative{-1, 4};
  const ToyModel larger({.vocab = 12, .seed = 3});
  CHECK(error_id([&] { divergence(model, larger, two); }) == "perplexity.vocabulary");
  CHECK(error_id([&] { divergence(model, model, foreign); }) == "perplexity.token");
  CHECK(error_id([&] { perplexity(model, foreign); }) == "perplexity.token");
  CHECK(error_id([&] { perplexity(model, negative); }) == "perplexity.token");
  CHECK(error_id([&] { perplexity(model, one); }) == "perplexity.short-text");
  CHECK(error_id([&] { perplexity(model, two, {.window = 1}); }) == "perplexity.window");
  CHECK(error_id([&] { perplexity(model, two, {.window = 8, .stride = 9}); }) == "perplexity.window");
  CHECK(error_id([&] { perplexity(model, two, {.window = 8, .stride = -1}); }) == "perplexity.window");
}
