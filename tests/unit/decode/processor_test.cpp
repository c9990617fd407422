// The pipeline from logits to a distribution, compared with a naive one with full sorts.
#include "slm/decode/processor.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <numeric>
#include <vector>

#include "support/naive_decoding.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_row(std::size_t vocab, std::uint64_t seed, double spread, bool coarse) {
  std::vector<float> row(vocab);
  for (std::size_t id = 0; id < vocab; ++id) {
    const double value = spread * (static_cast<double>(mix(seed * 1000003 + id) >> 11) * 0x1p-52 - 1);
    row[id] = static_cast<float>(coarse ? std::round(value) : value);  // coarse rows have many ties
  }
  return row;
}

Distribution processed(const std::vector<float>& row, const Sampling& sampling, std::vector<Token> prompt = {0},
                       std::vector<Token> output = {}) {
  Processor processor;
  processor.start(sampling, static_cast<int>(row.size()), prompt, output.size() + 1);
  for (const Token token : output) processor.push(token);
  Distribution out;
  REQUIRE(processor.distribution(row, out));
  return out;
}

void check_same(const Distribution& found, const std::map<Token, long double>& expected) {
  REQUIRE(found.size() == expected.size());
  std::size_t i = 0;
  for (const auto& [token, probability] : expected) {
    REQUIRE(found.ids[i] == token);
    REQUIRE(found.probability(i) == Approx(static_cast<double>(probability)).epsilon(1e-8).margin(0x1p-43));
    ++i;
  }
}

}  // namespace

TEST_CASE("the pipeline gives the naive pipeline's distribution") {
  const std::size_t vocabularies[] = {1, 2, 7, 33, 300, 4096};
  int checked = 0;
  for (std::uint64_t trial = 0; trial < 600; ++trial) {
    const std::size_t vocab = vocabularies[trial % 6];
    const auto pick = [&](std::uint64_t salt, std::uint64_t n) { return mix(trial * 64 + salt) % n; };
    Sampling sampling;
    sampling.temperature = std::vector<float>{0.1f, 0.7f, 1.0f, 2.5f, 0.0f}[pick(1, 5)];
    sampling.top_k = std::vector<int>{0, 1, 2, 5, 40, 1000}[pick(2, 6)];
    sampling.top_p = std::vector<float>{1.0f, 0.9f, 0.5f, 0.013f, 0.999f}[pick(3, 5)];
    sampling.min_p = std::vector<float>{0.0f, 0.0f, 0.02f, 0.3f}[pick(4, 4)];
    sampling.repetition_penalty = pick(5, 3) == 0 ? 1.3f : 1.0f;
    sampling.presence_penalty = pick(6, 3) == 0 ? 0.5f : 0.0f;
    sampling.frequency_penalty = pick(7, 3) == 0 ? 0.25f : 0.0f;
    const auto row = random_row(vocab, trial, trial % 2 ? 4 : 9, trial % 5 == 0);
    std::vector<Token> prompt, output;
    for (std::uint64_t i = 0; i < 5; ++i) prompt.push_back(static_cast<Token>(pick(20 + i, vocab)));
    for (std::uint64_t i = 0; i < 6; ++i) output.push_back(static_cast<Token>(pick(30 + i, vocab)));
    CAPTURE(trial, vocab, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p);
    check_same(processed(row, sampling, prompt, output), naive_distribution(row, sampling, prompt, output));
    ++checked;
  }
  REQUIRE(checked == 600);
}

TEST_CASE("tie-break picks the lowest id") {
  for (const std::size_t vocab : {std::size_t{5}, std::size_t{16}, std::size_t{37}, std::size_t{2048}}) {
    std::vector<float> row(vocab, 0.25f);
    REQUIRE(find_peak(row).token == 0);
    row[vocab - 1] = row[vocab / 2] = row[vocab / 2 + 1] = 1.5f;
    REQUIRE(find_peak(row).token == static_cast<Token>(vocab / 2));
    REQUIRE(processed(row, {.temperature = 0}).ids == std::vector<Token>{static_cast<Token>(vocab / 2)});
    // Top-k of a row of equal logits keeps the lowest ids, for any selection algorithm.
    for (const int k : {1, 3, 4}) {
      const auto kept = processed(std::vector<float>(vocab, -3.0f), {.top_k = k});
      std::vector<Token> lowest(static_cast<std::size_t>(k));
      std::iota(lowest.begin(), lowest.end(), 0);
      REQUIRE(kept.ids == lowest);
    }
  }
  // Minus zero equals zero.
  REQUIRE(find_peak(std::vector<float>{-1.0f, -0.0f, 0.0f}).token == 1);
}

