// An engine under load: mixed requests have the same answers as alone, memory is freed, and no request starves.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/engine/engine.hpp"
#include "slm/model/load.hpp"
#include "support/in_turn.hpp"
#include "support/paths.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// A token with its log-probabilities, and those of the likeliest.
struct Line {
  Token token;
  std::int64_t position;
  std::vector<double> logprobs;
  std::vector<Token> likeliest;
  bool operator==(const Line&) const = default;
};

template <class T>
Line line_of(const T& token) {
  Line line{token.token, token.position, {}, {}};
  const auto note = [&](double logprob) {
    if (logprob == logprob) line.logprobs.push_back(logprob);
  };
  note(token.logprob);
  note(token.sampled_logprob);
  for (const auto& top : {token.top, token.sampled_top}) {
    for (const TokenLogprob& entry : top) {
      note(entry.logprob);
      line.likeliest.push_back(entry.token);
    }
  }
  return line;
}

struct Said {
  std::vector<Line> prompt, output;
  std::vector<float> embedding;
  bool operator==(const Said&) const = default;
};

template <class M>
Said alone(const M& model, Request request) {
  Said said;
  request.scored = [&](const GeneratedToken& token) { said.prompt.push_back(line_of(token)); };
  request.embedded = [&](std::span<const float> values) { said.embedding.assign(values.begin(), values.end()); };
  AutoregressiveDecoder decoder{model};
  decoder.generate(request, [&](const GeneratedToken& token) { said.output.push_back(line_of(token)); });
  return said;
}

Said fetch(Answer& answer) {
  Said said;
  while (const auto token = answer.try_next()) said.output.push_back(line_of(*token));
  for (const AnsweredToken& token : answer.prompt_logprobs()) said.prompt.push_back(line_of(token));
  said.embedding = answer.embedding();
  return said;
}

/// Greedy and sampled, short and long, with common prefixes, scored and embedded.
std::vector<Request> mixed_requests(std::size_t count, int vocab) {
  std::uint64_t salt = 0;
  const auto pick = [&](int n) { return static_cast<int>(mix(++salt) % static_cast<std::uint64_t>(n)); };
  std::vector<Request> requests(count);
  for (Request& request : requests) {
    if (pick(2)) request.prompt = some_text(static_cast<std::uint64_t>(pick(4)), 40 + pick(3) * 64, vocab);
    for (int own = 1 + pick(pick(20) ? 20 : 400); own > 0; --own) request.prompt.push_back(pick(vocab));
    request.sampling = {.max_new_tokens = pick(5) ? pick(16) : 160, .temperature = pick(2) ? 0.8f : 0.0f};
    request.sampling.seed = static_cast<std::uint64_t>(pick(100));
    request.sampling.top_k = pick(3) * 8;
    request.sampling.repetition_penalty = pick(4) ? 1.0f : 1.2f;
    request.sampling.ignore_end_tokens = pick(2) == 1;
    request.logprobs = {.prompt = pick(6) == 0, .raw = pick(2) == 1, .sampled = pick(2) == 1, .top = pick(4)};
    if (pick(10) == 0) {
      request.pooling = pick(2) ? Pooling::mean : Pooling::last;
      request.logprobs.prompt = false;
    }
  }
  return requests;
}

}  // namespace

