// What an engine tells of itself: counters and histograms, as monitoring systems want them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "slm/decode/stats.hpp"
#include "slm/model/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// How values spread over buckets with fixed bounds.
struct Histogram {
  static constexpr std::size_t most_bounds = 22;

  /// The bounds ascend and live forever.
  explicit Histogram(std::span<const double> upper_bounds) : bounds(upper_bounds) {}

  void add(double value, std::int64_t times = 1) {
    counts[static_cast<std::size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())] += times;
    sum += value * static_cast<double>(times);
    count += times;
  }

  std::span<const double> bounds;
  /// Of values above the bound before and up to bounds[i]; one more for those above all.
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

/// Since the engine began. Of tokens: sum of step_tokens = prompt_tokens + generation_tokens.
struct EngineStats {
  // Now.
  std::size_t waiting = 0, running = 0;
  std::size_t deferred = 0;      // of those that wait: whose adapter is not there
  std::size_t cache_used = 0;    // bytes of pages that are in use ...
  std::size_t cache_idle = 0;    // ... of which no text holds these; they are kept for texts that begin alike
  std::size_t cache_memory = 0;  // bytes they may take; 0: what a device with memory of its own has
  std::size_t page_bytes = 0;    // of keys and values of page_positions tokens
  PrefixStats prefixes = {};

  std::int64_t steps = 0;
  std::int64_t preemptions = 0;
  std::int64_t refused = 0;                      // engine.full
  std::int64_t finished = 0;                     // whatever ended them
  std::array<std::int64_t, 8> finished_by = {};  // by FinishReason
  std::int64_t prompt_tokens = 0;                // read, or found in the cache
  std::int64_t generation_tokens = 0;

  std::int64_t drafts = 0;
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::int64_t draft_faults = 0;                     // requests that went on without their draft, which had failed
  std::vector<std::int64_t> accepted_at_depth = {};  // [most draft length]: drafts whose token 1, 2, ... was emitted

  // Seconds, of requests that began; the last three of those that brought a token.
  Histogram request_seconds{detail::request_bounds};    // from submit() to the end
  Histogram queue_seconds{detail::request_bounds};      // from submit() to the first step
  Histogram inference_seconds{detail::request_bounds};  // from there to the end
  Histogram prefill_seconds{detail::request_bounds};    // from there to the first token
  Histogram decode_seconds{detail::request_bounds};     // from the first token to the last
  Histogram seconds_per_token{detail::token_bounds};    // of those behind a request's first
  // Seconds, of tokens.
  Histogram first_token_seconds{detail::first_token_bounds};  // from submit()
  Histogram token_seconds{detail::token_bounds};              // from one to the next; those of a round share its time
  // Of requests that began.
  Histogram request_prompt_tokens{detail::length_bounds};
  Histogram request_generation_tokens{detail::length_bounds};
  Histogram request_preemptions{detail::few_bounds};
  // Of steps.
  Histogram step_tokens{detail::rows_bounds};  // of prompts and generated
  Histogram step_seconds{detail::token_bounds};
};

}}
