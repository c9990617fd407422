// EngineStats: counters and histograms of an engine, for monitoring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/decode/stats.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// A histogram with fixed bucket bounds.
struct Histogram {
  static constexpr std::size_t most_bounds = 22;

  /// The bounds must ascend and have static lifetime.
  explicit Histogram(std::span<const double> upper_bounds) : bounds(upper_bounds) {}

  void add(double value, std::int64_t times = 1) {
    counts[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())] += times;
    sum += value * static_cast<double>(times);
    count += times;
  }

  std::span<const double> bounds;
  /// counts[i]: values in (bounds[i - 1], bounds[i]]; the last one: values above all bounds.
  std::array<std::int64_t, most_bounds + 1> counts = {};
  double sum = 0;
  std::int64_t count = 0;
};

namespace detail {

inline constexpr double first_token_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                                1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
inline constexpr double token_bounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                          .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
inline constexpr double request_bounds[] = {.1, .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,
                                            20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
inline constexpr double load_bounds[] = {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05,
                                         .1,    .25,    .5,    1,    2.5,   5,    10,  25,   50};
inline constexpr double length_bounds[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                           1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
inline constexpr double rows_bounds[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
inline constexpr double few_bounds[] = {0, 1, 2, 5, 10, 20, 50, 100};

}  // namespace detail

/// Counts since construction. sum of step_tokens = prompt_tokens + generation_tokens.
struct EngineStats {
  // Current values.
  std::size_t waiting = 0, running = 0;
  std::size_t deferred = 0;      // waiting requests whose adapter is not loaded
  std::size_t cache_used = 0;    // bytes of pages in use ...
  std::size_t cache_idle = 0;    // ... of these, bytes that only the prefix index holds
  std::size_t cache_memory = 0;  // budget in bytes; 0: the device's separate memory
  std::size_t page_bytes = 0;    // bytes of a page of page_positions tokens
  PrefixStats prefixes = {};

  std::int64_t steps = 0;
  std::int64_t step_requests = 0;  // requests in all steps
  std::int64_t longest_text = 0;   // tokens of the longest prompt and output so far
  std::int64_t preemptions = 0;
  std::int64_t refused = 0;                      // engine.full
  std::int64_t finished = 0;                     // ended requests, for any reason
  std::array<std::int64_t, 9> finished_by = {};  // by FinishReason
  std::int64_t prompt_tokens = 0;                // computed or found in the cache
  std::int64_t generation_tokens = 0;

  std::int64_t drafts = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::int64_t draft_faults = 0;                     // requests that continued without their draft after its failure
  std::vector<std::int64_t> accepted_at_depth = {};  // [most draft length]: drafts whose token 1, 2, ... was emitted

  // Seconds per started request; the last three: per request with tokens.
  Histogram request_seconds{detail::request_bounds};    // from submit() to the end
  Histogram queue_seconds{detail::request_bounds};      // from submit() to the first step
  Histogram inference_seconds{detail::request_bounds};  // from the first step to the end
  Histogram prefill_seconds{detail::request_bounds};    // from the first step to the first token
  Histogram decode_seconds{detail::request_bounds};     // from the first token to the last
  Histogram seconds_per_token{detail::token_bounds};    // average per token after the first
  // Seconds per token.
  Histogram first_token_seconds{detail::first_token_bounds};  // from submit() to the first token
  Histogram token_seconds{detail::token_bounds};              // between tokens; tokens of a round share its time
  // Per started request.
  Histogram request_prompt_tokens{detail::length_bounds};
  Histogram request_generation_tokens{detail::length_bounds};
  Histogram request_preemptions{detail::few_bounds};
  // Per step.
  Histogram step_tokens{detail::rows_bounds};  // prompt and generated tokens
  Histogram step_seconds{detail::token_bounds};
};

}}