TEST_CASE("many mixed requests under load have the same answers as alone") {
  const std::size_t count = every_combination() ? 200 : 80;
  const AnyModel target = load(demo_pair("target"), backend::Cpu({.threads = 2}));
  const AnyModel draft = load(demo_pair("draft-int4"), backend::Cpu({.threads = 2}));
  const std::vector<Request> requests = mixed_requests(count, target.info().vocab);
  std::vector<Said> expected;
  for (const Request& request : requests) expected.push_back(alone(target, request));

  std::int64_t preemptions = 0, hits = 0, accepted = 0, cancelled = 0;
  const auto check = [&](auto drafter, std::uint64_t number, EngineOptions options) {
    CAPTURE(number);
    auto pick = [number, salt = std::uint64_t{0}](std::uint64_t n) mutable { return mix(number * 7919 + ++salt) % n; };
    Engine engine{drafter, target, options};
    std::vector<Answer> answers;
    std::vector<std::pair<std::size_t, std::uint64_t>> to_cancel;  // index, and step
    std::uint64_t steps = 0;
    const auto step = [&] {
      ++steps;
      for (const auto& [which, when] : to_cancel) {
        if (when == steps) answers[which].cancel();
      }
      return engine.step();
    };
    for (const Request& request : requests) {
      if (pick(8) == 0) to_cancel.emplace_back(answers.size(), steps + 1 + pick(60));
      answers.push_back(engine.submit(request, {.priority = static_cast<int>(pick(3))}));
      if (pick(4) == 0) step();
    }
    while (step()) continue;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CAPTURE(i);
      Said found = fetch(answers[i]);
      REQUIRE(answers[i].over());
      const Stats stats = answers[i].stats();
      REQUIRE(stats.emitted == std::ssize(found.output));
      if (stats.finish_reason == FinishReason::cancelled) {  // after its first tokens
        ++cancelled;
        Said beginning = expected[i];
        REQUIRE(found.output.size() <= beginning.output.size());
        REQUIRE(found.prompt.size() <= beginning.prompt.size());
        if (!found.output.empty()) REQUIRE(found.prompt.size() == beginning.prompt.size());
        beginning.output.resize(found.output.size());
        beginning.prompt.resize(found.prompt.size());
        if (found.embedding.empty()) beginning.embedding.clear();
        REQUIRE(found == beginning);
      } else {
        REQUIRE(found == expected[i]);
      }
    }
    const EngineStats stats = engine.stats();
    CHECK(stats.waiting + stats.running == 0);
    CHECK(stats.finished == static_cast<std::int64_t>(count));
    CHECK(stats.cache_used == stats.cache_idle);  // every page is free, or cached for later requests
    if (!options.share_prefixes) CHECK(stats.cache_used == 0);
    CHECK(stats.step_tokens.sum == static_cast<double>(stats.prompt_tokens + stats.generation_tokens));
    preemptions += stats.preemptions;
    hits += stats.prefixes.hits;
    accepted += stats.accepted;
  };
  const std::size_t little = target.pool().bytes_of(768);
  EngineOptions fixed{.cache_memory = little, .step_seconds = 1e-9};
  fixed.speculation.draft_length = draft_length::Fixed{4};
  check(draft, 1, {});
  check(draft, 2, fixed);
  check(Lookup{}, 3, {.cache_memory = 2 * little, .share_prefixes = false, .max_running = 12});
  check(Drafter{}, 4, {.cache_memory = little});
  CHECK(preemptions > 0);
  CHECK(hits > 0);
  CHECK(accepted > 0);
  CHECK(cancelled > 0);
}

TEST_CASE("a long prompt is processed beside decoding sequences, each of which gets a token in every step") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  double now = 0;
  std::size_t rows = 0;
  const Watched model{ToyModel{options}, [&](const Batch& batch) {
                        now += 1;
                        rows = 0;
                        for (const Batch::Item& item : batch.items()) rows += item.count;
                      }};
  EngineOptions engine_options{.step_seconds = 0.5};  // every step exceeds the limit: prompts get the fewest rows
  engine_options.speculation.clock = [&now] { return now; };
  Engine engine{Drafter{}, model, engine_options};
  std::vector<Answer> texts;
  for (int i = 0; i < 4; ++i)
    texts.push_back(engine.submit({.prompt = {1, i}, .sampling = {.max_new_tokens = 400, .ignore_end_tokens = true}}));
  for (int i = 0; i < 20; ++i) engine.step();
  for (Answer& text : texts) fetch(text);
  const auto long_request = [](int length, Logprobs logprobs = {}) {
    return Request{.prompt = some_text(1, length, 12), .sampling = {.max_new_tokens = 1}, .logprobs = logprobs};
  };
  std::vector<Answer> prompts{engine.submit(long_request(3000)), engine.submit(long_request(2000, {.prompt = true})),
                              engine.submit(long_request(5))};
  std::vector<std::size_t> order;
  int steps = 0;
  for (; order.size() < prompts.size() && steps < 300; ++steps) {
    engine.step();
    CHECK(rows <= 4 + 3 + 32);
    for (Answer& text : texts) CHECK(fetch(text).output.size() == 1);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].try_next()) order.push_back(i);
    }
  }
  CHECK(order == std::vector<std::size_t>{0, 1, 2});  // first come, first served
  CHECK(steps <= 5005 / 32 + 3);
}

TEST_CASE("among equal requests the first one starts first") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  Engine engine{Drafter{}, ToyModel{options}, {.max_running = 3}};
  std::vector<Answer> answers;
  std::vector<std::size_t> order;
  for (int i = 0; i < 30; ++i) {
    const int length = 1 + static_cast<int>(mix(static_cast<std::uint64_t>(i)) % 30);
    answers.push_back(
        engine.submit({.prompt = {1, 2}, .sampling = {.max_new_tokens = length, .ignore_end_tokens = true}}));
  }
  std::vector<bool> begun(answers.size());
  while (engine.step()) {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (begun[i] || !answers[i].try_next()) continue;
      begun[i] = true;
      order.push_back(i);
    }
  }
  CHECK(order.size() == answers.size());
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("the draft's prompt tokens count against the rows of prompts, too") {
  const AnyModel model = load(demo_pair("target"), backend::Cpu({.threads = 1}));
  std::size_t rows = 0;
  const Watched draft{model, [&](const Batch& batch) {
                        std::size_t read = 0;
                        for (const Batch::Item& item : batch.items()) read += item.count;
                        rows = std::max(rows, read);
                      }};
  double now = 0;
  EngineOptions options{.step_seconds = 0.5};
  options.speculation = {.draft_length = draft_length::Fixed{2}, .clock = [&now] { return now += 1; }};
  Engine engine{draft, model, options};
  const auto submit = [&] {
    engine.submit({.prompt = some_text(1, 300, model.info().vocab), .sampling = {.max_new_tokens = 30}}).detach();
  };
  submit();
  engine.run();
  for (int i = 0; i < 10; ++i) submit();  // with the target's pages cached
  rows = 0;
  engine.run();
  CHECK(rows <= 32 + 2 * 10);
}

