// Results for prompts, log-probabilities and embeddings: the model's own rows, bit for bit, for any chunks, sharing,
// batches and recomputation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <ostream>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/decode/perplexity.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Scored {
  Token token;
  std::int64_t position;
  double logprob;
  std::vector<std::pair<Token, double>> top;
  bool operator==(const Scored&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Scored& scored) {
  return out << scored.token << '@' << scored.position << ' ' << scored.logprob << " of " << scored.top.size();
}

template <class T>
Scored scored_of(const T& token) {
  Scored scored{token.token, token.position, token.logprob, {}};
  for (const TokenLogprob& entry : token.top) scored.top.emplace_back(entry.token, entry.logprob);
  return scored;
}

std::vector<Scored> scored_of(const std::vector<AnsweredToken>& tokens) {
  std::vector<Scored> scored;
  for (const AnsweredToken& token : tokens) scored.push_back(scored_of(token));
  return scored;
}

/// From one forward pass over the whole prompt.
template <class M>
std::vector<Scored> by_hand(const M& model, const std::vector<Token>& prompt, int top) {
  std::vector<Scored> scored;
  if (prompt.size() < 2) return scored;
  Session session(model);
  const auto rows = session.forward(std::span(prompt).first(prompt.size() - 1), static_cast<int>(prompt.size()) - 1);
  LogprobReport report;
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    report.by_row({rows.row(static_cast<std::int64_t>(i) - 1), static_cast<std::size_t>(model.info().vocab)}, prompt[i],
                  top);
    scored.push_back({prompt[i], static_cast<std::int64_t>(i), report.logprob(), {}});
    for (const TokenLogprob& entry : report.top()) scored.back().top.emplace_back(entry.token, entry.logprob);
  }
  return scored;
}

template <class M>
std::vector<float> embedded_by_hand(const M& model, const std::vector<Token>& prompt, Pooling pooling) {
  Sequence sequence = model.sequence();
  Batch batch;
  batch.add(sequence, prompt, {.result = RowResult::hidden, .rows = static_cast<int>(prompt.size())});
  model.forward(batch);
  const auto rows = batch.hidden(0);
  const std::int64_t first = pooling == Pooling::last ? rows.extent(0) - 1 : 0;
  std::vector<float> mean;
  for (std::int64_t i = 0; i < rows.extent(1); ++i) {
    double sum = 0;
    for (std::int64_t r = first; r < rows.extent(0); ++r) sum += double{rows.row(r)[i]};
    mean.push_back(static_cast<float>(sum / static_cast<double>(rows.extent(0) - first)));
  }
  return mean;
}

/// Requests of all kinds, many with common prefixes.
std::vector<Request> requests_of(std::uint64_t seed, std::size_t count, int longest, int vocab) {
  std::uint64_t salt = 0;
  const auto pick = [&](int n) { return static_cast<int>(mix(seed * 7919 + ++salt) % static_cast<std::uint64_t>(n)); };
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    request.prompt = some_text(static_cast<std::uint64_t>(pick(2)), pick(longest), vocab);
    for (int own = 1 + pick(20); own > 0; --own) request.prompt.push_back(pick(vocab));
    request.sampling = {.max_new_tokens = pick(4) * 50, .temperature = 0.9f, .ignore_end_tokens = true};
    request.logprobs.top = pick(3);
    const int kind = pick(4);
    if (kind == 0) request.pooling = Pooling::mean;
    if (kind == 1) request.pooling = Pooling::last;
    if (kind == 2) request.logprobs.prompt = true;
  }
  return requests;
}

template <class M>
void check_against_hand(const M& model, const Request& request, const Answer& answer) {
  const auto expected =
      request.logprobs.prompt ? by_hand(model, request.prompt, request.logprobs.top) : std::vector<Scored>{};
  REQUIRE(scored_of(answer.prompt_logprobs()) == expected);
  REQUIRE(answer.embedding() ==
          (request.pooling ? embedded_by_hand(model, request.prompt, *request.pooling) : std::vector<float>{}));
  REQUIRE(answer.stats().finish_reason == FinishReason::length);
  REQUIRE(answer.stats().emitted == (request.pooling ? 0 : request.sampling.max_new_tokens));
}

}  // namespace

TEST_CASE("log-probabilities of a prompt are the summands of perplexity") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 2}));
  const std::vector<Token> prompt = some_text(3, 150, model.info().vocab);
  double sum = 0;
  Engine engine{Drafter{}, model};
  const Answer answer =
      engine.submit({.prompt = prompt, .sampling = {.max_new_tokens = 0}, .logprobs = {.prompt = true}});
  engine.run();
  REQUIRE(scored_of(answer.prompt_logprobs()) == by_hand(model, prompt, 0));
  for (const AnsweredToken& token : answer.prompt_logprobs()) sum -= token.logprob;
  CHECK(sum == perplexity(model, prompt).negative_log_likelihood);
}

