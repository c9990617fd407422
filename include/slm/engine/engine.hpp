// Engine: answers requests as they come, many in each step of the model.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/generation.hpp"
#include "slm/decode/rounds.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/vocabulary.hpp"
#include "slm/engine/answer.hpp"
#include "slm/engine/bell.hpp"
#include "slm/engine/options.hpp"
#include "slm/engine/prompt_budget.hpp"
#include "slm/engine/room.hpp"
#include "slm/engine/stats.hpp"
#include "slm/engine/timeline.hpp"
#include "slm/engine/work.hpp"
#include "slm/model/language_model.hpp"

namespace slm::inline v0_1 {

/// submit() and stats() may be called by any thread at any time. step() and run() belong to one thread at a time, which
/// is the only one that computes. What an answer says depends on its request alone: not on the others, on the order in
/// which they came, nor on what was preempted or shared meanwhile.
template <class Draft, LanguageModel Target, VerificationRule Rule = rule::Coupled>
class Engine {
  using DrafterType = typename DrafterFor<Draft>::type;
  using Answering = Generation<DrafterType, Rule>;

  static_assert(Rule::may_drop,
                "slm: under this rule a text depends on how far was drafted, and so on the engine's load; use "
                "rule::Coupled or rule::Match");

 public:
  /// Throws Error as SpeculativeDecoder does.
  Engine(Draft draft, Target target, EngineOptions options = {}, Rule rule = {})
      : draft_(std::move(draft)), target_(std::move(target)), options_(std::move(options)), rule_(std::move(rule)) {
    if (!options_.speculation.clock) options_.speculation.clock = steady_seconds;
    if constexpr (LanguageModel<Draft>) check_same_tokenizer(draft_.info(), target_.info());
    policy_of(options_.speculation);
    pool_ = target_.pool({.memory = options_.cache_memory, .share_prefixes = options_.share_prefixes});
  }

  /// Queues a request. wake: called by the engine's thread when there is something to fetch, once maybe after its
  /// reader has seen the end; it must not take long nor throw. Throws Error where the request is unusable, and
  /// engine.full. An adapter that cannot be had ends the answer.
  Answer submit(Request request, const Scheduling& scheduling = {}, std::function<void()> wake = {}) {
    check_request(request, target_.info());
    auto state = std::make_shared<detail::AnswerState>();
    state->wake = std::move(wake);
    const std::lock_guard lock(mutex_);
    if (present_ >= options_.max_requests) {
      ++stats_.refused;
      throw Error("engine.full", text("the engine holds ", present_, " requests, the most it takes"),
                  "Try again later, or raise EngineOptions::max_requests");
    }
    ++present_;
    const std::stop_token cancel = request.cancel;
    detail::give_rows_to(*state, request);
    coming_.push_back({std::move(request), cancel, scheduling, next_number_++, state,
                       detail::Timeline(options_.speculation.clock())});
    if (scheduling.adapter) scheduling.adapter.on_news([bell = bell_] { bell->ring(); });
    bell_->ring();
    return Answer(std::move(state));
  }

  /// Takes the running texts through one round. False when there was nothing to do: no request, or all that are left
  /// wait for their readers or adapters. Throws what a device throws that fails; the answers then end with that error.
  bool step() {
    take_coming();
    end_those_that_should();
    start_waiting();
    choose_round();
    if (round_.empty()) return false;
    rounds_.waiting = running_.size() - round_.size();
    const double began = options_.speculation.clock();
    try {
      run_round(std::span<Answering* const>(round_), target_, rounds_, options_.speculation.clock,
                [&](const Answering& one) { faults_.emplace_back(&one, std::current_exception()); });
    } catch (const Error& error) {
      if (error.id() != "cache.full" && error.id() != "backend.out-of-memory" && error.id() != "gpu.out-of-memory") {
        return fail_all();
      }
      make_way();
      return true;
    } catch (const std::bad_alloc&) {
      make_way();
      return true;
    } catch (...) {
      return fail_all();
    }
    end_faulty();
    const double now = options_.speculation.clock();
    hand_over(now, now - began);
    prompt_budget_.learn(now - began, options_.step_seconds);
    return true;
  }

  /// Steps until there is nothing to do, nor to come from a store of adapters.
  void run() {
    while (step() || (stats_.deferred > 0 && running_.empty())) {
      if (round_.empty()) bell_->wait();
    }
  }

  /// Steps as requests come, until `stop` is requested; what runs then stays.
  void run(std::stop_token stop) {
    while (!stop.stop_requested()) {
      if (!step()) bell_->wait(stop);
    }
  }

