// CancelSource and CancelToken: ask a request or a run to end. They replace std::stop_source, which some standard
// libraries lack.
#pragma once

#include <atomic>
#include <concepts>
#include <memory>
#include <utility>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// States whether to end. Copies share their state. Any thread may call it.
class CancelToken {
 public:
  /// Never requests an end.
  CancelToken() = default;

  /// From another type of token, such as std::stop_token, whose stop_requested() any thread may call.
  template <class Other>
  requires(!std::same_as<Other, CancelToken>) && requires(const Other& other) {
    { other.stop_requested() } -> std::convertible_to<bool>;
  }
  CancelToken(Other other)
      : state_(std::make_shared<const Other>(std::move(other))),
        requested_([](const void* state) -> bool { return static_cast<const Other*>(state)->stop_requested(); }) {}

  bool stop_requested() const { return requested_ != nullptr && requested_(state_.get()); }

 private:
  std::shared_ptr<const void> state_;
  bool (*requested_)(const void* state) = nullptr;
};

/// Requests an end from the holders of its tokens. Copies share their state. Any thread may call it.
class CancelSource {
 public:
  void request_stop() noexcept { state_->requested = true; }
  bool stop_requested() const noexcept { return state_->requested; }
  CancelToken get_token() const { return Shared{state_}; }

 private:
  struct State {
    std::atomic<bool> requested{false};
  };
  struct Shared {
    std::shared_ptr<const State> state;
    bool stop_requested() const noexcept { return state->requested; }
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}}
