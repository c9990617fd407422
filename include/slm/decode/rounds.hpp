// A round of many generations at once: their drafts and then their verifications as batches.
#pragma once

#include <algorithm>
#include <functional>
#include <span>

#include "slm/decode/generation.hpp"
#include "slm/decode/request.hpp"

namespace slm {

/// The batches of a round, used again by the next so that nothing is allocated.
struct RoundBatches {
  Batch draft, target;
};

/// Takes each generation to where next() gives its tokens, which must be fetched before the next round. All have the
/// same draft's model. on_fault(generation) is called with the exception in flight where the target's answer to that
/// one is not usable. Throws what the target's forward throws, and a draft's when memory or the device is the trouble.
template <class G, LanguageModel Target, class OnFault>
void run_round(std::span<G* const> generations, const Target& target, RoundBatches& batches,
               const std::function<double()>& clock, OnFault on_fault) {
  for (G* generation : generations) generation->begin_round();
  if constexpr (G::drafts_in_batches) {
    for (;;) {
      int steps = most_draft_tokens;  // that all can make: those of a batch are made by all
      for (const G* generation : generations) {
        if (const int own = generation->draft_steps(); own > 0) steps = std::min(steps, own);
      }
      batches.draft.clear();
      for (G* generation : generations) generation->plan_draft(batches.draft, steps);
      if (batches.draft.size() == 0) break;
      try {
        generations.front()->drafter().model().forward(batches.draft);
      } catch (...) {
        for (G* generation : generations) generation->draft_failed();
        continue;
      }
      for (G* generation : generations) generation->take_draft(batches.draft);
    }
  }
  batches.target.clear();
  for (G* generation : generations) generation->plan(batches.target);
  if (batches.target.size() > 0) target.forward(batches.target);
  const double verified = clock();
  for (G* generation : generations) {
    try {
      generation->take(batches.target, verified);
    } catch (...) {
      on_fault(*generation);
    }
  }
}

}  // namespace slm
