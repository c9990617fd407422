// The functions of Engine. A source with SLM_IMPLEMENTATION 0 needs this header for other rules than rule::Coupled.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/cancel.hpp"
#include "slm/core/error.hpp"
#include "slm/decode/generation.hpp"
#include "slm/decode/rounds.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/token_map.hpp"
#include "slm/engine/admission.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/engine.hpp"
#include "slm/engine/job.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/prompt_budget.hpp"
#include "slm/engine/requests.hpp"
#include "slm/engine/stats.hpp"
#include "slm/engine/timeline.hpp"
#include "slm/engine/wake_event.hpp"
#include "slm/lm/any_model.hpp"

namespace slm { inline namespace v0_1 {

template <VerificationRule Rule>
struct Engine<Rule>::State {
  using GenerationType = Generation<Rule>;
  using Job = detail::Job<GenerationType>;
  using Jobs = detail::Jobs<GenerationType>;

  State(Drafter draft, AnyModel target, EngineOptions options, Rule rule)
      : draft_(std::move(draft)), target_(std::move(target)), options_(std::move(options)), rule_(std::move(rule)) {
    if (!options_.speculation.clock) options_.speculation.clock = steady_seconds;
    if (draft_.model() != nullptr) draft_.set(detail::map_tokens(draft_.model()->info(), target_.info()));
    policy_of(options_.speculation);
    pool_ = target_.pool({.memory = options_.cache_memory, .share_prefixes = options_.share_prefixes});
  }

  Answer submit(Request request, const Scheduling& scheduling, std::function<void()> wake) {
    check_request(request, target_.info());
    auto state = std::make_shared<detail::AnswerState>();
    state->wake = std::move(wake);
    state->wake_event = wake_event_;
    Answer answer(state);
    const CancelToken cancel = request.cancel;
    detail::give_rows_to(*state, request);
    if (scheduling.adapter) scheduling.adapter.on_news([wake_event = wake_event_] { wake_event->notify(); });
    Jobs one;
    one.push_back(
        {std::move(request), cancel, scheduling, 0, std::move(state), detail::Timeline(options_.speculation.clock())});
    requests_.add(one);
    wake_event_->notify();
    return answer;
  }

  /// time: seconds for the step's prompts; none: EngineOptions::step_seconds.
  bool step(std::optional<double> time = {}) {
    try {
      return round(time);
    } catch (...) {
      end_all(FinishReason::error, std::current_exception());
      throw;
    }
  }

  bool step_for(double seconds) {
    const auto& clock = options_.speculation.clock;
    const double end = clock() + seconds;
    bool worked = false;
    for (double left = seconds, took = 0; !worked || took <= left; left = end - clock()) {
      const double began = clock();
      if (!step(std::max(left, 0.0))) break;
      took = clock() - began;
      worked = true;
    }
    return worked;
  }

  void run() {
    while (step() || (deferred_ > 0 && requests_.running.empty())) {
      if (round_.empty()) wake_event_->wait();
    }
  }

  void run(const CancelToken& stop) {
    while (!stop.stop_requested()) {
      if (!step()) wake_event_->wait();
    }
    end_all(FinishReason::cancelled, nullptr, true);
  }

  EngineStats stats() const {
    EngineStats stats = requests_.stats();
    if (pool_) {
      stats.cache_used = pool_.used();
      stats.cache_idle = pool_.idle();
      stats.cache_memory = pool_.budget();
      stats.page_bytes = pool_.bytes_of(page_positions);
      stats.prefixes = pool_.prefix_stats();
    }
    return stats;
  }

  bool round(std::optional<double> time) {
    requests_.take_coming();
    end_those_that_should();
    start_waiting();
    choose_round(time);
    if (round_.empty()) return false;
    rounds_.waiting = requests_.running.size() - round_.size();
    const double began = options_.speculation.clock();
    try {
      run_round(std::span<GenerationType* const>(round_), target_, rounds_, options_.speculation.clock,
                [&](const GenerationType& one) { faults_.emplace_back(&one, std::current_exception()); });
    } catch (const Error& error) {
      if (error.id() != "cache.full" && error.id() != "backend.out-of-memory" && error.id() != "gpu.out-of-memory") {
        throw;
      }
      make_way();
      return true;
    } catch (const std::bad_alloc&) {
      make_way();
      return true;
    }
    end_faulty();
    const double now = options_.speculation.clock();
    hand_over(now, now - began);
    prompt_budget_.learn(now - began, options_.step_seconds);
    return true;
  }

