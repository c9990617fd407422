// PrefixIndex: finds pages by their token prefix, so that a common prefix is computed once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "slm/core/sole_owner.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/kv_pool.hpp"
#include "slm/lm/sequence.hpp"

namespace slm { inline namespace v0_1 {

struct KvPage;
using KvPageRef = std::shared_ptr<const KvPage>;

/// Belongs to one pool. Thread-safe.
class PrefixIndex {
 public:
  struct Page;
  using Ref = std::shared_ptr<Page>;
  using Order = std::list<Ref>;

  /// A page with its prefix. A full page is unique among all sequences with that prefix and stays in the index while
  /// any reference exists. Two sequences are therefore equal up to a full page if and only if they refer to the same
  /// Page. A partial page has fewer tokens; only the index refers to it.
  struct Page {
    Ref before;  // null for the first page
    PrefixKey key;
    std::vector<Token> tokens;
    int count = 0;  // pages of the prefix, this one included

    bool is_partial() const { return tokens.size() < page_positions; }

    ~Page() {  // iterative, since recursion could overflow the stack for long prefixes
      while (before != nullptr && detail::is_sole_owner(before)) before = std::exchange(before->before, nullptr);
    }

   private:
    friend PrefixIndex;
    std::vector<KvPageRef> kinds;  // per kind of layer; null: absent
    Order::iterator place;
  };

  struct Found {
    Ref page;
    std::vector<KvPageRef> kinds;
  };

  struct Part {
    int positions = 0;  // leading positions of the page that serve
    std::vector<KvPageRef> kinds = {};
  };

  static int count(const Ref& page) { return page == nullptr ? 0 : page->count; }

  /// Returns the known pages of `tokens` that follow `before`, up to the first unknown one.
  std::vector<Found> find(Ref before, const PrefixKey& key, std::span<const Token> tokens) {
    const std::lock_guard lock(mutex_);
    std::vector<Found> found;
    for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
      Ref page = known(before, key, tokens.first(page_positions));
      if (page == nullptr) break;
      found.push_back({page, page->kinds});
      before = std::move(page);
    }
    use(before);
    return found;
  }

  /// Returns the page after `before`, full or partial, that has the most leading tokens in common with `tokens`.
  Part find_part(const Ref& before, const PrefixKey& key, std::span<const Token> tokens) {
    const std::lock_guard lock(mutex_);
    const auto [place, common] = closest(Identity(before.get(), key, tokens));
    if (common == 0) return {};
    use(**place);
    return {static_cast<int>(common), (**place)->kinds};
  }

  /// Adds a partial page with `tokens` after `before`, unless a known page begins with them.
  void add_part(const Ref& before, const PrefixKey& key, std::span<const Token> tokens, std::vector<KvPageRef> kinds) {
    const std::lock_guard lock(mutex_);
    const auto [place, common] = closest(Identity(before.get(), key, tokens));
    if (common == tokens.size()) return use(**place);
    const Ref page = make(before, key, tokens, kinds.size());
    page->kinds = std::move(kinds);
    for (const KvPageRef& held : page->kinds) stats_.pages += held != nullptr;
    use(page);
  }

  /// Counts the result of a lookup: full pages found and not found, and positions found in the next page.
  void count(std::int64_t hits, std::int64_t misses, std::int64_t part_positions) {
    const std::lock_guard lock(mutex_);
    stats_.hits += hits;
    stats_.misses += misses;
    stats_.part_positions += part_positions;
  }

  /// Adds the pages of `tokens`, which follow `before`. Where another sequence has filled an equal page, the tables get
  /// that page. Returns the last page.
  Ref add(Ref before, const PrefixKey& key, std::span<const Token> tokens,
          std::vector<std::vector<KvPageRef>>& tables) {
    const std::lock_guard lock(mutex_);
    for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
      const auto at = static_cast<std::size_t>(count(before));
      Ref page = known(before, key, tokens.first(page_positions));
      if (page == nullptr) page = make(before, key, tokens.first(page_positions), tables.size());
      for (std::size_t kind = 0; kind < tables.size(); ++kind) {
        KvPageRef& held = page->kinds[kind];
        KvPageRef& own = tables[kind][at];
        if (own == nullptr) continue;
        if (held != nullptr) {
          own = held;
        } else {
          held = own;
          ++stats_.pages;
        }
      }
      before = std::move(page);
    }
    use(before);
    return before;
  }

  /// Removes a page's memory from the index before its only sequence writes to it. Returns false if other sequences
  /// hold it.
  bool leave(Page& page, int kind, const KvPageRef& own) {
    const std::lock_guard lock(mutex_);
    return leaves(page, kind, own);
  }

  /// The same for a page that is not known to the caller, in time proportional to the number of pages.
  bool leave(int kind, const KvPageRef& own) {
    const std::lock_guard lock(mutex_);
    const auto place =
        std::find_if(order_.begin(), order_.end(), [&](const Ref& page) { return leaves(*page, kind, own); });
    if (place == order_.end()) return false;
    const Page& page = **place;
    const auto is_absent = [](const KvPageRef& held) { return held == nullptr; };
    if (page.is_partial() && std::all_of(page.kinds.begin(), page.kinds.end(), is_absent)) erase(place);
    return true;
  }

