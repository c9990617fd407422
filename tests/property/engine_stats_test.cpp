// The engine's counters: every token, request and draft once, with preemption, sharing, cancellation and failures.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::int64_t counted(const Histogram& histogram) {
  return std::accumulate(histogram.counts.begin(), histogram.counts.end(), std::int64_t{0});
}

std::int64_t by(const EngineStats& stats, FinishReason reason) {
  return stats.finished_by[static_cast<std::size_t>(reason)];
}

}  // namespace

TEST_CASE("values fall into the bucket whose bound they do not exceed") {
  const double bounds[] = {1, 2, 5};
  Histogram histogram{bounds};
  for (const double value : {0.0, 1.0, 1.5, 2.0, 5.0, 5.1, 100.0}) histogram.add(value);
  histogram.add(3, 10);
  histogram.add(4, 0);
  CHECK(std::vector(histogram.counts.begin(), histogram.counts.begin() + 5) ==
        std::vector<std::int64_t>{2, 2, 11, 2, 0});
  CHECK(histogram.count == 17);
  CHECK(histogram.sum == 114.6 + 30);
}

TEST_CASE("histograms of an engine ascend and hold their buckets") {
  const EngineStats stats;
  for (const Histogram* histogram :
       {&stats.request_seconds, &stats.queue_seconds, &stats.inference_seconds, &stats.prefill_seconds,
        &stats.decode_seconds, &stats.seconds_per_token, &stats.first_token_seconds, &stats.token_seconds,
        &stats.request_prompt_tokens, &stats.request_generation_tokens, &stats.request_preemptions, &stats.step_tokens,
        &stats.step_seconds}) {
    CHECK(std::is_sorted(histogram->bounds.begin(), histogram->bounds.end(), std::less_equal<>{}));
    CHECK(histogram->bounds.size() <= Histogram::most_bounds);
  }
}

TEST_CASE("the times of a request follow the test's clock") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  double now = 0;
  EngineOptions engine_options{.max_running = 1, .step_seconds = 10};
  engine_options.speculation.clock = [&now] { return now; };
  // Each step takes a second.
  const Watched model{ToyModel{options}, [&now](const Batch&) { now += 1; }};
  Engine engine{Drafter{}, model, engine_options};
  const Request request{.prompt = some_text(1, 600, 12), .sampling = {.max_new_tokens = 5}};
  Answer first = engine.submit(request), second = engine.submit(request);
  engine.run();
  // A prompt of 600 takes two steps, and each token one more.
  const EngineStats stats = engine.stats();
  CHECK(stats.steps == 14);
  CHECK(stats.step_requests == 14);
  CHECK(stats.longest_text == 605);
  CHECK(stats.step_seconds.sum == 14);
  CHECK(stats.queue_seconds.sum == 0 + 7);
  CHECK(stats.prefill_seconds.sum == 3 + 3);
  CHECK(stats.first_token_seconds.sum == 3 + 10);
  CHECK(stats.token_seconds.sum == 4 + 4);
  CHECK(stats.token_seconds.count == 8);
  CHECK(stats.decode_seconds.sum == 4 + 4);
  CHECK(stats.seconds_per_token.sum == 1 + 1);
  CHECK(stats.inference_seconds.sum == 7 + 7);
  CHECK(stats.request_seconds.sum == 7 + 14);
  CHECK(stats.step_tokens.sum == 2 * 605);
}

TEST_CASE("the longest text and the requests of all steps are those of concurrent requests") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  Engine engine{Drafter{}, ToyModel{options}, {.step_seconds = 10}};
  Request one{.prompt = some_text(1, 20, 12), .sampling = {.max_new_tokens = 5}}, other = one;
  one.sampling.ignore_end_tokens = other.sampling.ignore_end_tokens = true;
  other.prompt.resize(10);
  other.sampling.max_new_tokens = 30;
  Answer first = engine.submit(one), second = engine.submit(other);
  engine.run();
  CHECK(engine.stats().longest_text == 40);
  CHECK(engine.stats().steps == 31);
  CHECK(engine.stats().step_requests == 6 + 31);
}

