// The engine: answers are the same as alone, for any arrival, end, wait, sharing and preemption of other requests.
#include "slm/engine/engine.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/model/load.hpp"
#include "slm/model/paged_sequence.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Line {
  Token token;
  double raw, sampled;
  bool operator==(const Line&) const = default;
};
using Lines = std::vector<Line>;

std::ostream& operator<<(std::ostream& out, const Line& line) {
  return out << line.token << '(' << line.raw << ' ' << line.sampled << ')';
}

template <class M>
Lines alone(const M& model, const Request& request) {
  Lines lines;
  AutoregressiveDecoder decoder{model};
  decoder.generate(request, [&](const GeneratedToken& token) {
    lines.push_back({token.token, token.logprob, token.sampled_logprob});
  });
  return lines;
}

Lines fetch(Answer& answer) {
  Lines lines;
  while (const auto token = answer.try_next()) {
    lines.push_back({token->token, token->logprob, token->sampled_logprob});
  }
  return lines;
}

/// Random requests, many with common prefixes.
std::vector<Request> requests_of(std::uint64_t number, int vocab, std::size_t count, int longest) {
  std::uint64_t salt = 0;
  const auto pick = [&](std::uint64_t n) { return mix(number * 7919 + ++salt) % n; };
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    const std::uint64_t beginning = pick(3), shared = pick(static_cast<std::uint64_t>(longest));
    for (std::uint64_t i = 0; i < shared; ++i) {
      request.prompt.push_back(static_cast<Token>(mix(beginning * 1000 + i) % static_cast<std::uint64_t>(vocab)));
    }
    const std::uint64_t own = 1 + pick(20);
    for (std::uint64_t i = 0; i < own; ++i) {
      request.prompt.push_back(static_cast<Token>(pick(static_cast<std::uint64_t>(vocab))));
    }
    request.sampling = {.max_new_tokens = static_cast<int>(pick(40)), .temperature = pick(2) ? 0.9f : 0.0f};
    request.sampling.seed = pick(100);
    request.sampling.top_k = static_cast<int>(pick(3) * 4);
    request.logprobs = {.raw = true, .sampled = true};
  }
  return requests;
}

}  // namespace

TEST_CASE("answers do not depend on other requests of the engine") {
  for (std::uint64_t number = 0; number < 150; ++number) {
    std::uint64_t salt = 100;
    const auto pick = [&](std::uint64_t n) { return mix(number * 104729 + ++salt) % n; };
    const ToyOptions options{.vocab = 12, .seed = 1 + number, .end_tokens = {static_cast<Token>(pick(12))}};
    ToyOptions other = options;
    other.other_share = 0.3;
    std::vector<Request> requests = requests_of(number, 12, 3 + pick(20), 700);
    EngineOptions engine_options{.max_running = 1 + pick(8), .step_seconds = pick(2) ? 1e-9 : 1.0};
    const auto check = [&](auto draft) {
      Engine engine{draft, ToyModel{options}, engine_options};
      std::vector<Answer> answers;
      std::vector<bool> cancelled;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        answers.push_back(engine.submit(requests[i], {.priority = static_cast<int>(pick(3))}));
        cancelled.push_back(pick(8) == 0);
        for (std::uint64_t step = pick(4); step > 0; --step) engine.step();
        if (cancelled.back()) answers.back().cancel();
      }
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(number, i);
        Lines expected = alone(ToyModel{options}, requests[i]);
        const Lines found = fetch(answers[i]);
        REQUIRE(answers[i].over());
        if (cancelled[i] && answers[i].stats().finish_reason == FinishReason::cancelled) {
          REQUIRE(found.size() <= expected.size());
          expected.resize(found.size());
        }
        REQUIRE(found == expected);
        REQUIRE(answers[i].stats().emitted == static_cast<std::int64_t>(found.size()));
      }
      const EngineStats stats = engine.stats();
      REQUIRE(stats.waiting + stats.running == 0);
      REQUIRE(stats.finished == static_cast<std::int64_t>(requests.size()));
    };
    check(ToyModel{other});
    check(Lookup{});
    check(Drafter{});
  }
}

