// PagedSequence: the state of a sequence whose keys and values are in pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/sole_owner.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/sequence.hpp"
#include "slm/model/page_pool.hpp"
#include "slm/model/prefix_index.hpp"
#include "slm/model/recurrent_states.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// `filled` and the pages cache the keys and values of `tokens`. forward() recomputes missing ones, with the same bits.
struct PagedSequence final : SequenceState {
  PagePool pool;
  int filled = 0;                              // leading positions whose keys and values are in the pages
  bool beyond = false;                         // rotated with LongRoPE's long factors
  std::vector<std::vector<KvPageRef>> tables;  // [kind][page]; null: released. States after full pages: snapshots
  RecurrentStates states;                      // further states; empty without recurrent layers
  int computed_from = 0;                       // first position computed by this process; earlier ones come from a file
  PrefixIndex::Ref prefix = nullptr;           // the last page in the index; may be after the last filled page

  explicit PagedSequence(PagePool in) : pool(std::move(in)), tables(pool.layout().kinds().size()) {}

  std::unique_ptr<SequenceState> fork() const override { return std::make_unique<PagedSequence>(*this); }
  void save(std::ostream& out) const override;
  void load(std::istream& in) override;

  /// Releases pages after the first `positions`.
  void drop_behind(int positions) override {
    const auto pages = static_cast<std::size_t>((positions + page_positions - 1) / page_positions);
    for (auto& table : tables) table.resize(std::min(table.size(), pages));
    if (recurs()) {
      const bool missing = positions < filled && positions > 0 && state_at(positions) == nullptr;
      states.drop_behind(positions, missing ? filled - positions : 0);
      const auto full = static_cast<std::size_t>(positions / page_positions);
      if (snapshots().size() > full) snapshots()[full].reset();
    }
    filled = std::min(filled, positions);
  }

  void expect_truncation(int length) override { states.expect_truncation(length); }

  /// Whether the model has recurrent layers.
  bool recurs() const { return pool.layout().state_kind() >= 0; }

  /// The state of the recurrent layers after the first `position` positions; null: not kept.
  KvPageRef state_at(int position) const {
    if (KvPageRef page = states.at(position)) return page;
    const auto page = static_cast<std::size_t>(position / page_positions);
    const bool full = position > 0 && position % page_positions == 0 && page <= snapshots().size();
    return full ? snapshots()[page - 1] : nullptr;
  }

  /// See RecurrentStates::plan.
  void plan_states(int first, int last, int results, std::vector<std::byte*>& pages) {
    const KvPageRef before = state_at(first);
    const std::size_t size = pages.size();
    try {
      return states.plan(pool, before, first, last, results, pages);
    } catch (const Error&) {
      pages.resize(size);
      for (KvPageRef& snapshot : snapshots()) {
        if (snapshot != before) snapshot.reset();
      }
    }
    states.plan(pool, before, first, last, results, pages);
  }

  /// Records that the rows of the last plan_states() were computed.
  void states_computed(int last, int results) {
    if (recurs()) states.computed(last, results, pool.layout().snapshot_distance(), snapshots());
  }

  /// The last position up to `position` from which a step can continue.
  int resumable(int position, bool with_beyond) const {
    while (!serves(position, with_beyond)) {
      if (!recurs()) return 0;
      int before = states.before(position);
      for (int page = (position - 1) / page_positions; page * page_positions > before; --page) {
        if (state_at(page * page_positions) != nullptr) before = page * page_positions;
      }
      position = before;
    }
    return position;
  }

