// Perplexity: which tokens each window scores, against sums made by hand on a model whose law is known.
#include "slm/decode/perplexity.hpp"

#include <catch2/catch.hpp>
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

/// One token at a time, straight from the definition.
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

TEST_CASE("what cannot be scored is refused") {
  const ToyModel model({.vocab = 11, .seed = 3});
  const std::vector<Token> one{4}, two{4, 5}, foreign{4, 11}, negative{-1, 4};
  CHECK(error_id([&] { perplexity(model, foreign); }) == "perplexity.token");
  CHECK(error_id([&] { perplexity(model, negative); }) == "perplexity.token");
  CHECK(error_id([&] { perplexity(model, one); }) == "perplexity.short-text");
  CHECK(error_id([&] { perplexity(model, two, {.window = 1}); }) == "perplexity.window");
  CHECK(error_id([&] { perplexity(model, two, {.window = 8, .stride = 9}); }) == "perplexity.window");
  CHECK(error_id([&] { perplexity(model, two, {.window = 8, .stride = -1}); }) == "perplexity.window");
}
