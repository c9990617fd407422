// The C interface: engines and their answers.
#include <chrono>
#include <cmath>
#include <vector>

#include "handles.hpp"
#include "slm/core/cancel.hpp"
#include "slm/engine.hpp"

struct slm_engine {
  slm_engine(const slm_model& model, const slm_drafting& drafting, slm::EngineOptions options)
      : engine(c_api::drafter_of(drafting), model.model, std::move(options)) {}

  slm::Engine<> engine;
  std::atomic<bool> taken{false};  // by the thread that steps
  std::mutex mutex;
  slm::CancelSource stop;  // of the current or next run, guarded by the mutex
};

struct slm_answer {
  slm::Answer answer;
  std::vector<slm_logprob> top;
};

namespace c_api { namespace {

std::chrono::steady_clock::time_point deadline_in(double seconds) {
  const auto now = std::chrono::steady_clock::now();
  constexpr double a_year = 3.2e7;
  if (seconds == 0 || seconds > a_year) return std::chrono::steady_clock::time_point::max();
  if (!(seconds > 0)) {
    throw misuse("c.value", slm::text("expected seconds of 0 or more, found ", seconds),
                 "Set seconds to 0 for no limit");
  }
  return now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

slm::EngineOptions options_of(const slm_engine_options& given, const slm_drafting& drafting) {
  slm::EngineOptions options;
  options.speculation = speculation_of(drafting);
  options.cache_memory = given.cache_memory;
  options.share_prefixes = given.no_shared_prefixes == 0;
  if (given.max_requests != 0) options.max_requests = given.max_requests;
  if (given.max_running != 0) options.max_running = given.max_running;
  if (given.max_unread != 0) options.max_unread = given.max_unread;
  if (!std::isfinite(given.step_seconds) || given.step_seconds < 0) {
    throw misuse("c.value", slm::text("expected step_seconds of 0 or more, found ", given.step_seconds),
                 "Set step_seconds to 0 for the default");
  }
  if (given.step_seconds != 0) options.step_seconds = given.step_seconds;
  return options;
}

/// Passes on what next() or try_next() of an answer returned.
void pass(slm_answer& answer, const std::optional<slm::AnsweredToken>& found, slm_generated* token,
          std::int32_t* state) {
  if (!found) {
    *state = answer.answer.over() ? SLM_ANSWER_ENDED : SLM_ANSWER_PENDING;
    return;
  }
  copy_top(found->top, answer.top);
  write_struct(token, generated(found->token, found->position, found->drafted, found->logprob, answer.top),
               sizeof(slm_generated), "slm_generated");
  *state = SLM_ANSWER_TOKEN;
}

/// Checks the arguments before a token is taken from the answer.
slm_answer& checked(slm_answer* answer, slm_generated* token, std::int32_t* state) {
  required(state, "state");
  write_struct(token, generated(0, 0, false, 0, {}), sizeof(slm_generated), "slm_generated");
  return required(answer, "answer");
}

}}  // namespace c_api

using c_api::guarded;
using c_api::required;

slm_status slm_engine_create(const slm_model* model, const slm_engine_options* options, slm_engine** out) {
  return guarded([&] {
    required(out, "out");
    const auto given = c_api::read_struct(options, sizeof(slm_engine_options), "slm_engine_options");
    const slm_drafting drafting = c_api::drafting_of(given.drafting);
    *out = new slm_engine(required(model, "model"), drafting, c_api::options_of(given, drafting));
  });
}

slm_status slm_engine_submit(slm_engine* engine, const slm_request* request, const slm_scheduling* scheduling,
                             slm_answer** out) {
  return guarded([&] {
    required(out, "out");
    slm_engine& of = required(engine, "engine");
    const auto given = c_api::read_struct(scheduling, sizeof(slm_scheduling), "slm_scheduling");
    std::function<void()> wake;
    if (given.wake != nullptr) wake = [call = given.wake, user = given.user] { call(user); };
    const slm::Scheduling how{.priority = given.priority, .deadline = c_api::deadline_in(given.seconds)};
    *out = new slm_answer{of.engine.submit(c_api::request_of(request), how, std::move(wake)), {}};
  });
}

slm_status slm_engine_step(slm_engine* engine, int32_t* busy) {
  return guarded([&] {
    slm_engine& of = required(engine, "engine");
    required(busy, "busy");
    const c_api::Claim claim(of.taken, "slm_engine");
    *busy = of.engine.step() ? 1 : 0;
  });
}

slm_status slm_engine_step_for(slm_engine* engine, double seconds, int32_t* busy) {
  return guarded([&] {
    slm_engine& of = required(engine, "engine");
    required(busy, "busy");
    constexpr double a_day = 86400;
    if (!(seconds >= 0 && seconds <= a_day)) {
      throw c_api::misuse("c.value", slm::text("expected 0 to ", a_day, " seconds, found ", seconds),
                          "Pass the time until the application's next task");
    }
    const c_api::Claim claim(of.taken, "slm_engine");
    const std::chrono::duration<double> time(seconds);
    *busy = of.engine.step_for(std::chrono::duration_cast<std::chrono::nanoseconds>(time)) ? 1 : 0;
  });
}

slm_status slm_engine_run(slm_engine* engine) {
  return guarded([&] {
    slm_engine& of = required(engine, "engine");
    const c_api::Claim claim(of.taken, "slm_engine");
    slm::CancelSource stop;
    {
      const std::lock_guard lock(of.mutex);
      stop = of.stop;
    }
    of.engine.run(stop.get_token());
    const std::lock_guard lock(of.mutex);
    of.stop = {};
  });
}

slm_status slm_engine_stop(slm_engine* engine) {
  return guarded([&] {
    slm_engine& of = required(engine, "engine");
    const std::lock_guard lock(of.mutex);
    of.stop.request_stop();
  });
}

void slm_engine_free(slm_engine* engine) { delete engine; }

slm_status slm_answer_poll(slm_answer* answer, slm_generated* token, int32_t* state) {
  return guarded([&] {
    slm_answer& of = c_api::checked(answer, token, state);
    c_api::pass(of, of.answer.try_next(), token, state);
  });
}

slm_status slm_answer_wait(slm_answer* answer, slm_generated* token, int32_t* state) {
  return guarded([&] {
    slm_answer& of = c_api::checked(answer, token, state);
    c_api::pass(of, of.answer.next(), token, state);
  });
}

slm_status slm_answer_stats(const slm_answer* answer, slm_stats* stats) {
  return guarded([&] { c_api::write_stats(stats, required(answer, "answer").answer.stats()); });
}

slm_status slm_answer_embedding(const slm_answer* answer, float** out, size_t* width) {
  return guarded([&] {
    const std::vector<float> embedding = required(answer, "answer").answer.embedding();
    c_api::give(std::span<const float>(embedding), out, width);
  });
}

slm_status slm_answer_cancel(slm_answer* answer) {
  return guarded([&] { required(answer, "answer").answer.cancel(); });
}

void slm_answer_free(slm_answer* answer) { delete answer; }