  /// Releases pages outside the sliding window of a sequence of `length`, except those that a truncated draft may need.
  void release_before_window(int length) {
    if (recurs()) {
      for (int page = (length - KvLayout::snapshot_range) / page_positions - 1; page >= 0; --page)
        snapshots()[static_cast<std::size_t>(page)].reset();
    }
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      for (int page = first_kept(kind, length) - 1; page >= 0; --page) {
        if (page >= static_cast<int>(tables[kind].size())) continue;
        KvPageRef& entry = tables[kind][static_cast<std::size_t>(page)];
        if (entry == nullptr) break;
        entry.reset();
      }
    }
  }

  void discard() override {
    drop_behind(0);
    states = {};
    prefix = nullptr;
    computed_from = 0;
  }

  void adopt_tokens(std::span<const Token> more) override {
    const int before = length();
    if (filled != before) return;
    reserve(more.size());
    const auto token_at = [&](int i) {
      return i < before ? tokens[static_cast<std::size_t>(i)] : more[static_cast<std::size_t>(i - before)];
    };
    const int last = adopt(before, before + static_cast<int>(more.size()), token_at, false);
    tokens.insert(tokens.end(), more.begin(), more.begin() + (last - before));
    adopted += last - before;
  }

  /// Returns true if a step at `position` finds all positions that it reads.
  bool serves(int position, bool with_beyond) const {
    if (position == 0) return true;
    if (filled < position || beyond != with_beyond) return false;
    if (recurs() && state_at(position) == nullptr) return false;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      if (is_state(kind)) continue;
      const int window = pool.layout().kinds()[kind].window;
      const int oldest = window == 0 ? 0 : std::max(0, position + 1 - window);
      for (int page = oldest / page_positions; page <= (position - 1) / page_positions; ++page) {
        if (tables[kind][static_cast<std::size_t>(page)] == nullptr) return false;
      }
    }
    return true;
  }

  /// Reuses positions after the first `position` that other sequences have filled with the same tokens, up to `last`:
  /// full pages, then the beginning of one. Returns the number of filled positions. computes_rest: the caller computes
  /// the other positions next, so the index counts them as misses.
  template <class TokenAt>
  int adopt(int position, int last, TokenAt token_at, bool computes_rest) {
    const int from = position / page_positions, to = last / page_positions;
    if (pool.prefixes() == nullptr || beyond || (from >= to && last - position < least_part)) return position;
    if (position % page_positions != 0 && computed_from > from * page_positions) return position;
    PrefixIndex::Ref before = prefix;
    while (PrefixIndex::count(before) > from) before = before->before;
    if (PrefixIndex::count(before) != from) return position;

    PrefixIndex& index = *pool.prefixes();
    const std::vector<Token> text = texts_of(from * page_positions, last, token_at);
    const auto found = index.find(before, key, text);
    PagedSequence longer = *this;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      longer.tables[kind].resize(static_cast<std::size_t>(from));
      for (const PrefixIndex::Found& page : found) longer.tables[kind].push_back(page.kinds[kind]);
    }
    int pages = from + static_cast<int>(found.size());
    longer.filled = pages * page_positions;
    while (pages > from && !longer.serves(pages * page_positions, false)) --pages;  // part of a window is missing
    if (pages > from) before = found[static_cast<std::size_t>(pages - from - 1)].page;
    longer.filled = pages * page_positions;
    longer.adopt_part(before, std::span(text).subspan(static_cast<std::size_t>((pages - from) * page_positions)));
    const bool serves_more = longer.filled > position && (pages > from || longer.filled - position >= least_part);
    index.count(pages - from, computes_rest ? to - pages : 0, serves_more ? longer.filled - pages * page_positions : 0);
    if (!serves_more) return position;

    tables = std::move(longer.tables);
    filled = longer.filled;
    const int end = (filled + page_positions - 1) / page_positions;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      tables[kind].resize(static_cast<std::size_t>(end));
      for (int page = std::min(first_kept(kind, filled), end) - 1; page >= 0; --page)
        tables[kind][static_cast<std::size_t>(page)].reset();
    }
    computed_from = std::min(computed_from, position);
    prefix = before;
    return filled;
  }

  /// Adds the beginning of the last page to the index. Sharing is optional, so lack of memory prevents it silently.
  void share_last_page() noexcept override {
    const int end = std::min(filled, length()), full = end / page_positions, part = end % page_positions;
    if (pool.prefixes() == nullptr || beyond || recurs() || part < least_part) return;
    if (computed_from > full * page_positions || PrefixIndex::count(prefix) != full) return;
    try {
      std::vector<KvPageRef> kinds;
      for (const auto& table : tables) kinds.push_back(table[static_cast<std::size_t>(full)]);
      const auto text = std::span(tokens).subspan(static_cast<std::size_t>(full) * page_positions);
      pool.prefixes()->add_part(prefix, key, text.first(static_cast<std::size_t>(part)), std::move(kinds));
    } catch (const std::bad_alloc&) {
    }
  }

  /// Adds the full pages of the first `last` positions to the index.
  template <class TokenAt>
  void publish(int last, TokenAt token_at) {
    if (pool.prefixes() == nullptr || beyond) return;
    const int from = PrefixIndex::count(prefix), to = last / page_positions;
    if (from >= to || computed_from > from * page_positions) return;
    const std::vector<Token> text = texts_of(from * page_positions, to * page_positions, token_at);
    prefix = pool.prefixes()->add(prefix, key, text, tables);
  }

  /// Allocates the pages of positions first.. last - 1, and copies shared ones. Throws cache.full.
  void make_writable(int first, int last) {
    if (first >= last) return;
    computed_from = std::min(computed_from, first);
    PrefixIndex::Ref written;  // the first written page, if it is in the index
    while (PrefixIndex::count(prefix) > first / page_positions) written = std::exchange(prefix, prefix->before);
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      const auto end = static_cast<std::size_t>((last - 1) / page_positions + 1);
      if (tables[kind].size() < end) tables[kind].resize(end);
      if (is_state(kind)) continue;
      for (auto page = static_cast<std::size_t>(first / page_positions); page < end; ++page) {
        KvPageRef& entry = tables[kind][page];
        if (entry == nullptr) {
          entry = pool.take(static_cast<int>(kind));
        } else if (!is_sole_owner(entry)) {
          if (written != nullptr && pool.prefixes()->leave(*written, static_cast<int>(kind), entry)) continue;
          copy(static_cast<int>(kind), entry);
        }
      }
    }
  }

 private:
  static constexpr int least_part = 8;  // to compute fewer positions takes no longer than to copy their page

  /// Appends the beginning of a known page to the full pages, if one serves.
  void adopt_part(const PrefixIndex::Ref& before, std::span<const Token> text) {
    const int full = filled / page_positions;
    if (recurs() || std::ssize(text) < least_part) return;
    PrefixIndex::Part part = pool.prefixes()->find_part(before, key, text);
    if (part.positions == 0) return;
    for (std::size_t kind = 0; kind < tables.size(); ++kind) {
      tables[kind].resize(static_cast<std::size_t>(full));
      tables[kind].push_back(std::move(part.kinds[kind]));
    }
    filled += part.positions;
    if (!serves(filled, false)) filled -= part.positions;
  }

  /// Replaces a shared page by a copy, or, without memory for one, by the index's page if no other sequence holds it.
  void copy(int kind, KvPageRef& entry) {
    try {
      entry = pool.copy(kind, *entry);
    } catch (const Error&) {
      if (pool.prefixes() == nullptr || !pool.prefixes()->leave(kind, entry)) throw;
    }
  }

  bool is_state(std::size_t kind) const { return static_cast<int>(kind) == pool.layout().state_kind(); }
  std::vector<KvPageRef>& snapshots() { return tables.back(); }
  const std::vector<KvPageRef>& snapshots() const { return tables.back(); }

  /// The first page of a kind that a sequence of `length` needs, also after a draft is truncated.
  int first_kept(std::size_t kind, int length) const {
    const int window = pool.layout().kinds()[kind].window;
    return window == 0 ? 0 : std::max(0, length - KvLayout::longest_rollback + 1 - window) / page_positions;
  }

  /// Tokens of the positions first.. last - 1.
  template <class TokenAt>
  static std::vector<Token> texts_of(int first, int last, TokenAt token_at) {
    std::vector<Token> tokens;
    for (int position = first; position < last; ++position) tokens.push_back(token_at(position));
    return tokens;
  }
};

