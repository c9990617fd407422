// SequenceState: the inside of a sequence, for models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/model/kv_pool.hpp"

namespace slm::detail {

/// What forward() needs of a sequence. `filled` and the pages are a cache of what `tokens` say: whatever they lack is
/// read again, which gives the same bits.
struct SequenceState {
  KvPool pool;
  std::vector<Token> tokens;
  int filled = 0;                              // leading positions whose keys and values the pages hold
  bool beyond = false;                         // rotated by LongRoPE's table for what is beyond the original context
  std::vector<std::vector<KvPageRef>> tables;  // [kind][page]; null: released

  int length() const { return static_cast<int>(tokens.size()); }

  /// Gives back the pages that hold nothing of the first `positions`.
  void drop_behind(int positions) {
    const auto pages = static_cast<std::size_t>((positions + page_positions - 1) / page_positions);
    for (auto& table : tables) table.resize(std::min(table.size(), pages));
    filled = std::min(filled, positions);
  }

  /// Gives back the pages that a sliding window has left behind, for a text of `length` of which a draft may be taken
  /// back.
  void release_before_window(int length) {
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      const int window = pool.layout().kinds()[kind].window;
      const int oldest = window == 0 ? 0 : length - KvLayout::longest_rollback + 1 - window;
      for (int page = oldest / page_positions - 1; page >= 0; --page) {
        if (page >= static_cast<int>(tables[kind].size())) continue;
        KvPageRef& entry = tables[kind][static_cast<std::size_t>(page)];
        if (entry == nullptr) break;
        entry.reset();
      }
    }
  }

  /// Whether a step at `position` finds all it reads.
  bool serves(int position, bool with_beyond) const {
    if (position == 0) return true;
    if (filled < position || beyond != with_beyond) return false;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      const int window = pool.layout().kinds()[kind].window;
      const int oldest = window == 0 ? 0 : std::max(0, position + 1 - window);
      for (int page = oldest / page_positions; page <= (position - 1) / page_positions; ++page) {
        if (tables[kind][static_cast<std::size_t>(page)] == nullptr) return false;
      }
    }
    return true;
  }

  /// Makes the pages of positions first.. last - 1 there and this sequence's own. Throws cache.full.
  void make_writable(int first, int last) {
    if (!pool || first >= last) return;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      const auto end = static_cast<std::size_t>((last - 1) / page_positions + 1);
      if (tables[kind].size() < end) tables[kind].resize(end);
      for (auto page = static_cast<std::size_t>(first / page_positions); page < end; ++page) {
        KvPageRef& entry = tables[kind][page];
        if (entry == nullptr) {
          entry = pool.take(static_cast<int>(kind));
        } else if (entry.use_count() != 1) {
          entry = pool.copy(static_cast<int>(kind), *entry);
        }
      }
    }
  }
};

}  // namespace slm::detail
