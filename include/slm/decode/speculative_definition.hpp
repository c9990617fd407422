// The functions of SpeculativeDecoder. A source with SLM_IMPLEMENTATION 0 needs this header for other rules than
// rule::Coupled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/decode/generation.hpp"
#include "slm/decode/rounds.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/decode/token_map.hpp"

namespace slm { inline namespace v0_1 {

template <VerificationRule Rule>
struct SpeculativeDecoder<Rule>::State {
  using GenerationType = Generation<Rule>;

  struct Slot {
    std::unique_ptr<GenerationType> generation;
    std::size_t request = 0;
  };

  State(Drafter of, AnyModel model, Speculation settings, Rule by)
      : draft(std::move(of)), target(std::move(model)), speculation(std::move(settings)), rule(std::move(by)) {
    if (!speculation.clock) speculation.clock = steady_seconds;
    if (draft.model() != nullptr) draft.set(detail::map_tokens(draft.model()->info(), target.info()));
    if (policy_of(speculation, Rule::may_drop).drops() && !Rule::may_drop) {
      throw Error("decode.lossy-drop",
                  text("the rule ", Rule::name, " is not lossless if drafted tokens are dropped for low confidence"),
                  "Keep the token (Confidence::drop = false), or use the rule coupled or match");
    }
    make(1);
  }

  const GenerationType& first() const { return *slots.front().generation; }

  void make(std::size_t count) {
    while (slots.size() < count) slots.push_back({answering(target.sequence())});
  }

  std::unique_ptr<GenerationType> answering(Sequence text) const {
    return std::make_unique<GenerationType>(draft, std::move(text), target.info(), speculation, rule);
  }

  void reserve() {
    const int rows = policy_of(speculation, Rule::may_drop).most() + 1;
    rounds.target.reserve(rows, rows, target.info().vocab);
    if (draft.model() == nullptr) return;
    const ModelInfo& info = draft.model()->info();
    rounds.draft.reserve(info.context, 1, info.vocab);  // after a pause the backlog may be as long as the context
  }

  Drafter draft;
  AnyModel target;
  Speculation speculation;
  Rule rule;
  RoundState rounds{speculation};
  std::vector<Slot> slots = {};  // the first slot keeps its caches between calls
};

template <VerificationRule Rule>
SpeculativeDecoder<Rule>::SpeculativeDecoder(Drafter draft, AnyModel target, Speculation speculation, Rule rule)
    : state_(std::make_unique<State>(std::move(draft), std::move(target), std::move(speculation), std::move(rule))) {}

template <VerificationRule Rule>
SpeculativeDecoder<Rule>::SpeculativeDecoder(SpeculativeDecoder&& other) noexcept = default;
template <VerificationRule Rule>
SpeculativeDecoder<Rule>& SpeculativeDecoder<Rule>::operator=(SpeculativeDecoder&& other) noexcept = default;
template <VerificationRule Rule>
SpeculativeDecoder<Rule>::~SpeculativeDecoder() = default;

template <VerificationRule Rule>
void SpeculativeDecoder<Rule>::resume(Sequence text) {
  state_->slots.front().generation = state_->answering(std::move(text));
}

template <VerificationRule Rule>
const AnyModel& SpeculativeDecoder<Rule>::target() const {
  return state_->target;
}
template <VerificationRule Rule>
const Sequence& SpeculativeDecoder<Rule>::sequence() const {
  return state_->first().sequence();
}
template <VerificationRule Rule>
std::span<const Token> SpeculativeDecoder<Rule>::history() const {
  return state_->first().history();
}
template <VerificationRule Rule>
int SpeculativeDecoder<Rule>::draft_read() const {
  return state_->first().draft_read();
}

template <VerificationRule Rule>
std::vector<Stats> SpeculativeDecoder<Rule>::run(std::span<const Request> requests, std::size_t at_once,
                                                 const Sinks& sink) {
  using GenerationType = Generation<Rule>;
  using Slot = typename State::Slot;
  State& state = *state_;
  const ModelInfo& model = state.target.info();
  for (const Request& request : requests) check_request(request, model);
  at_once = std::max<std::size_t>(at_once, 1);
  struct Cleared {  // clears unfinished answers, and all caches but the first
    std::vector<Slot>& slots;
    ~Cleared() {
      slots.erase(slots.begin() + 1, slots.end());
      slots.front().generation->abandon();
    }
  } cleared{state.slots};
  state.make(std::min(at_once, requests.size()));
  state.reserve();
  std::vector<Stats> stats(requests.size());
  std::vector<Slot*> going;
  std::vector<GenerationType*> answering;
  going.reserve(state.slots.size());
  answering.reserve(state.slots.size());
  std::size_t waiting = 0;  // the first request that has not started
  for (;;) {
    going.clear();
    answering.clear();
    for (Slot& slot : state.slots) {
      while (!slot.generation->going() && waiting < requests.size()) {
        slot.request = waiting++;
        slot.generation->start(requests[slot.request]);
        slot.generation->set_chunk(slot.generation->asks_of_prompt()
                                       ? std::max<std::size_t>(1, most_scored_rows(model) / state.slots.size())
                                       : prompt_chunk);
        stats[slot.request] = slot.generation->stats();
      }
      if (!slot.generation->going()) continue;
      going.push_back(&slot);
      answering.push_back(slot.generation.get());
    }
    if (going.empty()) return stats;
    run_round(std::span<GenerationType* const>(answering), state.target, state.rounds, state.speculation.clock,
              [](const GenerationType&) { throw; });
    for (const Slot* slot : going) {
      while (const GeneratedToken* token = slot->generation->next()) {
        if (!sink(slot->request, *token)) slot->generation->stop();
      }
      if (!slot->generation->going()) stats[slot->request] = slot->generation->stats();
    }
  }
}

}}
