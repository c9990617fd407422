// RecurrentStates: the states of a sequence's recurrent layers after some of its positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/model/page_pool.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// A page holds the state after one position, and is written once. Truncation to a position with a state only drops
/// later ones. For others, positions are computed again from the newest earlier state, with the same bits.
class RecurrentStates {
 public:
  /// The state after the first `position` positions; null: not kept.
  KvPageRef at(int position) const {
    const auto found =
        std::find_if(states_.begin(), states_.end(), [&](const State& state) { return state.position == position; });
    return found == states_.end() ? nullptr : found->page;
  }

  /// Prepares the states of rows with positions first.. last - 1, in `pages` [1 + rows]: see StepPlan::states. The
  /// state after the last row is kept, as are those after rows from `results` on, because later rows may be truncated,
  /// those that truncations of this sequence need or have needed, and snapshots, as far as the pool has memory. Throws
  /// cache.full.
  void plan(const PagePool& pool, KvPageRef before, int first, int last, int results, std::vector<std::byte*>& pages) {
    planned_.clear();
    pages.push_back(before == nullptr ? nullptr : before->memory);
    const std::size_t begin = pages.size();
    pages.resize(begin + static_cast<std::size_t>(last - first));
    std::byte* memory = nullptr;
    for (int position = last; position > first; --position) {
      const bool result = position > results && position + most_kept > last, reached = position >= oldest(last);
      if (result || reached || position % pool.layout().snapshot_distance() == 0) {
        if (KvPageRef page = take(pool, position == last, before)) {
          memory = page->memory;
          planned_.push_back({position, std::move(page)});
        }
      }
      pages[begin + static_cast<std::size_t>(position - 1 - first)] = memory;
    }
  }

  /// Records that the planned rows were computed. Drops states before the result rows, except those that truncations
  /// of this sequence need or have needed. snapshots: [page], the states after full pages.
  void computed(int last, int results, int distance, std::vector<KvPageRef>& snapshots) {
    for (const State& state : planned_) {
      if (state.position % distance != 0) continue;
      snapshots[static_cast<std::size_t>(state.position / page_positions - 1)] = state.page;
    }
    std::reverse(planned_.begin(), planned_.end());
    states_.insert(states_.end(), planned_.begin(), planned_.end());
    planned_.clear();
    const int first = std::min(results + 1, oldest(last));
    std::erase_if(states_, [&](const State& state) { return state.position < first && state.position != last; });
  }

  /// See Sequence::expect_truncation.
  void expect_truncation(int position) { expected_ = position; }

  /// Drops the states after the first `positions` positions. missing: positions that were truncated and must be
  /// computed again, because there is no state at the new end.
  void drop_behind(int positions, int missing) {
    planned_.clear();
    if (missing <= most_kept) reach_ = std::max(reach_, missing);
    std::erase_if(states_, [&](const State& state) { return state.position > positions; });
  }

  /// The newest kept position before `position`; 0: none.
  int before(int position) const {
    int newest = 0;
    for (const State& state : states_) {
      if (state.position < position) newest = std::max(newest, state.position);
    }
    return newest;
  }

  /// Adds a state after all others.
  void add(int position, KvPageRef page) { states_.push_back({position, std::move(page)}); }

  /// Drops all states.
  void clear() {
    planned_.clear();
    states_.clear();
  }

 private:
  /// Rows of a step, or single steps, whose states are kept to truncate a draft.
  static constexpr int most_kept = 64;

  struct State {
    int position;
    KvPageRef page;
  };

  /// The first position whose state truncations of a sequence of `last` positions need.
  int oldest(int last) const { return std::min(last - reach_, std::max(expected_, last - most_kept)); }

  /// A new page, or null if the memory is in use and the page is optional.
  KvPageRef take(const PagePool& pool, bool required, const KvPageRef& source) {
    const int kind = pool.layout().state_kind();
    try {
      return pool.take(kind);
    } catch (const Error&) {
      if (!required) return nullptr;
      // Frees the states that only save work.
      const auto optional = [&](const State& state) { return state.page != source; };
      if (std::none_of(states_.begin(), states_.end(), optional)) throw;
      std::erase_if(states_, optional);
    }
    return pool.take(kind);
  }

  std::vector<State> states_;                       // ascending positions
  std::vector<State> planned_;                      // of the current step, descending
  int reach_ = 0;                                   // longest truncation that found no state
  int expected_ = std::numeric_limits<int>::max();  // shortest length after an expected truncation
};

}}}