TEST_CASE("tokens, drafts and finish reasons add up to those of the answers") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 2}));
  const int vocab = model.info().vocab;
  std::int64_t preemptions = 0, hits = 0, accepted = 0;
  for (const std::size_t memory : {std::size_t{0}, model.pool().bytes_of(448)}) {
    EngineOptions options{.cache_memory = memory, .max_requests = 30, .max_running = 8};
    options.speculation.draft_length = draft_length::Fixed{3};
    Engine engine{model, model, options};
    std::vector<Answer> answers;
    for (int i = 0; i < 30; ++i) {
      Request request{.prompt = some_text(static_cast<std::uint64_t>(i % 3), i % 2 ? 70 + i : 20, vocab)};
      request.sampling = {
          .max_new_tokens = 60 * (1 + i % 4), .temperature = i % 2 ? 0.9f : 0.0f, .ignore_end_tokens = true};
      if (i % 5 == 0) request.pooling = i % 2 ? Pooling::mean : Pooling::last;
      if (i % 5 == 1) request.logprobs.prompt = true, request.sampling.max_new_tokens = i % 2;
      answers.push_back(engine.submit(request));
    }
    CHECK_THROWS(engine.submit({.prompt = {1}}));
    answers[29].cancel();
    for (int step = 0; step < 3; ++step) engine.step();
    answers[3].cancel();
    engine.run();
    const EngineStats stats = engine.stats();
    std::int64_t prompts = 0, emitted = 0, drafted = 0, told = 0, reused = 0, behind_first = 0, began = 0;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const Stats& one = answers[i].stats();
      prompts += one.finish_reason == FinishReason::cancelled ? 0 : one.prompt_tokens;
      began += one.prompt_tokens > 0;
      emitted += one.emitted;
      drafted += one.drafted;
      told += one.accepted;
      reused += one.reused_tokens;
      behind_first += std::max<std::int64_t>(one.emitted - 1, 0);
      CHECK(one.reused_tokens < std::max<std::int64_t>(one.prompt_tokens, 1));
    }
    CHECK(stats.waiting + stats.running == 0);
    CHECK(stats.finished == 30);
    CHECK(stats.refused == 1);
    CHECK(std::accumulate(stats.finished_by.begin(), stats.finished_by.end(), std::int64_t{0}) == 30);
    CHECK(by(stats, FinishReason::cancelled) == 2);
    CHECK(stats.prompt_tokens >= prompts);
    CHECK(stats.prompt_tokens <= prompts + answers[3].stats().prompt_tokens);
    CHECK(stats.generation_tokens == emitted);
    CHECK(stats.step_tokens.sum == static_cast<double>(stats.prompt_tokens + stats.generation_tokens));
    CHECK(stats.step_tokens.count == stats.steps);
    CHECK(stats.token_seconds.count == behind_first);
    CHECK(counted(stats.token_seconds) == behind_first);
    CHECK(stats.request_seconds.count == began);
    CHECK(stats.request_preemptions.sum == static_cast<double>(stats.preemptions));
    CHECK(stats.drafted == drafted);
    CHECK(stats.accepted == told);
    CHECK(std::accumulate(stats.accepted_at_depth.begin(), stats.accepted_at_depth.end(), std::int64_t{0}) == told);
    CHECK(stats.accepted_at_depth.size() == 3);
    CHECK(std::is_sorted(stats.accepted_at_depth.rbegin(), stats.accepted_at_depth.rend()));
    CHECK(stats.drafts >= stats.drafted / 3);
    CHECK(stats.prefixes.hit_positions() >= reused);
    if (memory == 0) CHECK(stats.cache_memory >= std::size_t{64} << 20);  // a share of the free memory
    if (memory != 0) CHECK(stats.cache_memory == memory);
    preemptions += stats.preemptions;
    hits += reused;
    accepted += told;
  }
  CHECK(preemptions > 0);
  CHECK(hits > 0);
  CHECK(accepted > 0);
}

TEST_CASE("a failing draft only slows down its request, and is counted") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  const auto ask = [](auto& engine) {
    Answer answer = engine.submit({.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 30, .ignore_end_tokens = true}});
    engine.run();
    std::vector<Token> said;
    while (const auto token = answer.next()) said.push_back(token->token);
    return said;
  };
  Engine plain{Drafter{}, ToyModel{options}};
  const std::vector<Token> expected = ask(plain);
  const SpoiltModel failing{options, [](int call, std::span<float>) {
                              if (call == 5) throw std::runtime_error("the draft has lost its way");
                            }};
  Engine engine{failing, ToyModel{options}, {.speculation = {.draft_tokens = 4}}};
  CHECK(ask(engine) == expected);
  CHECK(engine.stats().draft_faults == 1);
  CHECK(ask(engine) == expected);
  CHECK(engine.stats().draft_faults == 1);  // the next request has its draft
  CHECK(engine.stats().finished == 2);
  CHECK(by(engine.stats(), FinishReason::error) == 0);
}

TEST_CASE("an answer's reused tokens are the cached positions of another text") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 1}));
  Engine engine{Drafter{}, model};
  const auto ask = [&](int length, Logprobs logprobs = {}, std::uint64_t tenant = 0) {
    Answer answer = engine.submit({.prompt = some_text(1, length, model.info().vocab),
                                   .sampling = {.max_new_tokens = 3, .ignore_end_tokens = true},
                                   .logprobs = logprobs,
                                   .tenant = tenant});
    engine.run();
    return answer.stats().reused_tokens;
  };
  CHECK(ask(150) == 0);
  CHECK(ask(150) == 149);  // the last token is processed for its logits
  CHECK(ask(128) == 127);
  CHECK(ask(129) == 128);
  CHECK(ask(150, {.prompt = true}) == 0);
  CHECK(ask(60) == 59);
  CHECK(ask(150, {}, 7) == 0);  // another tenant's pages are not found
  CHECK(ask(150, {}, 7) == 149);
  CHECK(ask(150) == 149);
}

TEST_CASE("a request that has reused the beginning of a page waits for the pages that another one computes") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 1}));
  Engine engine{Drafter{}, model};
  const auto submit = [&](int length) {
    return engine.submit({.prompt = some_text(1, length, model.info().vocab),
                          .sampling = {.max_new_tokens = 3, .ignore_end_tokens = true}});
  };
  const Answer before = submit(100);
  engine.run();
  Answer first = submit(240), second = submit(240);
  engine.run();
  CHECK(first.stats().reused_tokens == 100);
  CHECK(second.stats().reused_tokens == 192);
}
