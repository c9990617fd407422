// Concurrent requests: each has the same answer as alone.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <ostream>
#include <stop_token>
#include <string>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative_definition.hpp"
#include "support/toy_models.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

struct Line {
  Token token;
  std::int64_t position;
  double raw, sampled;
  bool drafted;
  bool operator==(const Line&) const = default;
};

struct Answered {
  std::vector<Line> lines;
  FinishReason reason{};
  std::int64_t accepted = 0, rounds = 0;
  bool operator==(const Answered&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Answered& answered) {
  out << name_of(answered.reason) << ", " << answered.accepted << " accepted in " << answered.rounds << " rounds:";
  for (const Line& line : answered.lines) {
    out << ' ' << line.token << (line.drafted ? "d" : "") << '(' << line.raw << ' ' << line.sampled << ')';
  }
  return out;
}

Line line_of(const GeneratedToken& token) {
  return {token.token, token.position, token.logprob, token.sampled_logprob, token.drafted};
}

void close(Answered& answered, const Stats& stats) {
  answered.reason = stats.finish_reason;
  answered.accepted = stats.accepted;
  answered.rounds = stats.rounds;
}

template <class Decoder>
Answered alone(Decoder& decoder, const Request& request, std::size_t patience) {
  Answered answered;
  close(answered, decoder.generate(request, [&](const GeneratedToken& token) {
    answered.lines.push_back(line_of(token));
    return answered.lines.size() < patience;
  }));
  return answered;
}

template <class Decoder>
std::vector<Answered> together(Decoder& decoder, const std::vector<Request>& requests, std::size_t at_once,
                               const std::vector<std::size_t>& patience) {
  std::vector<Answered> answered(requests.size());
  const std::vector<Stats> stats = decoder.generate(
      requests,
      [&](std::size_t i, const GeneratedToken& token) {
        answered[i].lines.push_back(line_of(token));
        return answered[i].lines.size() < patience[i];
      },
      at_once);
  for (std::size_t i = 0; i < stats.size(); ++i) close(answered[i], stats[i]);
  return answered;
}

}  // namespace

TEST_CASE("a request's answer is the same alone and with other requests") {
  std::int64_t shared = 0, separate = 0;
  for (std::uint64_t number = 0; number < 300; ++number) {
    std::uint64_t salt = 0;
    const auto pick = [&](std::uint64_t n) { return mix(number * 7919 + ++salt) % n; };
    ToyOptions options{.vocab = 12, .context = 1300, .seed = 1 + number};
    if (pick(3) == 0) options.end_tokens = {static_cast<Token>(pick(12))};
    ToyOptions other = options;
    other.other_share = static_cast<double>(pick(4)) / 3;
    if (pick(4) == 0) other.context = 40;
    Speculation speculation{.draft_tokens = static_cast<int>(pick(7))};
    if (pick(4) == 0) speculation.draft_length = draft_length::Heuristic{};
    if (pick(4) == 0) speculation.draft_length = draft_length::Confidence{0.3, 6, false};

    std::vector<Request> requests(2 + pick(9));
    std::vector<std::size_t> patience;
    for (Request& request : requests) {
      const std::uint64_t length = pick(12) == 0 ? 600 + pick(600) : 1 + pick(30);
      for (std::uint64_t i = 0; i < length; ++i) request.prompt.push_back(static_cast<Token>(pick(12)));
      request.sampling = {.max_new_tokens = static_cast<int>(pick(30)), .temperature = pick(2) ? 0.9f : 0.0f};
      request.sampling.seed = pick(100);
      request.sampling.top_k = static_cast<int>(pick(3) * 4);
      request.sampling.repetition_penalty = pick(3) == 0 ? 1.3f : 1.0f;
      request.logprobs = {.raw = true, .sampled = true};
      patience.push_back(pick(4) == 0 ? 1 + pick(5) : 1000);
    }
    const std::size_t at_once = 1 + pick(requests.size() + 2);
    const auto check = [&](auto rule, auto draft) {
      const ToyModel target{options};
      const auto log = target.log();
      SpeculativeDecoder decoder{draft, target, speculation, rule};
      const std::vector<Answered> found = together(decoder, requests, at_once, patience);
      const std::int64_t batched = std::exchange(log->forwards, 0);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(number, i, at_once, rule.name);
        SpeculativeDecoder single{draft, target, speculation, rule};
        REQUIRE(alone(single, requests[i], patience[i]) == found[i]);
      }
      shared += batched;
      separate += log->forwards;
      // The decoder continues as if it had answered nothing.
      REQUIRE(alone(decoder, requests.back(), patience.back()) == found.back());
    };
    check(rule::Coupled{}, ToyModel{other});
    check(rule::Match{}, ToyModel{other});
    check(rule::Ratio{}, ToyModel{other});
    check(rule::Block{}, ToyModel{other});
    check(rule::Coupled{}, Lookup({.pool_bits = 0}));  // the pool changes which tokens are drafted
    check(rule::Coupled{}, Drafter{});
  }
  REQUIRE(2 * shared < separate);  // steps of the target
}