  /// Ends requests that are cancelled, stopped by their reader, or past their deadline.
  void end_those_that_should() {
    const auto now = std::chrono::steady_clock::now();
    for (Jobs* jobs : {&requests_.waiting, &requests_.running}) {
      for (auto job = jobs->begin(); job != jobs->end();) {
        const auto one = job++;
        if (one->answer->cancelled || one->cancel.stop_requested()) {
          requests_.end(*jobs, one, FinishReason::cancelled);
        } else if (one->answer->satisfied) {
          requests_.end(*jobs, one, FinishReason::sink);
        } else if (now >= one->scheduling.deadline) {
          requests_.end(*jobs, one, FinishReason::deadline);
        }
      }
    }
  }

  /// Starts queued requests while slots and KV memory are available. Requests whose adapter is not loaded are skipped;
  /// the first of them gets the next free adapter memory.
  void start_waiting() {
    Job* passed = nullptr;
    std::size_t deferred = 0;
    for (auto next = requests_.waiting.begin();
         next != requests_.waiting.end() && requests_.running.size() < options_.max_running;) {
      const auto job = next++;
      if (!requests_.running.empty() && (requests_.crowded || job->number == requests_.without_memory)) break;
      const bool wants = job->wants_adapter();
      try {
        if (wants && (detail::bars(passed, options_.max_running) || !job->take_adapter(target_.info()))) {
          if (deferred++ == 0) passed = &*job, job->scheduling.adapter.press();
          continue;
        }
      } catch (...) {
        requests_.end(requests_.waiting, job, FinishReason::error, std::current_exception());
        continue;
      }
      if (!requests_.running.empty() && !detail::fits(*job, requests_.running, pool_)) {
        requests_.without_memory = job->number;
        if (wants) job->request.adapter = nullptr;
        break;
      }
      if (wants && passed != nullptr) ++passed->overtaken;
      try {
        if (job->generation == nullptr) begin(*job);
      } catch (...) {
        requests_.end(requests_.waiting, job, FinishReason::error, std::current_exception());
        continue;
      }
      requests_.start(job);
      if (!job->generation->going()) requests_.close(requests_.running, job);
    }
    deferred_ = deferred;
    requests_.count([&](EngineStats& stats) { stats.deferred = deferred; });
  }

  void begin(Job& job) {
    job.scheduling.adapter = {};
    std::unique_ptr<GenerationType> one = generation();
    const bool reports = job.request.progress != nullptr;
    one->start(std::move(job.request));
    if (reports) {
      one->adopt();
      one->report_progress();
    }
    job.timeline.begin(options_.speculation.clock());
    job.generation = std::move(one);
  }

  /// Reuses an idle generation.
  std::unique_ptr<GenerationType> generation() {
    if (requests_.resting.empty()) {
      return std::make_unique<GenerationType>(draft_, Sequence(pool_), target_.info(), options_.speculation, rule_);
    }
    auto one = std::move(requests_.resting.back());
    requests_.resting.pop_back();
    return one;
  }

  /// Selects the requests of the next round: decoding ones, and as many prompt rows as fit. A request pauses while its
  /// reader lags. A request with a common prefix waits for the pages that another one computes.
  void choose_round(std::optional<double> time) {
    round_.clear();
    filling_.clear();
    prompt_budget_.begin_step(time);
    std::size_t left_answered = most_scored_rows(target_.info());
    for (Job& job : requests_.running) {
      job.in_round = false;
      if (job.unread() >= options_.max_unread) continue;
      GenerationType& generation = *job.generation;
      generation.adopt();
      const std::size_t to_read = generation.left_to_read();
      if (to_read > 0) {
        const bool answers = generation.asks_of_prompt(), shares = pool_.shares_prefixes() && !answers;
        if (shares && detail::waits_for_pages(generation, filling_)) continue;
        const std::size_t chunk = prompt_budget_.take(answers ? std::min(to_read, left_answered) : to_read);
        if (answers) left_answered -= chunk;
        if (chunk == 0) continue;
        generation.set_chunk(chunk);
        if (shares) filling_.push_back(&generation);
      } else {
        generation.set_chunk(prompt_budget_.take(generation.left_to_catch_up()));
      }
      job.in_round = true;
      round_.push_back(&generation);
    }
  }

