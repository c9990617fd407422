// ActiveRequest: the state of a request that drafting and verification share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "slm/core/types.hpp"
#include "slm/decode/processor.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/stats.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

struct ActiveRequest {
  ModelInfo target;
  Request request = {};
  Processor processor = {};  // points at the request, so an ActiveRequest must not be moved
  EndTokens ends = {};
  Stats stats = {};

  /// tentative: maximum number of tokens that are pushed before they are part of the text.
  void start(Request of, std::size_t tentative) {
    request = std::move(of);
    const int longest = std::min(sampling().max_new_tokens, target.context - static_cast<int>(request.prompt.size()));
    processor.start(sampling(), target.vocab, request.prompt, static_cast<std::size_t>(longest) + tentative);
    ends.start(target, sampling().ignore_end_tokens, sampling().stop_tokens);
    if (request.constraint == nullptr) return;
    processor.constrain(request.constraint, ends.ends_of(*request.constraint), tentative);
  }

  const Sampling& sampling() const { return request.sampling; }
  std::span<const Token> history() const { return processor.history(); }
  std::size_t vocab() const { return static_cast<std::size_t>(target.vocab); }
};

/// The next at most `most` tokens to read after the first `read` ones; excludes the last token of the text.
inline std::span<const Token> next_to_read(std::span<const Token> text, std::size_t read, std::size_t most) {
  if (read + 1 >= text.size()) return {};
  return text.subspan(read, std::min(most, text.size() - 1 - read));
}

}}}