TEST_CASE("results for prompts do not depend on other requests of the engine") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const ToyModel model({.vocab = 12, .seed = seed + 1});
    const std::vector<Request> requests = requests_of(seed, 12, 700, 12);
    Engine engine{Lookup{}, model, {.max_running = 1 + seed % 7, .step_seconds = seed % 2 ? 1e-9 : 1.0}};
    std::vector<Answer> answers;
    for (const Request& request : requests) answers.push_back(engine.submit(request));
    engine.run();
    for (std::size_t i = 0; i < requests.size(); ++i) check_against_hand(model, requests[i], answers[i]);
  }
}

TEST_CASE("a real model's results for prompts survive preemption and shared pages") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 2}));
  const std::vector<Request> requests = requests_of(1, 24, 100, model.info().vocab);
  const std::size_t little = model.pool().bytes_of(320);  // of pages: one text, and one page
  std::int64_t preemptions = 0, hits = 0;
  for (const std::size_t memory : {std::size_t{0}, little}) {
    for (const bool share : {false, true}) {
      CAPTURE(memory, share);
      Engine engine{
          model,
          model,
          {.cache_memory = memory, .share_prefixes = share, .max_running = 12, .step_seconds = share ? 1e-9 : 1.0}};
      std::vector<Answer> answers;
      for (const Request& request : requests) answers.push_back(engine.submit(request));
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) check_against_hand(model, requests[i], answers[i]);
      preemptions += engine.stats().preemptions;
      hits += engine.stats().prefixes.hits;
    }
  }
  CHECK(preemptions > 0);
  CHECK(hits > 0);
}

TEST_CASE("a decoder returns results for its prompts with any contents of its cache") {
  const ToyModel model({.vocab = 12, .context = 40, .seed = 3});
  AutoregressiveDecoder decoder{model};
  for (const int length : {1, 2, 30, 39, 40, 40}) {
    for (const int more : {0, 1, 5}) {
      CAPTURE(length, more);
      std::vector<Scored> scored;
      std::vector<float> embedding;
      Request request{.prompt = some_text(1, length, 12), .sampling = {.max_new_tokens = more}};
      request.logprobs = {.prompt = true, .top = 3};
      request.scored = [&](const GeneratedToken& token) { scored.push_back(scored_of(token)); };
      const Stats stats = decoder.generate(request, [&](Token) { CHECK(scored.size() + 1 == request.prompt.size()); });
      CHECK(scored == by_hand(model, request.prompt, 3));
      CHECK(stats.reused_tokens == 0);
      CHECK(stats.emitted == std::min(more, 40 - length));

      request.logprobs = {};
      request.embedded = [&](std::span<const float> values) { embedding.assign(values.begin(), values.end()); };
      for (const Pooling pooling : {Pooling::mean, Pooling::last}) {
        request.pooling = pooling;
        CHECK(decoder.generate(request, [](Token) { FAIL("a token"); }).emitted == 0);
        CHECK(embedding == embedded_by_hand(model, request.prompt, pooling));
      }
    }
  }
}

TEST_CASE("rows of logits for prompts use bounded memory") {
  const ToyModel model({.vocab = 12, .seed = 3});
  ModelInfo large = model.info();
  large.vocab = 150'000;
  CHECK(most_scored_rows(large) * 150'000 * sizeof(float) <= std::size_t{64} << 20);
  // A vocabulary for which the limit is a few rows.
  const ToyModel wide({.vocab = 400'000, .seed = 3});
  const std::size_t most = most_scored_rows(wide.info());
  std::size_t rows = 0;
  const Watched watched{wide, [&](const Batch& batch) {
                          std::size_t asked = 0;
                          for (const Batch::Item& item : batch.items())
                            asked +=
                                item.spec.result == RowResult::logits ? static_cast<std::size_t>(item.spec.rows) : 0;
                          rows = std::max(rows, asked);
                        }};
  const Request request{
      .prompt = some_text(1, 30, 400'000), .sampling = {.max_new_tokens = 0}, .logprobs = {.prompt = true}};
  Engine engine{Drafter{}, watched};
  for (int i = 0; i < 4; ++i) engine.submit(request).detach();
  engine.run();
  CHECK(rows == most);
  rows = 0;
  AutoregressiveDecoder decoder{watched};
  decoder.generate(std::vector<Request>(4, request), [](std::size_t, const GeneratedToken&) { return true; });
  CHECK(rows > 1);
  CHECK(rows <= most);
}

TEST_CASE("an invalid row of a prompt ends only its own answer") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  const SpoiltModel model{options, [](int call, std::span<float> rows) {
                            if (call == 0) rows[5] = std::numeric_limits<float>::quiet_NaN();
                          }};
  Engine engine{Drafter{}, model};
  const Request request{
      .prompt = some_text(1, 10, 12), .sampling = {.max_new_tokens = 0}, .logprobs = {.prompt = true}};
  Answer first = engine.submit(request), second = engine.submit(request);
  engine.run();
  CHECK_THROWS_WITH(first.try_next(), Catch::Contains("decode.non-finite-logits") && Catch::Contains("after 1 tokens"));
  CHECK_FALSE(second.try_next());
  CHECK(second.prompt_logprobs().size() == 9);
  Request both = request;
  both.pooling = Pooling::mean;
  CHECK(error_id([&] { engine.submit(both); }) == "decode.embedding-and-logprobs");
}
