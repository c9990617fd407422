// A round of many generations: drafts and verifications in batches.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/os/atomic_wait.hpp"
#include "slm/decode/draft_control.hpp"
#include "slm/decode/generation.hpp"
#include "slm/decode/request.hpp"
#include "slm/decode/side_thread.hpp"

namespace slm { inline namespace v0_1 {

/// State that rounds share: batches and lists (to avoid allocation), and what the adaptive draft length has learnt.
struct RoundState {
  explicit RoundState(const Speculation& speculation) : overlaps(speculation.overlap) {}

  bool overlaps;
  std::unique_ptr<detail::SideThread> side = nullptr;  // works beside the target's verification
  Batch draft, target;
  std::vector<draft_length::Decision> decisions;
  draft_length::DraftControl control;
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
      generations.front()->draft_model()->forward(state.draft);
    } catch (...) {
      for (G* generation : generations) generation->draft_failed();
      continue;
    }
    for (G* generation : generations) generation->take_draft(state.draft);
  }
}

/// Records the time of drafting if all texts did the same.
template <class G>
void learn_from_draft(std::span<G* const> generations, double seconds, draft_length::DraftControl& control) {
  int texts = 0, steps = 0, reading = 0, backlogs = 0;
  for (const G* generation : generations) {
    if (generation->had_draft()) return;
    reading += generation->only_read();
    backlogs += generation->had_backlog();
    texts += generation->drafted_by_model() > 0;
    steps = std::max(steps, generation->drafted_by_model());
  }
  if (steps > 0 && backlogs == 0) control.took_draft(texts, steps, seconds);
  if (steps == 0 && reading == 1) {
    for (const G* generation : generations) {
      if (generation->only_read() && generation->draft_rows() > 0)
        control.took_reading(generation->draft_rows(), seconds);
    }
  }
}

/// Decides the drafts of the round.
template <class G>
void decide_drafts(std::span<G* const> generations, RoundState& state) {
  state.decisions.clear();
  bool any = false;
  for (G* generation : generations) {
    const bool asks = generation->prepare(state.control);
    any = any || asks;
    state.decisions.push_back(generation->decision());
  }
  if (!any) return;
  state.control.choose(state.decisions);
  for (std::size_t i = 0; i < generations.size(); ++i) generations[i]->decision() = state.decisions[i];
}

/// The thread beside the caller's, or null if the system cannot start one.
inline SideThread* side_thread(RoundState& state) {
  try {
    if (state.side == nullptr) state.side = std::make_unique<SideThread>();
  } catch (const Error&) {
  }
  return state.side.get();
}

/// Computes the masks of constrained answers, for which the target's forward may wait.
template <class G>
void prepare_masks(std::span<G* const> generations, std::atomic<bool>& ready) {
  struct Ended {
    std::atomic<bool>& ready;
    ~Ended() {
      ready.store(true, std::memory_order_release);
      wake_waiters(ready);
    }
  } ended{ready};
  for (G* generation : generations) generation->prepare_masks();
}

/// Calls verify() while another thread computes the masks.
template <class G, class Verify>
void verify_and_mask(std::span<G* const> generations, RoundState& state, std::atomic<bool>& ready, Verify verify) {
  const bool masks = std::any_of(generations.begin(), generations.end(), [](const G* one) { return one->has_masks(); });
  SideThread* const side = masks ? side_thread(state) : nullptr;
  if (side != nullptr) return side->run([&] { prepare_masks(generations, ready); }, verify);
  prepare_masks(generations, ready);
  verify();
}

/// Calls verify() while the draft continues.
template <class G, class Verify>
void verify_and_draft(std::span<G* const> generations, RoundState& state, std::atomic<bool>& ready, Verify verify) {
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
  if (!drafts) return verify_and_mask(generations, state, ready, verify);
  if (state.side == nullptr) state.side = std::make_unique<SideThread>();
  state.side->run(verify, [&] {
    prepare_masks(generations, ready);
    draft_round(generations, state, [&] { return !state.side->done(); });
  });
}

}  // namespace detail

/// Runs one round for all generations; next() must be called until null before the next round. All generations must
/// have the same draft model. Calls on_fault(generation), during exception handling, if the target's result for it is
/// invalid. Throws the errors of the target's forward, and the draft's errors of memory or device.
template <class G, class OnFault>
void run_round(std::span<G* const> generations, const AnyModel& target, RoundState& state,
               const std::function<double()>& clock, OnFault on_fault) {
  draft_length::Load load;
  for (const G* generation : generations) generation->add_to(load);
  state.control.begin_round(load, static_cast<int>(generations.size() + state.waiting));
  detail::decide_drafts(generations, state);
  const double began = clock();
  for (G* generation : generations) generation->begin_round();
  const bool has_model = !generations.empty() && generations.front()->draft_model() != nullptr;
  if (has_model) detail::draft_round(generations, state, [] { return true; });
  const double drafted = clock();
  detail::learn_from_draft(generations, drafted - began, state.control);

  state.target.clear();
  for (G* generation : generations) generation->plan(state.target);
  std::atomic<bool> ready = false;  // the masks
  state.target.before_masks([&ready] { detail::wait_while(ready, false); });
  const auto verify = [&] {
    if (state.target.size() > 0) target.forward(state.target);
  };
  has_model&& state.overlaps ? detail::verify_and_draft(generations, state, ready, verify)
                             : detail::verify_and_mask(generations, state, ready, verify);
  state.target.before_masks(nullptr);
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
  if (rows == 0) return;
  int emitted = 0;
  bool drafts = false;
  for (const G* generation : generations) {
    emitted += generation->emits();
    drafts = drafts || generation->drafted_by_model() > 0;
  }
  state.control.took_verification(rows, clock() - drafted, emitted, drafts ? drafted - began : 0);
}

}}
