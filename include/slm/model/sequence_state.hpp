// SequenceState: the internals of a sequence, for models.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "slm/core/sole_owner.hpp"
#include "slm/core/types.hpp"
#include "slm/formats/adapter.hpp"
#include "slm/model/kv_pool.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// State of a sequence that forward() uses. `filled` and the pages cache the keys and values of `tokens`. forward()
/// recomputes missing ones, with the same bits.
struct SequenceState {
  KvPool pool;
  std::vector<Token> tokens;
  int filled = 0;                              // leading positions whose keys and values are in the pages
  bool beyond = false;                         // rotated with LongRoPE's long factors
  std::vector<std::vector<KvPageRef>> tables;  // [kind][page]; null: released
  AdapterRef adapter = nullptr;                // null: none
  PrefixKey key = {};                          // shared by all positions
  int computed_from = 0;                       // first position computed by this process; earlier ones come from a file
  std::int64_t adopted = 0;                    // total positions reused from other sequences
  PrefixIndex::Ref prefix = nullptr;           // the last page in the index; may be after the last filled page

  int length() const { return static_cast<int>(tokens.size()); }

  /// Reserves memory to append `more` tokens.
  void make_room(std::size_t more) {
    const std::size_t wanted = tokens.size() + more;
    if (wanted > tokens.capacity()) tokens.reserve(std::max(wanted, 2 * tokens.capacity()));
  }

  /// Releases pages after the first `positions`.
  void drop_behind(int positions) {
    const auto pages = static_cast<std::size_t>((positions + page_positions - 1) / page_positions);
    for (auto& table : tables) table.resize(std::min(table.size(), pages));
    filled = std::min(filled, positions);
  }

  /// Releases pages outside the sliding window of a sequence of `length`, except those that a truncated draft may need.
  void release_before_window(int length) {
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      for (int page = first_kept(kind, length) - 1; page >= 0; --page) {
        if (page >= static_cast<int>(tables[kind].size())) continue;
        KvPageRef& entry = tables[kind][static_cast<std::size_t>(page)];
        if (entry == nullptr) break;
        entry.reset();
      }
    }
  }

  /// Sets group and adapter, and discards all pages.
  void bind(std::uint64_t group, AdapterRef with) {
    adapter = std::move(with);
    key = {.group = group, .adapter = adapter == nullptr ? 0 : adapter->digest};
    drop_behind(0);
    prefix = nullptr;
    computed_from = 0;
  }

  /// Returns true if a step at `position` finds all positions that it reads.
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

  /// Reuses full pages after the first `position` positions that other sequences have filled with the same tokens, up
  /// to `last`. Returns the number of filled positions. computes_rest: the caller computes the other positions next, so
  /// the index counts them as misses.
  template <class TokenAt>
  int adopt(int position, int last, TokenAt token_at, bool computes_rest) {
    const int from = position / page_positions, to = last / page_positions;
    if (!pool || pool.prefixes() == nullptr || beyond || from >= to) return position;
    if (position % page_positions != 0 && computed_from > from * page_positions) return position;
    PrefixIndex::Ref before = prefix;
    while (PrefixIndex::count(before) > from) before = before->before;
    if (PrefixIndex::count(before) != from) return position;

    PrefixIndex& index = *pool.prefixes();
    const auto found = index.find(before, key, texts_of(from, to, token_at));
    SequenceState longer = *this;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      longer.tables[kind].resize(static_cast<std::size_t>(from));
      for (const PrefixIndex::Found& page : found) longer.tables[kind].push_back(page.kinds[kind]);
    }
    int pages = from + static_cast<int>(found.size());
    longer.filled = pages * page_positions;
    while (pages > from && !longer.serves(pages * page_positions, false)) --pages;  // part of a window is missing
    index.count(pages - from, computes_rest ? to - pages : 0);
    if (pages == from) return position;

    tables = std::move(longer.tables);
    filled = pages * page_positions;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      tables[kind].resize(static_cast<std::size_t>(pages));
      for (int page = std::min(first_kept(kind, filled), pages) - 1; page >= 0; --page)
        tables[kind][static_cast<std::size_t>(page)].reset();
    }
    computed_from = std::min(computed_from, position);
    prefix = found[static_cast<std::size_t>(pages - from - 1)].page;
    return filled;
  }

  /// Adds the full pages of the first `last` positions to the index.
  template <class TokenAt>
  void publish(int last, TokenAt token_at) {
    if (!pool || pool.prefixes() == nullptr || beyond) return;
    const int from = PrefixIndex::count(prefix), to = last / page_positions;
    if (from >= to || computed_from > from * page_positions) return;
    prefix = pool.prefixes()->add(prefix, key, texts_of(from, to, token_at), tables);
  }

  /// Allocates the pages of positions first.. last - 1, and copies shared ones. Throws cache.full.
  void make_writable(int first, int last) {
    if (!pool || first >= last) return;
    computed_from = std::min(computed_from, first);
    PrefixIndex::Ref written;  // the first written page, if it is in the index
    while (PrefixIndex::count(prefix) > first / page_positions) written = std::exchange(prefix, prefix->before);
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      const auto end = static_cast<std::size_t>((last - 1) / page_positions + 1);
      if (tables[kind].size() < end) tables[kind].resize(end);
      for (auto page = static_cast<std::size_t>(first / page_positions); page < end; ++page) {
        KvPageRef& entry = tables[kind][page];
        if (entry == nullptr) {
          entry = pool.take(static_cast<int>(kind));
        } else if (!is_sole_owner(entry)) {
          if (written != nullptr && pool.prefixes()->leave(*written, static_cast<int>(kind), entry)) continue;
          entry = pool.copy(static_cast<int>(kind), *entry);
        }
      }
    }
  }

 private:
  /// The first page of a kind that a sequence of `length` needs, also after a draft is truncated.
  int first_kept(std::size_t kind, int length) const {
    const int window = pool.layout().kinds()[kind].window;
    return window == 0 ? 0 : std::max(0, length - KvLayout::longest_rollback + 1 - window) / page_positions;
  }

  /// Tokens of pages from.. to - 1.
  template <class TokenAt>
  static std::vector<Token> texts_of(int from, int to, TokenAt token_at) {
    std::vector<Token> tokens;
    for (int position = from * page_positions; position < to * page_positions; ++position)
      tokens.push_back(token_at(position));
    return tokens;
  }
};

}}}