  /// Passes the round's tokens to their readers.
  void hand_over(double now, double took) {
    for (Job& job : requests_.running) {
      job.said = false;
      if (!job.in_round) continue;
      while (const GeneratedToken* token = job.generation->next()) {
        const std::lock_guard lock(job.answer->mutex);
        job.answer->tokens.emplace_back(*token);
        job.said = true;
      }
    }
    count_step(now, took);
    for (auto job = requests_.running.begin(); job != requests_.running.end();) {
      const auto one = job++;
      if (one->in_round && !one->generation->going()) {
        requests_.close(requests_.running, one);
      } else if (one->said) {
        requests_.notify(*one->answer);
      }
    }
  }

  void count_step(double now, double took) {
    requests_.count([&](EngineStats& stats) {
      std::int64_t tokens = 0;
      for (Job& job : requests_.running) {
        if (!job.in_round) continue;
        tokens += job.timeline.count_round(stats, *job.generation, now);
        stats.longest_text = std::max(stats.longest_text, std::ssize(job.generation->history()));
        ++stats.step_requests;
      }
      stats.running = requests_.running.size();
      ++stats.steps;
      stats.step_tokens.add(static_cast<double>(tokens));
      stats.step_seconds.add(took);
    });
  }

  /// Handles lack of memory in a round: requeues the last running request. If it is the only one, it ends with the
  /// error.
  void make_way() {
    for (GenerationType* one : round_) one->undo_round();
    const auto last = std::prev(requests_.running.end());
    if (requests_.running.size() == 1)
      return requests_.end(requests_.running, last, FinishReason::error, std::current_exception());
    last->generation->preempt();
    last->timeline.preempt();
    requests_.requeue(last);
    requests_.crowded = true;
    requests_.count([](EngineStats& stats) { ++stats.preemptions; });
  }

  /// Ends requests whose results were invalid.
  void end_faulty() {
    for (auto& fault : faults_) {
      const auto job = std::find_if(requests_.running.begin(), requests_.running.end(),
                                    [&](const Job& one) { return one.generation.get() == fault.first; });
      requests_.end(requests_.running, job, FinishReason::error, fault.second);
    }
    faults_.clear();
  }

  void end_all(FinishReason reason, const std::exception_ptr& error, bool stop = false) noexcept {
    requests_.end_all(reason, error, stop);
    round_.clear();
    faults_.clear();
  }

  Drafter draft_;
  AnyModel target_;
  EngineOptions options_;
  Rule rule_;
  KvPool pool_;

  const std::shared_ptr<detail::WakeEvent> wake_event_ =
      std::make_shared<detail::WakeEvent>();  // notified of new requests and notifications
  detail::Requests<GenerationType> requests_{options_};

  // The members below belong to the engine's thread.
  std::size_t deferred_ = 0;  // queued requests whose adapter is not loaded
  std::vector<GenerationType*> round_;
  std::vector<const GenerationType*> filling_;  // those that compute pages for others
  std::vector<std::pair<const GenerationType*, std::exception_ptr>> faults_;
  RoundState rounds_{options_.speculation};
  detail::PromptBudget prompt_budget_{options_.prompt_rows};
};

template <VerificationRule Rule>
Engine<Rule>::Engine(Drafter draft, AnyModel target, EngineOptions options, Rule rule)
    : state_(std::make_unique<State>(std::move(draft), std::move(target), std::move(options), std::move(rule))) {}

template <VerificationRule Rule>
Engine<Rule>::~Engine() {
  state_->end_all(FinishReason::cancelled, nullptr);
}

template <VerificationRule Rule>
Answer Engine<Rule>::submit(Request request, const Scheduling& scheduling, std::function<void()> wake) {
  return state_->submit(std::move(request), scheduling, std::move(wake));
}
template <VerificationRule Rule>
bool Engine<Rule>::step() {
  return state_->step();
}
template <VerificationRule Rule>
bool Engine<Rule>::step_for(std::chrono::nanoseconds time) {
  return state_->step_for(std::chrono::duration<double>(time).count());
}
template <VerificationRule Rule>
void Engine<Rule>::run() {
  state_->run();
}
template <VerificationRule Rule>
void Engine<Rule>::run(const CancelToken& stop) {
  state_->run(stop);
}
template <VerificationRule Rule>
EngineStats Engine<Rule>::stats() const {
  return state_->stats();
}
template <VerificationRule Rule>
const AnyModel& Engine<Rule>::target() const {
  return state_->target_;
}

}}