  /// Evicts the least recently used page that no sequence holds. Returns false if there is none.
  bool give_up() {
    const std::lock_guard lock(mutex_);
    for (auto next = order_.end(); next != order_.begin();) {
      const auto place = std::prev(next);
      Page& page = **place;
      const std::int64_t before = stats_.evictions;
      bool empty = true;
      for (KvPageRef& held : page.kinds) {
        if (detail::is_sole_owner(held)) {
          held.reset();
          ++stats_.evictions;
          --stats_.pages;
        }
        empty = empty && held == nullptr;
      }
      const bool gave = stats_.evictions != before;
      if (empty && detail::is_sole_owner(*place)) {
        erase(place);
      } else {
        next = place;
      }
      if (gave) return true;
    }
    return false;
  }

  /// Number of pages per kind that no sequence holds.
  std::vector<std::size_t> idle(std::size_t kinds) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t> counts(kinds);
    for (const Ref& page : order_) {
      for (std::size_t kind = 0; kind < kinds; ++kind) counts[kind] += page->kinds[kind].use_count() == 1;
    }
    return counts;
  }

  PrefixStats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
  /// The identity of a page. Pages are ordered by the previous page and the key, then by tokens.
  struct Identity {
    const Page* before;
    PrefixKey key;
    std::span<const Token> tokens;

    Identity(const Page* page_before, const PrefixKey& of, std::span<const Token> text)
        : before(page_before), key(of), tokens(text) {}
    // Implicit: the tree compares its elements by their identities.
    Identity(Order::iterator page) : Identity((*page)->before.get(), (*page)->key, (*page)->tokens) {}

    std::tuple<std::uintptr_t, std::uint64_t, std::uint64_t> group() const {
      return {reinterpret_cast<std::uintptr_t>(before), key.tenant, key.adapter};
    }
    bool operator<(const Identity& other) const {
      if (group() != other.group()) return group() < other.group();
      return std::lexicographical_compare(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
    }
  };

  struct Less {
    using is_transparent = void;
    bool operator()(const Identity& a, const Identity& b) const { return a < b; }
  };

  using Tree = std::set<Order::iterator, Less>;

  bool leaves(Page& page, int kind, const KvPageRef& own) {
    KvPageRef& held = page.kinds[static_cast<std::size_t>(kind)];
    if (held != own || !detail::is_sole_owner(own, 2)) return false;
    held.reset();
    --stats_.pages;
    return true;
  }

  /// The reference to the previous page covers all earlier tokens.
  Ref known(const Ref& before, const PrefixKey& key, std::span<const Token> tokens) const {
    const auto found = pages_.find(Identity(before.get(), key, tokens));
    return found == pages_.end() ? nullptr : **found;
  }

  /// Returns the page with the most leading tokens in common, and their number; 0: there is none. Pages with the same
  /// beginning are neighbours in the tree.
  std::pair<Tree::const_iterator, std::size_t> closest(const Identity& wanted) const {
    std::pair<Tree::const_iterator, std::size_t> best{pages_.end(), 0};
    const auto after = pages_.lower_bound(wanted);
    const auto consider = [&](Tree::const_iterator place) {
      const Identity page = *place;
      if (page.group() != wanted.group()) return;
      const auto [end, _] = std::ranges::mismatch(page.tokens, wanted.tokens);
      const auto common = static_cast<std::size_t>(end - page.tokens.begin());
      if (common > best.second) best = {place, common};
    };
    if (after != pages_.end()) consider(after);
    if (after != pages_.begin()) consider(std::prev(after));
    return best;
  }

  /// Adds a page without memory. It replaces a partial page that is its beginning.
  Ref make(const Ref& before, const PrefixKey& key, std::span<const Token> tokens, std::size_t kinds) {
    auto page = std::make_shared<Page>();
    page->before = before;
    page->key = key;
    page->tokens.assign(tokens.begin(), tokens.end());
    page->count = count(before) + 1;
    page->kinds.resize(kinds);
    const auto [shorter, common] = closest(Identity(before.get(), key, tokens));
    page->place = order_.insert(order_.begin(), page);
    try {
      pages_.insert(page->place);
    } catch (...) {
      order_.erase(page->place);
      throw;
    }
    if (common > 0 && common == (**shorter)->tokens.size()) erase(*shorter);
    return page;
  }

  void erase(Order::iterator place) {
    for (const KvPageRef& held : (*place)->kinds) stats_.pages -= held != nullptr;
    pages_.erase(place);
    order_.erase(place);
  }

  /// Marks the whole prefix as used, so that the beginning outlives the pages after it.
  void use(const Ref& last) {
    for (Page* page = last.get(); page != nullptr; page = page->before.get())
      order_.splice(order_.begin(), order_, page->place);
  }

  mutable std::mutex mutex_;
  Order order_;  // most recently used first
  Tree pages_;
  PrefixStats stats_;
};

}}