TEST_CASE("a text with cached pages does not wait for the draft's prompt, and is drafted nevertheless") {
  const AnyModel model = load(demo_pair("target"), backend::Cpu({.threads = 1}));
  Engine engine{model, model, {.speculation = {.draft_length = draft_length::Fixed{2}}}};
  const auto submit = [&] {
    return engine.submit({.prompt = some_text(1, 900, model.info().vocab),
                          .sampling = {.max_new_tokens = 40, .ignore_end_tokens = true}});
  };
  Answer first = submit();
  engine.run();
  Answer second = submit();
  engine.step();  // processes the tokens after the last full page
  engine.step();
  const auto soonest = second.try_next();
  REQUIRE(soonest.has_value());
  CHECK(!second.over());
  engine.run();
  CHECK(second.stats().drafted > 20);
  Said said = fetch(first);
  CHECK(line_of(*soonest) == said.output.front());
  said.output.erase(said.output.begin());
  CHECK(fetch(second) == said);
}

TEST_CASE("concurrent texts of a tenant compute their common pages once") {
  const AnyModel model = load(demo_pair("target"), backend::Cpu({.threads = 1}));
  std::size_t rows = 0;
  const Watched watched{model, [&](const Batch& batch) {
                          for (const Batch::Item& item : batch.items()) rows += item.count;
                        }};
  const auto rows_of = [&](bool share, double step_seconds, std::uint64_t tenants = 1) {
    Engine engine{Drafter{}, watched, {.share_prefixes = share, .step_seconds = step_seconds}};
    std::vector<Answer> answers;
    for (int i = 0; i < 8; ++i) {
      Request request{.prompt = some_text(1, 300, model.info().vocab), .sampling = {.max_new_tokens = 4}};
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.ignore_end_tokens = true;
      request.tenant = request.sampling.seed % tenants;
      if (i == 7) request.prompt[200] ^= 1;  // three pages, and 8 positions if computed, are from the others
      answers.push_back(engine.submit(request));
    }
    rows = 0;
    engine.run();
    for (Answer& answer : answers) CHECK(fetch(answer).output.size() == 4);
    return rows;
  };
  for (const double step_seconds : {1e-9, 10.0}) {
    CHECK(rows_of(false, step_seconds) == 8 * (299 + 4));
    CHECK(rows_of(true, step_seconds) == 299 + 6 * (299 - 256) + (299 - 200) + 8 * 4);
    CHECK(rows_of(true, step_seconds, 2) == 2 * 299 + 5 * (299 - 256) + (299 - 192) + 8 * 4);
    CHECK(rows_of(true, step_seconds, 8) == 8 * (299 + 4));
  }
}

TEST_CASE("a step has no more prompt rows than the options say, and a request's progress begins with the cache") {
  const AnyModel model = load(demo_pair("target"), backend::Cpu({.threads = 1}));
  std::size_t most = 0;
  const Watched watched{model, [&](const Batch& batch) {
                          std::size_t rows = 0;
                          for (const Batch::Item& item : batch.items()) rows += item.count;
                          most = std::max(most, rows);
                        }};
  using Progress = std::vector<std::pair<std::size_t, std::size_t>>;
  for (const std::size_t prompt_rows : {0, 1, 40, 2048}) {
    Engine engine{Drafter{}, watched, {.step_seconds = 10, .prompt_rows = prompt_rows}};
    Progress progress[3];
    const auto submit = [&](std::size_t i) {
      Request request{.prompt = some_text(1 + i % 2, 150, model.info().vocab), .sampling = {.max_new_tokens = 2}};
      if (i == 2) request.prompt[140] ^= 1;
      request.progress = [&progress, i](std::size_t read, std::size_t of) { progress[i].emplace_back(read, of); };
      return engine.submit(request);
    };
    most = 0;
    const Answer first = submit(0), second = submit(1);
    engine.run();
    const std::size_t limit = std::max<std::size_t>(prompt_rows, 1);
    CHECK(most <= limit + 2);  // and one row of each answer
    const Answer again = submit(2);
    engine.run();
    for (const Progress& one : progress) {
      REQUIRE(one.size() >= 2);
      CHECK(std::is_sorted(one.begin(), one.end()));
      CHECK(one.back() == std::pair<std::size_t, std::size_t>{149, 149});
    }
    CHECK(progress[0].front() == std::pair<std::size_t, std::size_t>{0, 149});
    CHECK(progress[2].front() == std::pair<std::size_t, std::size_t>{140, 149});
    if (prompt_rows == 40) CHECK(progress[2].size() == 2);
  }
}
