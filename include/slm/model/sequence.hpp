// Sequence: one text of a model, its tokens and the pages that hold their keys and values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/model/kv_pool.hpp"

namespace slm {

namespace detail {

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

struct SequenceAccess;

}  // namespace detail

/// One text of one model. A fork shares pages until one of the two writes to them. One thread at a time uses a
/// sequence; different sequences are used by different threads freely.
class Sequence {
 public:
  /// An empty text whose keys and values lie in this pool; model.sequence() takes the model's own.
  explicit Sequence(KvPool pool = {}) {
    if (pool) state_.tables.resize(pool.layout().kinds().size());
    state_.pool = std::move(pool);
  }

  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = default;

  /// Tokens so far.
  int length() const { return state_.length(); }
  std::span<const Token> tokens() const { return state_.tokens; }

  /// Forgets every token from `length` on, 0 <= length <= length(). Throws sequence.truncate.
  void truncate(int length) {
    if (length < 0 || length > state_.length()) {
      throw Error("sequence.truncate", text("cannot truncate ", state_.length(), " tokens to ", length),
                  text("Give a length of 0..", state_.length()));
    }
    state_.tokens.resize(static_cast<std::size_t>(length));
    state_.drop_behind(length);
  }

  /// The same text once more; both go on by themselves.
  Sequence fork() const {
    Sequence copy;
    copy.state_ = state_;
    return copy;
  }

 private:
  friend struct detail::SequenceAccess;
  detail::SequenceState state_;
};

namespace detail {

/// For models: the inside of a sequence.
struct SequenceAccess {
  static SequenceState& state(Sequence& sequence) { return sequence.state_; }
};

}  // namespace detail

}  // namespace slm
