// Answer: the results of an engine's request, for the thread that reads them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/sink.hpp"
#include "slm/decode/stats.hpp"
#include "slm/engine/wake_event.hpp"

namespace slm { inline namespace v0_1 {

/// A GeneratedToken that owns its lists.
struct AnsweredToken {
  explicit AnsweredToken(const GeneratedToken& from)
      : token(from.token),
        position(from.position),
        drafted(from.drafted),
        logprob(from.logprob),
        sampled_logprob(from.sampled_logprob),
        top(from.top.begin(), from.top.end()),
        sampled_top(from.sampled_top.begin(), from.sampled_top.end()) {}

  Token token;
  std::int64_t position;
  bool drafted;
  double logprob, sampled_logprob;
  std::vector<TokenLogprob> top, sampled_top;
};

namespace detail {

/// The states of a request. The functions of Requests (requests.hpp) make the transitions: add() in the thread that
/// submits, the others in the thread that steps or destroys the engine.
///
///   from     to       by          when
///            queued   add()       submit() does not throw
///   queued   running  start()     a slot, memory and the adapter are available
///   running  queued   requeue()   a step ran out of memory; a later step computes the text again
///   running  ended    close()     the text is complete
///   either   ended    end()       the request is cancelled or past its deadline, or its reader stops, or its adapter,
///                                 its start, its memory or its logits fail
///   either   ended    end_all()   a step throws; run(stop) returns; the engine is destroyed
///
/// Answer::cancel(), Request::cancel and the destruction of the last Answer cancel a request.
enum class RequestState { queued, running, ended };

/// Shared by the engine's thread and the reader's.
struct AnswerState {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<AnsweredToken> tokens;  // not read yet
  std::vector<AnsweredToken> prompt;
  std::vector<float> embedding;
  RequestState state = RequestState::queued;
  Stats stats;               // valid after the end
  std::exception_ptr error;  // the error that ended the request
  std::atomic<bool> cancelled{false};
  std::atomic<bool> satisfied{false};
  std::atomic<bool> detached{false};                // the request continues without an Answer
  std::function<void()> wake = {};                  // called and released by the engine's thread
  std::shared_ptr<WakeEvent> wake_event = nullptr;  // the engine's

  void cancel() {
    cancelled = true;
    if (wake_event) wake_event->notify();
  }
};

/// The state that copies of an Answer share. Its destructor cancels the request.
struct AnswerHandle {
  explicit AnswerHandle(std::shared_ptr<AnswerState> of) : state(std::move(of)) {}
  AnswerHandle(const AnswerHandle&) = delete;
  AnswerHandle& operator=(const AnswerHandle&) = delete;
  ~AnswerHandle() {
    if (!state->detached) state->cancel();
  }

  const std::shared_ptr<AnswerState> state;
};

/// Directs results of prompt rows to the answer unless the request has its own callbacks. The answer must outlive the
/// request.
inline void give_rows_to(AnswerState& answer, Request& request) {
  if (request.logprobs.prompt && !request.scored) {
    request.scored = [&answer](const GeneratedToken& token) {
      const std::lock_guard lock(answer.mutex);
      answer.prompt.emplace_back(token);
    };
  }
  if (request.pooling && !request.embedded) {
    request.embedded = [&answer](std::span<const float> embedding) {
      const std::lock_guard lock(answer.mutex);
      answer.embedding.assign(embedding.begin(), embedding.end());
    };
  }
}

}  // namespace detail

/// A handle: copies are the same answer. Thread-safe. The request is cancelled when the last copy is destroyed, unless
/// detach() was called.
class Answer {
 public:
  explicit Answer(std::shared_ptr<detail::AnswerState> state)
      : handle_(std::make_shared<detail::AnswerHandle>(std::move(state))) {}

  /// Waits for the next token and returns it; nothing after the end. Throws the error that ended the request.
  std::optional<AnsweredToken> next() {
    detail::AnswerState& state = *handle_->state;
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return ended() || !state.tokens.empty(); });
    return fetch();
  }

  /// Returns the next token if available. Otherwise over() distinguishes the end from a wait. Throws like next().
  std::optional<AnsweredToken> try_next() {
    const std::lock_guard lock(handle_->state->mutex);
    return fetch();
  }

  /// Whether the request has ended and all tokens are read.
  bool over() const {
    const std::lock_guard lock(handle_->state->mutex);
    return ended() && handle_->state->tokens.empty();
  }

  /// The log-probabilities of the prompt's tokens except the first (Logprobs::prompt); complete from the first token or
  /// the end on.
  std::vector<AnsweredToken> prompt_logprobs() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->prompt;
  }

  /// The embedding that Request::pooling requests; valid after the end.
  std::vector<float> embedding() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->embedding;
  }

  /// Valid after the end.
  Stats stats() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->stats;
  }

  /// Cancels the request before the engine's next step. Tokens generated so far can still be read.
  void cancel() { handle_->state->cancel(); }
  /// Ends the request on behalf of the reader: FinishReason::sink.
  void stop() { handle_->state->satisfied = true; }
  /// Lets the request complete even if no Answer is left.
  void detach() { handle_->state->detached = true; }

 private:
  bool ended() const { return handle_->state->state == detail::RequestState::ended; }

  std::optional<AnsweredToken> fetch() {
    detail::AnswerState& state = *handle_->state;
    if (state.tokens.empty()) {
      if (state.error) std::rethrow_exception(state.error);
      return std::nullopt;
    }
    std::optional<AnsweredToken> token = std::move(state.tokens.front());
    state.tokens.pop_front();
    return token;
  }

  std::shared_ptr<detail::AnswerHandle> handle_;
};

}}