/// The KvCache of models: a PagePool.
class PagedCache final : public KvCache {
 public:
  explicit PagedCache(PagePool pool) : pool_(std::move(pool)) {}

  const PagePool& pool() const { return pool_; }

  std::unique_ptr<SequenceState> sequence() const override { return std::make_unique<PagedSequence>(pool_); }
  KvFormat format() const override { return pool_.layout().format(); }
  std::size_t bytes_of(std::int64_t length) const override { return pool_.layout().bytes_of(length); }
  std::size_t used() const override { return pool_.used(); }
  std::size_t budget() const override { return pool_.budget(); }
  std::size_t idle() const override { return pool_.idle(); }
  bool shares_prefixes() const override { return pool_.prefixes() != nullptr; }
  PrefixStats prefix_stats() const override { return pool_.prefix_stats(); }
  std::uint64_t model_digest() const override { return pool_.layout().owner().digest.get(); }

 private:
  PagePool pool_;
};

/// The pages of a model's sequence or pool.
inline PagedSequence& paged(Sequence& sequence) { return static_cast<PagedSequence&>(SequenceAccess::state(sequence)); }
inline const PagePool& paged(const KvPool& pool) { return static_cast<const PagedCache&>(*pool.cache()).pool(); }

}}}

#include "slm/model/sequence_file.hpp"
