// SpeculativeDecoder: drafts propose tokens, and the target verifies them in one forward. The output has exactly the
// target's distribution. Plain decoding is the same loop without a draft. Its functions are in
// speculative_definition.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/lookup.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/sink.hpp"
#include "slm/decode/stats.hpp"
#include "slm/decode/vocabulary.hpp"
#include "slm/lm/any_model.hpp"

namespace slm { inline namespace v0_1 {

/// Answers requests, one at a time or in a batch. The draft is a LanguageModel, a source of drafts (Lookup, ...) or a
/// Drafter that holds several. The target is a LanguageModel. Rule is one of rule::Coupled, rule::Ratio, rule::Block,
/// rule::Match.
///
/// A request's output does not depend on other requests. With coupled and match it equals plain decoding byte for byte.
/// A decoder is not thread-safe; several decoders on several threads may share a model. After an exception the decoder
/// is reusable. A draft failure only disables drafting for that request (Stats::disabled_reason,
/// Speculation::on_draft_fault). Errors of memory and device (backend.…, cache.…, gpu.…, std::bad_alloc) are thrown.
template <VerificationRule Rule = rule::Coupled>
class SpeculativeDecoder {
 public:
  /// Throws Error if draft and target have no token in common, or if the draft length is out of range or not lossless
  /// under this rule.
  SpeculativeDecoder(Drafter draft, AnyModel target, Speculation speculation = {}, Rule rule = {});

  template <class Draft, class Target>
  SpeculativeDecoder(Draft draft, Target target, Speculation speculation = {}, Rule rule = {})
      : SpeculativeDecoder(detail::drafter_for<Draft, Target>(std::move(draft)), AnyModel(std::move(target)),
                           std::move(speculation), std::move(rule)) {}

  SpeculativeDecoder(SpeculativeDecoder&& other) noexcept;
  SpeculativeDecoder& operator=(SpeculativeDecoder&& other) noexcept;
  ~SpeculativeDecoder();

  /// Answers a request and passes each new token to `sink`. The sink takes a Token or a GeneratedToken and may return
  /// false to stop. Reuses tokens in the KV caches from the last call. Throws Error if the request or the target's
  /// result is invalid.
  template <class Sink>
  Stats generate(const Request& request, Sink&& sink) {
    using SinkType = std::remove_reference_t<Sink>;
    static_assert(TokenSink<SinkType> || GeneratedTokenSink<SinkType>,
                  "slm: the sink must be callable with a slm::Token or a const slm::GeneratedToken&");
    const std::vector<Stats> stats =
        run({&request, 1}, 1, [&](std::size_t, const GeneratedToken& token) { return detail::deliver(sink, token); });
    detail::finish(sink);
    return stats.front();
  }

  template <class Sink>
  Stats generate(std::span<const Token> prompt, const Sampling& sampling, Sink&& sink) {
    return generate(Request{.prompt = {prompt.begin(), prompt.end()}, .sampling = sampling}, sink);
  }

  /// Answers many requests, at most `at_once` at a time; others start as running ones end. sink(i, token) receives a
  /// GeneratedToken of request i; returning false ends that request. Returns the statistics of each request; their
  /// seconds include rounds shared with others. An error ends all requests.
  template <class Sink>
  std::vector<Stats> generate(std::span<const Request> requests, Sink&& sink, std::size_t at_once = 64) {
    return run(requests, at_once, sink);
  }

  /// Starts with a sequence of the target, from Sequence::load or a fork. The next prompt's common prefix with it is
  /// not recomputed.
  void resume(Sequence text);

  const AnyModel& target() const;
  /// The target's sequence: prompt and output of the last call without the last token.
  const Sequence& sequence() const;
  /// Prompt and output of the last call.
  std::span<const Token> history() const;
  /// Number of tokens that the draft model has read.
  int draft_read() const;

 private:
  struct State;

  using Sinks = std::function<bool(std::size_t request, const GeneratedToken&)>;
  std::vector<Stats> run(std::span<const Request> requests, std::size_t at_once, const Sinks& sink);

  std::unique_ptr<State> state_;
};

}}

#if SLM_COMPILES
#include "slm/decode/speculative_definition.hpp"
#endif
namespace slm { inline namespace v0_1 {
namespace detail {
SLM_HAS_FUNCTIONS(slm_decode_speculative_hpp)
}
SLM_TEMPLATE class SpeculativeDecoder<rule::Coupled>;
}}
