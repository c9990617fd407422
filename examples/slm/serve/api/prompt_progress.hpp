// PromptProgress: how far a prompt is read, as llama.cpp's server reports it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "api/refusal.hpp"
#include "api/timings.hpp"

namespace serve {

/// The engine's thread reports, the connection's thread takes.
class PromptProgress {
 public:
  struct Report {
    std::size_t processed, cached, total;
    double since_request, since_first;  // milliseconds
  };

  /// total: the tokens of the prompt.
  explicit PromptProgress(std::size_t total) : total_(total) {}

  /// read: tokens that are read, at first those of the cache. of: those before the last token, which is read in the
  /// step of the first answered one.
  void report(std::size_t read, std::size_t of) {
    const std::lock_guard lock(mutex_);
    if (!begun_ || (read > last_ && read < of)) add(read);
  }

  /// The reports since the last call, with `complete` up to the one of the whole prompt.
  std::vector<Report> take(bool complete) {
    const std::lock_guard lock(mutex_);
    if (complete && !begun_) add(0);
    if (complete && last_ < total_) add(total_);
    return std::exchange(reports_, {});
  }

 private:
  void add(std::size_t read) {
    const auto now = Stopwatch::Clock::now();
    if (!begun_) begun_ = now, cached_ = read;
    last_ = read;
    const auto milliseconds = [now](auto since) {
      return std::chrono::duration<double, std::milli>(now - since).count();
    };
    reports_.push_back({read, cached_, total_, milliseconds(requested_), milliseconds(*begun_)});
  }

  const std::size_t total_;
  const Stopwatch::Clock::time_point requested_ = Stopwatch::Clock::now();
  std::mutex mutex_;  // guards the members below
  std::optional<Stopwatch::Clock::time_point> begun_;
  std::size_t cached_ = 0, last_ = 0;
  std::vector<Report> reports_;
};

/// Adds `prompt_progress` to an event, and `timings` with_timings.
inline void add_progress(OrderedJson& event, const PromptProgress::Report& report, bool with_timings) {
  event["prompt_progress"] = {{"total", report.total},
                              {"cache", report.cached},
                              {"processed", report.processed},
                              {"time_ms", static_cast<std::int64_t>(report.since_request)}};
  if (!with_timings) return;
  OrderedJson& timings = event["timings"] = {{"cache_n", report.cached}};
  const std::size_t read = report.processed - report.cached;
  add_rate(timings, "prompt", read, read, report.since_first);
  add_rate(timings, "predicted", 0, 0, 0);
}

}  // namespace serve