TEST_CASE("a real model's answers survive preemption and shared pages") {
  const std::string name = GENERATE("llama3-gqa-scaled-tied", "lfm2moe", "qwen35-text", "granitehybrid-moe",
                                    "falcon-h1", "gpt-oss-trunc", "gemma3n", "gemma4-e2b", "deepseek-v3");
  CAPTURE(name);
  const AnyModel model = load(fixture("models/" + name), backend::Cpu({.threads = 2}));
  std::vector<Request> requests = requests_of(5, model.info().vocab, 24, 30);
  // Texts share whole pages, of recurrent layers up to a snapshot.
  const int distance = detail::paged(model.pool()).layout().snapshot_distance();
  requests[7].prompt = requests[3].prompt = std::vector<Token>(static_cast<std::size_t>(distance + 6), 5);
  for (Request& request : requests) {
    request.sampling.max_new_tokens += 120;  // pages without a reservation
    request.sampling.ignore_end_tokens = true;
  }
  std::vector<Lines> expected;
  for (const Request& request : requests) expected.push_back(alone(model, request));
  const std::size_t one_text = model.pool().bytes_of(distance + 146);
  std::int64_t preemptions = 0, hits = 0;
  for (const std::size_t memory : {std::size_t{0}, 8 * one_text, 3 * one_text}) {
    for (const bool share : {false, true}) {
      CAPTURE(memory, share);
      Engine engine{model, model, {.cache_memory = memory, .share_prefixes = share, .max_running = 12}};
      std::vector<Answer> answers;
      for (const Request& request : requests) answers.push_back(engine.submit(request));
      engine.run();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        CHECK(fetch(answers[i]) == expected[i]);
      }
      const EngineStats stats = engine.stats();
      if (!share) CHECK(stats.cache_used == 0);  // every page is free
      preemptions += stats.preemptions;
      hits += stats.prefixes.hits;
    }
  }
  CHECK(preemptions > 0);
  CHECK(hits > 0);
}

TEST_CASE("a request that never fits into memory fails, and the others continue") {
  const AnyModel model = load(fixture("models/llama3-gqa-scaled-tied"), backend::Cpu({.threads = 1}));
  const std::size_t page = model.pool().bytes_of(64);
  Engine engine{Drafter{}, model, {.cache_memory = 2 * page}};
  Answer small = engine.submit({.prompt = {1, 2}, .sampling = {.max_new_tokens = 5, .ignore_end_tokens = true}});
  Answer large = engine.submit({.prompt = std::vector<Token>(200, 3), .sampling = {.max_new_tokens = 5}});
  Answer late = engine.submit({.prompt = {1, 2}, .sampling = {.max_new_tokens = 5, .ignore_end_tokens = true}});
  engine.run();
  CHECK(fetch(small).size() == 5);
  CHECK_THROWS_WITH(fetch(large), Catch::Contains("cache.full"));
  CHECK(large.stats().finish_reason == FinishReason::error);
  CHECK(fetch(late).size() == 5);
}

TEST_CASE("an invalid row ends only its own answer") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  // The first row of the step is corrupted, which belongs to the first text.
  const SpoiltModel model{options, [](int call, std::span<float> rows) {
                            if (call == 6) rows[0] = std::numeric_limits<float>::quiet_NaN();
                          }};
  Engine engine{Drafter{}, model};
  const Request request{.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 20, .temperature = 0}};
  Answer first = engine.submit(request), second = engine.submit(request);
  engine.run();
  CHECK_THROWS_WITH(fetch(first), Catch::Contains("decode.non-finite-logits"));
  CHECK(fetch(second).size() == 20);
}

TEST_CASE("priorities, limits and deadlines") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  const Request request{.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 20}};
  Engine engine{Drafter{}, ToyModel{options}, {.max_requests = 4, .max_running = 1}};
  std::vector<int> order;
  const auto noting = [&](int which) { return [&order, which] { order.push_back(which); }; };
  Answer low = engine.submit(request, {.priority = 1}, noting(1));
  Answer high = engine.submit(request, {.priority = -1}, noting(-1));
  Answer middle = engine.submit(request, {}, noting(0));
  Answer late = engine.submit(request, {.deadline = std::chrono::steady_clock::now()}, noting(9));
  CHECK_THROWS_WITH(engine.submit(request), Catch::Contains("engine.full"));
  CHECK_THROWS_WITH(engine.submit({}), Catch::Contains("decode.empty-prompt"));
  engine.run();
  order.erase(std::unique(order.begin(), order.end()), order.end());
  CHECK(order == std::vector<int>{9, -1, 0, 1});
  CHECK(late.stats().finish_reason == FinishReason::deadline);
  CHECK(fetch(late).empty());
  CHECK(fetch(low).size() == 20);
  CHECK_NOTHROW(engine.submit(request));
}

TEST_CASE("a slow reader pauses only its own text") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  const Request request{.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 50}};
  Engine engine{Drafter{}, ToyModel{options}, {.max_unread = 10}};
  Answer idle = engine.submit(request), busy = engine.submit(request);
  std::size_t read = 0;
  for (int i = 0; i < 200; ++i) {
    engine.step();
    read += fetch(busy).size();
  }
  CHECK(read == 50);
  CHECK(busy.over());
  CHECK_FALSE(engine.step());
  CHECK(fetch(idle).size() == 10);
  CHECK_FALSE(idle.over());
  while (!idle.over()) {
    engine.run();
    read += fetch(idle).size();
  }
  CHECK(read == 90);
}
