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

namespace slm::inline v0_1 {

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

/// Between the engine's thread and a reader's.
struct AnswerState {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<AnsweredToken> tokens;  // not fetched yet
  std::vector<AnsweredToken> prompt;
  std::vector<float> embedding;
  bool over = false;
  Stats stats;               // once it is over
  std::exception_ptr error;  // why it ended before its time
  std::atomic<bool> cancelled{false};
  std::atomic<bool> satisfied{false};
  std::function<void()> wake = {};  // the reader
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

/// A handle: copies are the same answer. Any thread may use it.
class Answer {
 public:
  explicit Answer(std::shared_ptr<detail::AnswerState> state) : state_(std::move(state)) {}

  /// The next token, as soon as there is one; nothing when the answer is over. Throws the error that ended it.
  std::optional<AnsweredToken> next() {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->over || !state_->tokens.empty(); });
    return fetch();
  }

  /// The next token if there is one now. over() tells why there is none. Throws as next().
  std::optional<AnsweredToken> try_next() {
    const std::lock_guard lock(state_->mutex);
    return fetch();
  }

  /// Whether there is nothing more to fetch, now or later.
  bool over() const {
    const std::lock_guard lock(state_->mutex);
    return state_->over && state_->tokens.empty();
  }

  /// The prompt's tokens but for the first, with what Logprobs::prompt asks for: all of them once there is a token or
  /// the end.
  std::vector<AnsweredToken> prompt_logprobs() const {
    const std::lock_guard lock(state_->mutex);
    return state_->prompt;
  }

  /// What Request::pooling asks for, once the answer is over.
  std::vector<float> embedding() const {
    const std::lock_guard lock(state_->mutex);
    return state_->embedding;
  }

  /// Once it is over.
  Stats stats() const {
    const std::lock_guard lock(state_->mutex);
    return state_->stats;
  }

  /// Ends it before the engine's next step. What it has said can still be fetched.
  void cancel() { state_->cancelled = true; }
  /// The same for a reader that has what it wanted: FinishReason::sink.
  void stop() { state_->satisfied = true; }

 private:
  std::optional<AnsweredToken> fetch() {
    if (state_->tokens.empty()) {
      if (state_->error) std::rethrow_exception(state_->error);
      return std::nullopt;
    }
    std::optional<AnsweredToken> token = std::move(state_->tokens.front());
    state_->tokens.pop_front();
    return token;
  }

  std::shared_ptr<detail::AnswerState> state_;
};

}  // namespace slm
