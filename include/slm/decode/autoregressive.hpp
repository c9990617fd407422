// AutoregressiveDecoder: plain decoding, one forward of the model per token.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "slm/decode/speculative.hpp"

namespace slm { inline namespace v0_1 {

/// Has the interface of SpeculativeDecoder. Draws are the same under the same rule; with coupled and match the text is
/// byte-identical.
template <VerificationRule Rule = rule::Coupled>
class AutoregressiveDecoder {
 public:
  explicit AutoregressiveDecoder(AnyModel model, Rule rule = {})
      : decoder_(Drafter{}, std::move(model), {.draft_tokens = 0}, std::move(rule)) {}

  /// See the overloads of SpeculativeDecoder::generate.
  template <class Sink>
  Stats generate(const Request& request, Sink&& sink) {
    return decoder_.generate(request, std::forward<Sink>(sink));
  }
  template <class Sink>
  std::vector<Stats> generate(std::span<const Request> requests, Sink&& sink, std::size_t at_once = 64) {
    return decoder_.generate(requests, std::forward<Sink>(sink), at_once);
  }
  template <class Sink>
  Stats generate(std::span<const Token> prompt, const Sampling& sampling, Sink&& sink) {
    return decoder_.generate(prompt, sampling, std::forward<Sink>(sink));
  }

  const AnyModel& model() const { return decoder_.target(); }
  /// Prompt and output of the last call.
  std::span<const Token> history() const { return decoder_.history(); }

 private:
  SpeculativeDecoder<Rule> decoder_;
};

}}
