// A round of many generations at once: their drafts and then their verifications as batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "slm/decode/generation.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/round_costs.hpp"
#include "slm/decode/side_thread.hpp"

namespace slm { inline namespace v0_1 {

/// What a round takes from the one before: its batches, so that nothing is allocated, and what rounds have cost.
struct RoundState {
  explicit RoundState(const Speculation& speculation) : overlaps(speculation.overlap) {}

  bool overlaps;
  std::unique_ptr<detail::SideThread> side = nullptr;  // where the target verifies while the draft goes on
  Batch draft, target;
  draft_length::RoundCosts costs;
  std::size_t waiting = 0;  // texts that are read after those of the round; set by whoever chooses these
};

namespace detail {

/// Ends before a step for which there is no time.
template <class G, class HasTime>
void draft_round(std::span<G* const> generations, RoundState& state, HasTime has_time) {
  while (has_time()) {
    int steps = most_draft_tokens;  // that all can make: those of a batch are made by all
    for (const G* generation : generations) {
      if (const int own = generation->draft_steps(); own > 0) steps = std::min(steps, own);
    }
    state.draft.clear();
    for (G* generation : generations) generation->plan_draft(state.draft, steps);
    if (state.draft.size() == 0) return;
    try {
      generations.front()->drafter().model().forward(state.draft);
    } catch (...) {
      for (G* generation : generations) generation->draft_failed();
      continue;
    }
    for (G* generation : generations) generation->take_draft(state.draft);
  }
}

/// Learns how long drafting took where that was all it did.
template <class G>
void learn_from_draft(std::span<G* const> generations, double seconds, draft_length::RoundCosts& costs) {
  int texts = 0, steps = 0;
  for (const G* generation : generations) {
    if (generation->had_backlog() || generation->had_draft()) return;
    texts += generation->drafted() > 0;
    steps = std::max(steps, generation->drafted());
  }
  if (steps > 0) costs.took_draft(texts, steps, seconds);
}

/// Calls verify(), and lets the draft go on meanwhile.
template <class G, class Verify>
void verify_and_draft(std::span<G* const> generations, RoundState& state, Verify verify) {
  struct Ended {
    std::span<G* const> generations;
    ~Ended() {
      for (G* generation : generations) generation->end_ahead();
    }
  } ended{generations};
  bool drafts = false;
  for (G* generation : generations) {
    generation->begin_ahead();
    drafts = drafts || generation->draft_steps() > 0;
  }
  if (!drafts) return verify();
  if (state.side == nullptr) state.side = std::make_unique<SideThread>();
  state.side->run(verify, [&] { draft_round(generations, state, [&] { return !state.side->done(); }); });
}

}  // namespace detail

/// Takes each generation to where next() gives its tokens, which must be fetched before the next round. All have the
/// same draft's model. on_fault(generation) is called with the exception in flight where the target's answer to that
/// one is not usable. Throws what the target's forward throws, and a draft's when memory or the device is the trouble.
template <class G, LanguageModel Target, class OnFault>
void run_round(std::span<G* const> generations, const Target& target, RoundState& state,
               const std::function<double()>& clock, OnFault on_fault) {
  draft_length::Load load;
  for (const G* generation : generations) generation->add_to(load);
  state.costs.begin_round(load, static_cast<int>(generations.size() + state.waiting));
  const double began = clock();
  for (G* generation : generations) generation->begin_round(state.costs);
  if constexpr (G::drafts_in_batches) detail::draft_round(generations, state, [] { return true; });
  const double drafted = clock();
  detail::learn_from_draft(generations, drafted - began, state.costs);

  state.target.clear();
  for (G* generation : generations) generation->plan(state.target);
  const auto verify = [&] {
    if (state.target.size() > 0) target.forward(state.target);
  };
  if constexpr (G::drafts_in_batches) {
    state.overlaps ? detail::verify_and_draft(generations, state, verify) : verify();
  } else {
    verify();
  }
  const double verified = clock();
  for (G* generation : generations) {
    try {
      generation->take(state.target, verified);
    } catch (...) {
      on_fault(*generation);
    }
  }
  int rows = 0;
  for (const Batch::Item& item : state.target.items()) rows += static_cast<int>(item.count);
  if (rows > 0) state.costs.took_verification(rows, clock() - drafted);
}

}}
