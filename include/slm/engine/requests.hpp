// Requests: the requests of an engine and their states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/stats.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/job.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/stats.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Each transition in the table at RequestState is a function here. add() and stats() are thread-safe; the thread that
/// steps the engine calls the others.
template <class GenerationType>
class Requests {
 public:
  using Place = typename Jobs<GenerationType>::iterator;

  /// The options must outlive it.
  explicit Requests(const EngineOptions& options) : options_(options) {}

  /// Adds a request, the only element of the list, as queued. Throws engine.stopped and engine.full without any change.
  void add(Jobs<GenerationType>& one) {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
      throw Error("engine.stopped", "the engine is stopped: run(stop) has returned",
                  "Call run() or step() before the next submit()");
    }
    if (present_ >= options_.max_requests) {
      ++stats_.refused;
      throw Error("engine.full", text("the engine holds ", present_, " requests, expected at most that many"),
                  "Try again later, or raise EngineOptions::max_requests");
    }
    one.front().number = next_number_++;
    ++present_;
    coming_.splice(coming_.end(), one);
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.waiting = present_ - stats.running;
    return stats;
  }
  /// Calls change(statistics) under the mutex.
  template <class Change>
  void count(Change change) {
    const std::lock_guard lock(mutex_);
    change(stats_);
  }

  /// Moves newly added requests to `waiting`. add() no longer throws engine.stopped.
  void take_coming() {
    const std::lock_guard lock(mutex_);
    stopped_ = false;
    sort_coming();
  }

  /// queued -> running
  void start(Place job) {
    running.splice(place_of(running, *job), waiting, job);
    set_state(*job->answer, RequestState::running);
  }

  /// running -> queued
  void requeue(Place job) {
    set_state(*job->answer, RequestState::queued);
    waiting.splice(place_of(waiting, *job), running, job);
  }

  /// queued or running -> ended, before completion
  void end(Jobs<GenerationType>& jobs, Place job, FinishReason reason, std::exception_ptr error = nullptr) noexcept {
    {
      const std::lock_guard lock(job->answer->mutex);
      job->answer->error = std::move(error);
      job->answer->stats.finish_reason = reason;
    }
    if (job->generation != nullptr) job->generation->end_with(reason);
    close(jobs, job);
  }

  /// queued or running -> ended. Statistics and memory are updated before readers observe the end.
  void close(Jobs<GenerationType>& jobs, Place place) noexcept {
    Jobs<GenerationType> ended;
    ended.splice(ended.begin(), jobs, place);
    Job<GenerationType>& job = ended.front();
    crowded = false;
    without_memory = none;
    AnswerState& answer = *job.answer;
    if (job.generation != nullptr) rest(job);
    job.request = {};
    job.scheduling.adapter = {};
    {
      const std::lock_guard lock(mutex_);
      --present_;
      stats_.running = running.size();
      job.timeline.count_end(stats_, answer.stats, options_.speculation.clock());
    }
    set_state(answer, RequestState::ended);
    notify(answer);
    answer.wake = nullptr;
  }

  /// queued or running -> ended, for all requests. stop: whether add() throws engine.stopped from now on.
  void end_all(FinishReason reason, const std::exception_ptr& error, bool stop) noexcept {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = stop;
      sort_coming();
    }
    for (Jobs<GenerationType>* jobs : {&waiting, &running}) {
      while (!jobs->empty()) end(*jobs, jobs->begin(), reason, error);
    }
    if (error) resting.clear();
  }

  static void notify(AnswerState& answer) noexcept {
    answer.changed.notify_all();
    try {
      if (answer.wake) answer.wake();
    } catch (...) {  // a callback's exception must not end other requests
    }
  }

  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

  Jobs<GenerationType> waiting, running;                 // ordered by (priority, arrival)
  std::vector<std::unique_ptr<GenerationType>> resting;  // idle generations, to be reused
  bool crowded = false;                                  // a request was requeued, and none has ended since
  std::uint64_t without_memory = none;                   // number of a request without memory, if none has ended since

 private:
  void sort_coming() {
    while (!coming_.empty()) waiting.splice(place_of(waiting, coming_.front()), coming_, coming_.begin());
    stats_.running = running.size();
  }

  static void set_state(AnswerState& answer, RequestState state) {
    const std::lock_guard lock(answer.mutex);
    answer.state = state;
  }

  /// Copies the statistics to the answer. The generation releases memory and callbacks and is kept for reuse; if that
  /// throws, it is destroyed.
  void rest(Job<GenerationType>& job) noexcept {
    try {
      const std::lock_guard lock(job.answer->mutex);
      job.answer->stats = job.generation->stats();
    } catch (...) {
      job.answer->error = std::current_exception();
    }
    try {
      job.generation->let_go();
      resting.push_back(std::move(job.generation));
    } catch (...) {
      job.generation.reset();
    }
  }

  const EngineOptions& options_;
  mutable std::mutex mutex_;
  Jobs<GenerationType> coming_;  // added since the last step
  bool stopped_ = false;         // run(stop) has returned, and no step has begun since
  std::size_t present_ = 0;      // requests that have not ended
  std::uint64_t next_number_ = 0;
  EngineStats stats_;
};

}}}
