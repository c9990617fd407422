// Sinks: callables that receive a Token or a GeneratedToken. Returning false ends generation.
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

/// One generated token with its metadata.
struct GeneratedToken {
  Token token = 0;
  std::int64_t position = 0;  // index in the text, prompt included
  bool drafted = false;       // proposed by the draft and accepted

  // As Request::logprobs requests, else NaN and empty. The lists are valid during the call.
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

/// Passes one token to the sink. Returns false if the sink ends generation.
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

/// Calls the sink's finish(), if it has one, after the last token, so that it can flush buffered text.
template <class S>
void finish(S& sink) {
  if constexpr (requires { sink.finish(); }) sink.finish();
}

}  // namespace detail

}}