  EngineStats stats() const {
    EngineStats stats;
    {
      const std::lock_guard lock(mutex_);
      stats = stats_;
      stats.waiting = present_ - stats.running;
    }
    if (pool_) {
      stats.cache_used = pool_.used();
      stats.cache_idle = pool_.idle();
      stats.cache_memory = pool_.budget();
      stats.page_bytes = pool_.layout().bytes_of(page_positions);
      stats.prefixes = pool_.prefix_stats();
    }
    return stats;
  }

  const Target& target() const { return target_; }

 private:
  using Work = detail::Work<Answering>;
  using Works = detail::Works<Answering>;

  void take_coming() {
    const std::lock_guard lock(mutex_);
    for (; !coming_.empty(); coming_.pop_front()) insert(waiting_, std::move(coming_.front()));
    stats_.running = running_.size();
  }

  static void insert(Works& works, Work&& work) { works.insert(detail::place_of(works, work), std::move(work)); }

  /// Those that are cancelled, wanted no more, or too late.
  void end_those_that_should() {
    const auto now = std::chrono::steady_clock::now();
    for (Works* works : {&waiting_, &running_}) {
      for (auto work = works->begin(); work != works->end();) {
        const auto one = work++;
        if (one->answer->cancelled || one->cancel.stop_requested()) {
          finish(*works, one, FinishReason::cancelled);
        } else if (one->answer->satisfied) {
          finish(*works, one, FinishReason::sink);
        } else if (now >= one->scheduling.deadline) {
          finish(*works, one, FinishReason::deadline);
        }
      }
    }
  }

  /// Begins what waits while there are places, and memory for its text. Those whose adapter is not there are passed by;
  /// the first of them gets the next room that there is for one.
  void start_waiting() {
    Work* passed = nullptr;
    std::size_t deferred = 0;
    for (auto next = waiting_.begin(); next != waiting_.end() && running_.size() < options_.max_running;) {
      const auto work = next++;
      if (!running_.empty() && (crowded_ || work->number == without_room_)) break;
      const bool wants = work->wants_adapter();
      try {
        if (wants && (detail::bars(passed, options_.max_running) || !work->take_adapter(target_.info()))) {
          if (deferred++ == 0) passed = &*work, work->scheduling.adapter.press();
          continue;
        }
      } catch (...) {
        end_with(waiting_, work, std::current_exception());
        continue;
      }
      if (!running_.empty() && !detail::fits(*work, running_, pool_)) {
        without_room_ = work->number;
        if (wants) work->request.adapter = nullptr;
        break;
      }
      if (wants && passed != nullptr) ++passed->overtaken;
      if (work->generation == nullptr) {
        work->scheduling.adapter = {};
        work->generation = generation();
        work->generation->start(std::move(work->request));
        work->timeline.begin(options_.speculation.clock());
      }
      running_.splice(detail::place_of(running_, *work), waiting_, work);
      if (!work->generation->going()) close(running_, work);
    }
    const std::lock_guard lock(mutex_);
    stats_.deferred = deferred;
  }

  /// One that is at rest: what its draft length has learnt holds for the next request too.
  std::unique_ptr<Answering> generation() {
    if (resting_.empty()) {
      return std::make_unique<Answering>(DrafterType(draft_), Sequence(pool_), target_.info(), options_.speculation,
                                         rule_);
    }
    auto one = std::move(resting_.back());
    resting_.pop_back();
    return one;
  }

  /// Texts that take part in the coming round: those that decode, and as much of prompts as a step has room for. A text
  /// whose reader has fallen behind pauses, and one that begins like another waits for the pages that the other fills.
  void choose_round() {
    round_.clear();
    filling_.clear();
    prompt_budget_.begin_step();
    std::size_t left_answered = most_scored_rows(target_.info());
    for (Work& work : running_) {
      work.in_round = false;
      if (work.unread() >= options_.max_unread) continue;
      Answering& generation = *work.generation;
      generation.adopt();
      const std::size_t to_read = generation.left_to_read();
      if (to_read > 0) {
        const bool answers = generation.asks_of_prompt(), shares = pool_.prefixes() != nullptr && !answers;
        if (shares && detail::waits_for_pages(generation, filling_)) continue;
        const std::size_t chunk = prompt_budget_.take(answers ? std::min(to_read, left_answered) : to_read);
        if (answers) left_answered -= chunk;
        if (chunk == 0) continue;
        generation.set_chunk(chunk);
        if (shares) filling_.push_back(&generation);
      } else {
        generation.set_chunk(prompt_budget_.take(generation.left_to_catch_up()));
      }
      work.in_round = true;
      round_.push_back(&generation);
    }
  }