TEST_CASE("an invalid row is detected at any position of the fault") {
  for (const std::size_t vocab : {std::size_t{1}, std::size_t{16}, std::size_t{17}, std::size_t{100}}) {
    for (std::size_t at = 0; at < vocab; ++at) {
      for (const float bad : {not_a_number, -not_a_number, infinity}) {
        auto row = random_row(vocab, at, 3, false);
        REQUIRE(find_peak(row).token != no_token);
        row[at] = bad;
        REQUIRE(find_peak(row).token == no_token);
      }
    }
    REQUIRE(find_peak(std::vector<float>(vocab, -infinity)).token == no_token);
  }
  REQUIRE(find_peak({}).token == no_token);
  // Minus infinity is a mask, not a fault.
  REQUIRE(find_peak(std::vector<float>{-infinity, -2.0f, -infinity}).token == 1);
  const auto masked = processed({-infinity, 0.0f, -infinity, 0.0f}, {.top_k = 3});
  REQUIRE(masked.ids == std::vector<Token>{1, 3});
  REQUIRE(masked.weights == std::vector<double>(2, static_cast<double>(whole_weight)));
}

TEST_CASE("extreme logits give finite probabilities") {
  const auto denormal = processed({1e-42f, 0.0f, -1e-42f}, {});
  REQUIRE(denormal.size() == 3);
  REQUIRE(denormal.of(0) == Approx(1.0 / 3));
  const auto one_hot = processed({3e38f, 0.0f, -3e38f}, {});
  REQUIRE(one_hot.ids == std::vector<Token>{0});
  REQUIRE(one_hot.of(0) == 1.0);
  REQUIRE(processed({1.0f, 2.0f, 0.0f}, {.temperature = 1e-42f}).ids == std::vector<Token>{1});
  REQUIRE(processed({1.0f, 2.0f, 0.0f}, {.top_p = 1e-30f}).ids == std::vector<Token>{1});
  REQUIRE(processed({1.0f, 2.0f, 0.0f}, {.min_p = 1.0f}).ids == std::vector<Token>{1});
}

TEST_CASE("penalties follow pushes and pops exactly") {
  const Sampling sampling{.repetition_penalty = 1.7f, .presence_penalty = 0.3f, .frequency_penalty = 0.4f};
  const auto row = random_row(12, 5, 4, false);
  const std::vector<Token> prompt{3, 3, 7};
  Processor processor;
  processor.start(sampling, 12, prompt, 64);
  std::vector<Token> output;
  Distribution out;
  for (std::uint64_t step = 0; step < 400; ++step) {
    if (mix(step) % 5 < 2 && !output.empty()) {
      output.pop_back();
      processor.pop();
    } else if (output.size() < 60) {
      output.push_back(static_cast<Token>(mix(step + 1000) % 12));
      processor.push(output.back());
    }
    REQUIRE(processor.distribution(row, out));
    check_same(out, naive_distribution(row, sampling, prompt, output));
  }
}

TEST_CASE("a draft's shorter row is processed with penalties on ids that it does not have") {
  const Sampling sampling{.temperature = 0, .repetition_penalty = 2.0f};
  Processor processor;
  const std::vector<Token> prompt{9, 1};
  processor.start(sampling, 10, prompt, 4);
  REQUIRE(processor.greedy(std::vector<float>{1.0f, 1.9f, 0.5f}) == 0);
}

TEST_CASE("sampling settings out of range are rejected by name") {
  const auto refused = [](const Sampling& sampling, const std::string& field) {
    try {
      validate(sampling, 100);
      FAIL(field << " was accepted");
    } catch (const Error& error) {
      REQUIRE(error.id() == "sampling.out-of-range");
      REQUIRE(std::string{error.what()}.find(field) != std::string::npos);
    }
  };
  refused({.max_new_tokens = -1}, "max_new_tokens");
  refused({.temperature = -0.1f}, "temperature");
  refused({.temperature = not_a_number}, "temperature");
  refused({.temperature = infinity}, "temperature");
  refused({.top_k = -1}, "top_k");
  refused({.top_p = 0.0f}, "top_p");
  refused({.top_p = 1.1f}, "top_p");
  refused({.top_p = not_a_number}, "top_p");
  refused({.min_p = -0.1f}, "min_p");
  refused({.min_p = 1.1f}, "min_p");
  refused({.repetition_penalty = 0.0f}, "repetition_penalty");
  refused({.repetition_penalty = infinity}, "repetition_penalty");
  refused({.presence_penalty = not_a_number}, "presence_penalty");
  refused({.frequency_penalty = not_a_number}, "frequency_penalty");
  REQUIRE_THROWS_WITH(validate({.stop_tokens = {100}}, 100), Catch::Contains("stop token 100"));
  validate({}, 100);
}
