// Where generated tokens go: any callable taking a Token or a GeneratedToken; one that returns false ends generation.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

struct TokenLogprob {
  Token token = 0;
  double logprob = 0;
};

/// One token of the output with its circumstances.
struct GeneratedToken {
  Token token = 0;
  std::int64_t position = 0;  // place in the text, counting the prompt
  bool drafted = false;       // proposed by the draft and accepted

  // What Request::logprobs asks for, else NaN and empty. The lists are valid during the call.
  double logprob = std::numeric_limits<double>::quiet_NaN();          // raw
  double sampled_logprob = std::numeric_limits<double>::quiet_NaN();  // of the distribution it was drawn from
  std::span<const TokenLogprob> top = {};
  std::span<const TokenLogprob> sampled_top = {};
};

template <class S>
concept TokenSink = std::is_invocable_v<S&, Token>;

template <class S>
concept GeneratedTokenSink = !TokenSink<S> && std::is_invocable_v<S&, const GeneratedToken&>;

namespace detail {

/// Hands one token over; false when the sink wants no more.
template <class S>
bool deliver(S& sink, const GeneratedToken& emitted) {
  const auto ask = [&sink](const auto& argument) -> bool {
    if constexpr (std::is_void_v<decltype(sink(argument))>) {
      sink(argument);
      return true;
    } else {
      return static_cast<bool>(sink(argument));
    }
  };
  if constexpr (TokenSink<S>) {
    return ask(emitted.token);
  } else {
    return ask(emitted);
  }
}

/// Tells a sink that has a finish() that no more tokens come, so that it can flush what it held back.
template <class S>
void finish(S& sink) {
  if constexpr (requires { sink.finish(); }) sink.finish();
}

}  // namespace detail

}}