  /// Gives the round's tokens to their readers.
  void hand_over(double now, double took) {
    for (Work& work : running_) {
      work.said = false;
      if (!work.in_round) continue;
      while (const GeneratedToken* token = work.generation->next()) {
        const std::lock_guard lock(work.answer->mutex);
        work.answer->tokens.emplace_back(*token);
        work.said = true;
      }
    }
    count_step(now, took);
    for (auto work = running_.begin(); work != running_.end();) {
      const auto one = work++;
      if (one->in_round && !one->generation->going()) {
        close(running_, one);
      } else if (one->said) {
        notify(*one->answer);
      }
    }
  }

  void count_step(double now, double took) {
    const std::lock_guard lock(mutex_);
    std::int64_t tokens = 0;
    for (Work& work : running_) {
      if (work.in_round) tokens += work.timeline.count_round(stats_, *work.generation, now);
    }
    stats_.running = running_.size();
    ++stats_.steps;
    stats_.step_tokens.add(static_cast<double>(tokens));
    stats_.step_seconds.add(took);
  }

  /// There was no memory for the round: the last of the texts waits until there is, and is then read again. Where it
  /// runs alone, its memory is all there is.
  void make_way() {
    for (Answering* one : round_) one->undo_round();
    const auto last = std::prev(running_.end());
    if (running_.size() == 1) return end_with(running_, last, std::current_exception());
    last->generation->preempt();
    last->timeline.preempt();
    insert(waiting_, std::move(*last));
    running_.erase(last);
    crowded_ = true;
    const std::lock_guard lock(mutex_);
    ++stats_.preemptions;
  }

  /// Those of the round whose answer was not usable.
  void end_faulty() {
    for (auto& fault : faults_) {
      const auto work = std::find_if(running_.begin(), running_.end(),
                                     [&](const Work& one) { return one.generation.get() == fault.first; });
      end_with(running_, work, std::move(fault.second));
    }
    faults_.clear();
  }

  bool fail_all() {
    const std::exception_ptr error = std::current_exception();
    while (!running_.empty()) end_with(running_, running_.begin(), error);
    std::rethrow_exception(error);
  }

  void end_with(Works& works, typename Works::iterator work, std::exception_ptr error) {
    {
      const std::lock_guard lock(work->answer->mutex);
      work->answer->error = std::move(error);
    }
    finish(works, work, FinishReason::error);
  }

  void finish(Works& works, typename Works::iterator work, FinishReason reason) {
    if (work->generation != nullptr) {
      work->generation->end_with(reason);
    } else {
      const std::lock_guard lock(work->answer->mutex);
      work->answer->stats.finish_reason = reason;
    }
    close(works, work);
  }

  /// The answer is over. Whoever sees that sees it counted too, and its memory given back.
  void close(Works& works, typename Works::iterator place) {
    Work work = std::move(*place);
    works.erase(place);
    crowded_ = false;
    without_room_ = nobody;
    detail::AnswerState& answer = *work.answer;
    if (work.generation != nullptr) {
      {
        const std::lock_guard lock(answer.mutex);
        answer.stats = work.generation->stats();
      }
      work.generation->let_go();
      resting_.push_back(std::move(work.generation));
    }
    {
      const std::lock_guard lock(mutex_);
      --present_;
      stats_.running = running_.size();
      work.timeline.count_end(stats_, answer.stats, options_.speculation.clock());
    }
    {
      const std::lock_guard lock(answer.mutex);
      answer.over = true;
    }
    notify(answer);
  }

  static void notify(detail::AnswerState& answer) {
    answer.changed.notify_all();
    if (answer.wake) answer.wake();
  }

  static constexpr std::uint64_t nobody = std::numeric_limits<std::uint64_t>::max();

  Draft draft_;
  Target target_;
  EngineOptions options_;
  Rule rule_;
  KvPool pool_;

  const std::shared_ptr<detail::Bell> bell_ = std::make_shared<detail::Bell>();  // rung when something has come
  mutable std::mutex mutex_;
  std::deque<Work> coming_;  // submitted since the last step
  std::size_t present_ = 0;  // requests that are not over
  std::uint64_t next_number_ = 0;
  EngineStats stats_;

  // Of the engine's thread.
  Works waiting_, running_;  // in their order
  std::vector<std::unique_ptr<Answering>> resting_;
  std::vector<Answering*> round_;
  std::vector<const Answering*> filling_;  // of those, the ones that read and leave pages to others
  std::vector<std::pair<const Answering*, std::exception_ptr>> faults_;
  RoundState rounds_{options_.speculation};
  detail::PromptBudget prompt_budget_;
  bool crowded_ = false;                 // a text had to make way, and none has ended since
  std::uint64_t without_room_ = nobody;  // the number of one that found no memory, and no text has ended since
};

}  // namespace slm
