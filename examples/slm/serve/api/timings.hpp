// The times of an answer, as llama.cpp's server reports them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "api/refusal.hpp"
#include "slm/decode/stats.hpp"

namespace serve {

/// When an answer's first and last tokens were read, counted from its construction.
struct Stopwatch {
  using Clock = std::chrono::steady_clock;

  void add(std::size_t more) {
    if (more == 0) return;
    last = Clock::now();
    if (tokens == 0) first = last;
    tokens += more;
  }

  Clock::time_point begin = Clock::now(), first = begin, last = begin;
  std::size_t tokens = 0;
};

/// Adds the members of tokens, of which `timed` took the time.
inline void add_rate(OrderedJson& timings, const std::string& name, std::size_t tokens, std::size_t timed,
                     double milliseconds) {
  const double count = static_cast<double>(timed);
  timings[name + "_n"] = tokens;
  timings[name + "_ms"] = milliseconds;
  timings[name + "_per_token_ms"] = timed == 0 ? 0.0 : milliseconds / count;
  timings[name + "_per_second"] = milliseconds > 0 ? count * 1e3 / milliseconds : 0.0;
}

/// `timings`: milliseconds of the prompt, waiting included, and of the answer behind its first token, whose rates leave
/// that token out. All are finite and not negative.
inline OrderedJson timings_of(const Stopwatch& time, std::size_t prompt, const slm::Stats& stats) {
  const auto between = [](Stopwatch::Clock::time_point from, Stopwatch::Clock::time_point to) {
    return std::max(std::chrono::duration<double, std::milli>(to - from).count(), 1e-3);
  };
  const auto cached = static_cast<std::size_t>(stats.reused_tokens);
  const std::size_t read = prompt - std::min(prompt, cached);
  const double prompt_ms = between(time.begin, time.first), answer_ms = between(time.first, time.last);
  OrderedJson json{{"cache_n", cached}};
  add_rate(json, "prompt", read, read, prompt_ms);
  add_rate(json, "predicted", time.tokens, time.tokens - std::min<std::size_t>(time.tokens, 1), answer_ms);
  if (stats.drafted > 0) {
    json["draft_n"] = stats.drafted;
    json["draft_n_accepted"] = stats.accepted;
  }
  return json;
}

}  // namespace serve