TEST_CASE("a request can be cancelled in its prompt, between tokens, and before its start") {
  const ToyOptions options{.vocab = 12, .context = 4000, .seed = 3};
  const std::vector<Token> prompt(2000, 1);
  for (const bool drafts : {false, true}) {
    std::stop_source source;
    Request request{.prompt = prompt, .cancel = source.get_token()};
    std::vector<std::pair<std::size_t, std::size_t>> progress;
    request.progress = [&](std::size_t read, std::size_t of) {
      progress.emplace_back(read, of);
      if (progress.size() == 2) source.request_stop();
    };
    const ToyModel target{options};
    const auto log = target.log();
    SpeculativeDecoder decoder{ToyModel{options}, target, {.draft_tokens = drafts ? 4 : 0}};
    const Stats in_prompt = decoder.generate(request, [](Token) { FAIL("no token was due"); });
    CHECK(in_prompt.finish_reason == FinishReason::cancelled);
    CHECK(log->forwards == 2);
    CHECK(progress == std::vector<std::pair<std::size_t, std::size_t>>{{512, 1999}, {1024, 1999}});
    CHECK(decoder.generate(request, [](Token) {}).emitted == 0);  // it stays cancelled
    CHECK(log->forwards == 2);

    source = std::stop_source();
    request.cancel = source.get_token();
    request.progress = {};
    int tokens = 0;
    const auto sink = [&](Token) {
      if (++tokens == 7) source.request_stop();
    };
    const Stats between = decoder.generate(request, sink);
    CHECK(between.finish_reason == FinishReason::cancelled);
    CHECK(between.reused_tokens == 1024);
    CHECK(tokens >= 7);
    CHECK(tokens <= 7 + 4);  // the rest of its round
    CHECK(decoder.sequence().length() == 2000 + tokens - 1);
  }

  // One of several.
  std::stop_source source;
  source.request_stop();
  std::vector<Request> requests(3, Request{.prompt = {1, 2}, .sampling = {.max_new_tokens = 5}});
  requests[1].cancel = source.get_token();
  AutoregressiveDecoder decoder{ToyModel{options}};
  const auto stats = decoder.generate(requests, [](std::size_t i, const GeneratedToken&) { return i != 1; });
  CHECK(stats[0].emitted == 5);
  CHECK(stats[1].finish_reason == FinishReason::cancelled);
  CHECK(stats[1].emitted == 0);
  CHECK(stats[2].emitted == 5);
}

TEST_CASE("failures of a draft are reported; failures of memory and devices are thrown") {
  const ToyOptions options{.vocab = 12, .seed = 3};
  const Request request{.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 9, .temperature = 0}};
  for (const int call : {0, 2}) {  // the prompt, a draft
    const auto decoder_with = [&](auto thrown, Speculation speculation) {
      const auto spoil = [=](int at, std::span<float>) {
        if (at == call) throw thrown;
      };
      return SpeculativeDecoder{SpoiltModel{options, spoil}, ToyModel{options}, std::move(speculation)};
    };
    std::vector<std::string> told;
    Speculation telling{.draft_tokens = 4};
    telling.on_draft_fault = [&](std::string_view reason) { told.emplace_back(reason); };
    auto faulty = decoder_with(std::runtime_error("lost its way"), telling);
    const Stats stats = faulty.generate(request, [](Token) {});
    CHECK(told == std::vector<std::string>{stats.disabled_reason});
    CHECK_THAT(stats.disabled_reason, Catch::Contains("lost its way"));

    auto out_of_memory = decoder_with(std::bad_alloc(), {.draft_tokens = 4});
    CHECK_THROWS_AS(out_of_memory.generate(request, [](Token) {}), std::bad_alloc);
    auto full = decoder_with(Error("cache.full", "the cache is full", "Increase the KV cache"), {.draft_tokens = 4});
    CHECK_THROWS_WITH(full.generate(request, [](Token) {}), Catch::Contains("cache.full"));
    auto lost = decoder_with(Error("gpu.failed", "the device is gone", "Restart"), {.draft_tokens = 4});
    CHECK_THROWS_WITH(lost.generate(request, [](Token) {}), Catch::Contains("gpu.failed"));
    CHECK(lost.generate(request, [](Token) {}).emitted == 9);  // the decoder works as before
  }
}

TEST_CASE("an invalid request among many is rejected before any starts") {
  const ToyModel target{ToyOptions{.vocab = 12}};
  const auto log = target.log();
  AutoregressiveDecoder decoder{target};
  std::vector<Request> requests(3, Request{.prompt = {1, 2}});
  requests[2].logprobs = {.raw = true, .top = 13};
  const auto sink = [](std::size_t, const GeneratedToken&) { return true; };
  CHECK_THROWS_WITH(decoder.generate(requests, sink), Catch::Contains("Logprobs::top is 13"));
  requests[2] = {};
  CHECK_THROWS_WITH(decoder.generate(requests, sink), Catch::Contains("decode.empty-prompt"));
  CHECK(log->forwards == 0);
  CHECK(decoder.generate(std::vector<Request>{}, sink).empty());
}
