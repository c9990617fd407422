// Answer: what an engine has said to a request so far, for the thread that reads it.
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
#include "slm/engine/bell.hpp"

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
  std::deque<AnsweredToken> tokens;  // not fetched yet
  std::vector<AnsweredToken> prompt;
  std::vector<float> embedding;
  RequestState state = RequestState::queued;
  Stats stats;               // once it has ended
  std::exception_ptr error;  // why it ended before its time
  std::atomic<bool> cancelled{false};
  std::atomic<bool> satisfied{false};
  std::atomic<bool> detached{false};     // the request runs to its end without an Answer
  std::function<void()> wake = {};       // of the reader; the engine's thread calls and releases it
  std::shared_ptr<Bell> bell = nullptr;  // of the engine

  void cancel() {
    cancelled = true;
    if (bell) bell->ring();
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

/// What the prompt's rows say goes to the answer, unless the request sends it elsewhere. The answer outlives the
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

/// A handle: copies are the same answer. Any thread may use it. The request is cancelled when the last copy is
/// destroyed, unless detach() was called.
class Answer {
 public:
  explicit Answer(std::shared_ptr<detail::AnswerState> state)
      : handle_(std::make_shared<detail::AnswerHandle>(std::move(state))) {}

  /// The next token, as soon as there is one; nothing when the answer is over. Throws the error that ended it.
  std::optional<AnsweredToken> next() {
    detail::AnswerState& state = *handle_->state;
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return ended() || !state.tokens.empty(); });
    return fetch();
  }

  /// The next token if there is one now. over() tells why there is none. Throws as next().
  std::optional<AnsweredToken> try_next() {
    const std::lock_guard lock(handle_->state->mutex);
    return fetch();
  }

  /// Whether there is nothing more to fetch, now or later.
  bool over() const {
    const std::lock_guard lock(handle_->state->mutex);
    return ended() && handle_->state->tokens.empty();
  }

  /// The prompt's tokens but for the first, with what Logprobs::prompt asks for: all of them once there is a token or
  /// the end.
  std::vector<AnsweredToken> prompt_logprobs() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->prompt;
  }

  /// What Request::pooling asks for, once the answer is over.
  std::vector<float> embedding() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->embedding;
  }

  /// Once it is over.
  Stats stats() const {
    const std::lock_guard lock(handle_->state->mutex);
    return handle_->state->stats;
  }

  /// Ends it before the engine's next step. What it has said can still be fetched.
  void cancel() { handle_->state->cancel(); }
  /// The same for a reader that has what it wanted: FinishReason::sink.
  void stop() { handle_->state->satisfied = true; }
  /// Lets the request run to its end when no Answer of it is left.
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
