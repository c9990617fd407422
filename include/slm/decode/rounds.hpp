// A round of many generations: drafts and verifications in batches.
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

/// State that rounds share: batches (to avoid allocation) and measured costs.
struct RoundState {
  explicit RoundState(const Speculation& speculation) : overlaps(speculation.overlap) {}

  bool overlaps;
  std::unique_ptr<detail::SideThread> side = nullptr;  // runs the target's verification while the draft continues
  Batch draft, target;
  draft_length::RoundCosts costs;
  std::size_t waiting = 0;  // texts queued behind the round's; set by the scheduler
};

namespace detail {

/// Stops when has_time() returns false.
template <class G, class HasTime>
void draft_round(std::span<G* const> generations, RoundState& state, HasTime has_time) {
  while (has_time()) {
    int steps = most_draft_tokens;  // that all can run: all items of a batch run equally many
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

/// Records the time of drafting if the round did nothing else.
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

/// Calls verify() while the draft continues.
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

/// Runs one round for all generations; next() must be called until null before the next round. All generations must
/// have the same draft model. Calls on_fault(generation), during exception handling, if the target's result for it is
/// invalid. Throws the errors of the target's forward, and the draft's errors of memory or device.
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
