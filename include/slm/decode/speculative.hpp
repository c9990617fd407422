// SpeculativeDecoder: a draft proposes tokens, and the target verifies them in one forward. The output has exactly the
// target's distribution. Plain decoding is the same loop without a draft.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/drafter.hpp"
#include "slm/decode/generation.hpp"
#include "slm/decode/model_drafter.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/rounds.hpp"
#include "slm/decode/rules.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/sink.hpp"
#include "slm/decode/stats.hpp"
#include "slm/decode/vocabulary.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Answers requests, one at a time or in a batch. Draft is a LanguageModel or a Drafter (NgramDrafter, NoDrafter,
/// ...). Target is a LanguageModel. Rule is one of rule::Coupled, rule::Ratio, rule::Block, rule::Match.
///
/// A request's output does not depend on other requests. With coupled and match it equals plain decoding byte for byte.
/// A decoder is not thread-safe; several decoders on several threads may share a model. After an exception the decoder
/// is reusable. A draft failure only disables drafting for that request (Stats::disabled_reason,
/// Speculation::on_draft_fault). Errors of memory and device (backend.…, cache.…, gpu.…, std::bad_alloc) are thrown.
template <class Draft, LanguageModel Target, VerificationRule Rule = rule::Coupled>
class SpeculativeDecoder {
  using DrafterType = typename DrafterFor<Draft>::type;

  static_assert(LanguageModel<Draft> || Drafter<Draft>,
                "slm: the draft must be a LanguageModel or have start(), rewind() and propose() (see "
                "slm/decode/drafter.hpp)");
  static_assert(!Rule::needs_distribution || LanguageModel<Draft> || DistributionDrafter<Draft>,
                "slm: this verification rule needs the draft's distribution, but this drafter only proposes tokens; "
                "use rule::Coupled or rule::Match");
  static_assert(static_vocab_of<Draft>() == 0 || static_vocab_of<Target>() == 0 ||
                    sizes_may_match(static_vocab_of<Draft>(), static_vocab_of<Target>()),
                "slm: the vocabularies of draft and target differ by more than 256 ids: different tokenizers");

 public:
  /// Throws Error if draft and target have different tokenizers, or if the draft length is out of range or not lossless
  /// under this rule.
  SpeculativeDecoder(Draft draft, Target target, Speculation speculation = {}, Rule rule = {});

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
    for (const Request& request : requests) check_request(request, target_.info());
    return run(requests, std::max<std::size_t>(at_once, 1), sink);
  }

  /// Starts with a sequence of the target, from Sequence::load or a fork. The next prompt's common prefix with it is
  /// not recomputed.
  void resume(Sequence text) { slots_.front().generation = answering(std::move(text)); }

  const Target& target() const { return target_; }
  const DrafterType& drafter() const { return first().drafter(); }
  /// The target's sequence: prompt and output of the last call without the last token.
  const Sequence& sequence() const { return first().sequence(); }
  /// Prompt and output of the last call.
  std::span<const Token> history() const { return first().history(); }

 private:
  using Answering = Generation<DrafterType, Rule>;

  struct Slot {
    std::unique_ptr<Answering> generation;
    std::size_t request = 0;
  };

  const Answering& first() const { return *slots_.front().generation; }

  void make(std::size_t slots) {
    while (slots_.size() < slots) slots_.push_back({answering(target_.sequence())});
  }

  std::unique_ptr<Answering> answering(Sequence text) const {
    return std::make_unique<Answering>(DrafterType(draft_), std::move(text), target_.info(), speculation_, rule_);
  }

  void make_room() {
    const int rows = policy_of(speculation_).most() + 1;
    rounds_.target.reserve(rows, rows, target_.info().vocab);
    if constexpr (LanguageModel<Draft>) {  // after a pause the backlog may be as long as the context
      rounds_.draft.reserve(draft_.info().context, 1, draft_.info().vocab);
    }
  }

  using Sinks = std::function<bool(std::size_t request, const GeneratedToken&)>;
  std::vector<Stats> run(std::span<const Request> requests, std::size_t at_once, const Sinks& sink);

  Draft draft_;
  Target target_;
  Speculation speculation_;
  Rule rule_;
  RoundState rounds_{speculation_};
  std::vector<Slot> slots_;  // the first slot keeps its caches between calls
};

template <class Draft, LanguageModel Target, VerificationRule Rule>
SpeculativeDecoder<Draft, Target, Rule>::SpeculativeDecoder(Draft draft, Target target, Speculation speculation,
                                                            Rule rule)
    : draft_(std::move(draft)),
      target_(std::move(target)),
      speculation_(std::move(speculation)),
      rule_(std::move(rule)) {
  if (!speculation_.clock) speculation_.clock = steady_seconds;
  if constexpr (LanguageModel<Draft>) check_same_tokenizer(draft_.info(), target_.info());
  if (policy_of(speculation_).drops() && !Rule::may_drop) {
    throw Error("decode.lossy-drop",
                text("the rule ", Rule::name, " is not lossless if drafted tokens are dropped for low confidence"),
                "Keep the token (Confidence::drop = false), or use the rule coupled or match");
  }
  make(1);
}

template <class Draft, LanguageModel Target, VerificationRule Rule>
std::vector<Stats> SpeculativeDecoder<Draft, Target, Rule>::run(std::span<const Request> requests, std::size_t at_once,
                                                                const Sinks& sink) {
  struct Cleared {  // clears unfinished answers, and all caches but the first
    std::vector<Slot>& slots;
    ~Cleared() {
      slots.erase(slots.begin() + 1, slots.end());
      slots.front().generation->abandon();
    }
  } cleared{slots_};
  make(std::min(at_once, requests.size()));
  make_room();
  std::vector<Stats> stats(requests.size());
  std::vector<Slot*> going;
  std::vector<Answering*> answering;
  going.reserve(slots_.size());
  answering.reserve(slots_.size());
  std::size_t waiting = 0;  // the first request that has not started
  for (;;) {
    going.clear();
    answering.clear();
    for (Slot& slot : slots_) {
      while (!slot.generation->going() && waiting < requests.size()) {
        slot.request = waiting++;
        slot.generation->start(requests[slot.request]);
        slot.generation->set_chunk(slot.generation->asks_of_prompt()
                                       ? std::max<std::size_t>(1, most_scored_rows(target_.info()) / slots_.size())
                                       : prompt_chunk);
        stats[slot.request] = slot.generation->stats();
      }
      if (!slot.generation->going()) continue;
      going.push_back(&slot);
      answering.push_back(slot.generation.get());
    }
    if (going.empty()) return stats;
    run_round(std::span<Answering* const>(answering), target_, rounds_, speculation_.clock,
              [](const Answering&) { throw; });
    for (const Slot* slot : going) {
      while (const GeneratedToken* token = slot->generation->next()) {
        if (!sink(slot->request, *token)) slot->generation->stop();
      }
      if (!slot->generation->going()) stats[slot->request] = slot->generation->stats();
    }
  }
}

}}
