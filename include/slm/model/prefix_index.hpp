// PrefixIndex: finds full pages by their token prefix, so that a common prefix is computed once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slm/core/checksum.hpp"
#include "slm/core/sole_owner.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/kv_pool.hpp"
#include "slm/lm/sequence.hpp"

namespace slm { inline namespace v0_1 {

struct KvPage;
using KvPageRef = std::shared_ptr<const KvPage>;

/// Computes the hash of the page with `tokens` from the hash of the previous page; 0 before the first.
using PrefixHash = std::uint64_t (*)(std::uint64_t before, const PrefixKey& key, std::span<const Token> tokens);

inline std::uint64_t prefix_hash(std::uint64_t before, const PrefixKey& key, std::span<const Token> tokens) {
  Checksum sum;
  sum.add(before);
  sum.add(key.tenant);
  sum.add(key.adapter);
  sum.add(std::as_bytes(tokens));
  return sum.value();
}

/// Belongs to one pool. Thread-safe.
class PrefixIndex {
 public:
  struct Page;
  using Ref = std::shared_ptr<Page>;
  using Order = std::list<Ref>;

  /// A full page with its prefix, unique among all sequences with that prefix. It stays in the index while any
  /// reference exists. Two sequences are therefore equal up to a page if and only if they refer to the same Page.
  struct Page {
    Ref before;  // null for the first page
    PrefixKey key;
    std::vector<Token> tokens;
    std::uint64_t hash = 0;
    int count = 0;  // pages of the prefix, this one included

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

  explicit PrefixIndex(PrefixHash hash) : hash_(hash) {}

  static int count(const Ref& page) { return page == nullptr ? 0 : page->count; }

  /// Returns the known pages of `tokens` that follow `before`, up to the first unknown one.
  std::vector<Found> find(Ref before, const PrefixKey& key, std::span<const Token> tokens) {
    const std::lock_guard lock(mutex_);
    std::vector<Found> found;
    for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
      Ref page = known(before, key, tokens.first(page_positions), hash_of(before, key, tokens));
      if (page == nullptr) break;
      found.push_back({page, page->kinds});
      before = std::move(page);
    }
    use(before);
    return found;
  }

  /// Counts the result of a lookup, in pages.
  void count(std::int64_t hits, std::int64_t misses) {
    const std::lock_guard lock(mutex_);
    stats_.hits += hits;
    stats_.misses += misses;
  }

  /// Adds the pages of `tokens`, which follow `before`. Where another sequence has filled an equal page, the tables get
  /// that page. Returns the last page.
  Ref add(Ref before, const PrefixKey& key, std::span<const Token> tokens,
          std::vector<std::vector<KvPageRef>>& tables) {
    const std::lock_guard lock(mutex_);
    for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
      const auto at = static_cast<std::size_t>(count(before));
      const std::uint64_t hash = hash_of(before, key, tokens);
      Ref page = known(before, key, tokens.first(page_positions), hash);
      if (page == nullptr) page = make(before, key, tokens.first(page_positions), hash, tables.size());
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
    KvPageRef& held = page.kinds[static_cast<std::size_t>(kind)];
    if (held != own || !detail::is_sole_owner(own, 2)) return false;
    held.reset();
    --stats_.pages;
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
  std::uint64_t hash_of(const Ref& before, const PrefixKey& key, std::span<const Token> tokens) const {
    return hash_(before == nullptr ? 0 : before->hash, key, tokens.first(page_positions));
  }

  /// Hashes may collide, so tokens are compared. The reference to the previous page covers all earlier tokens.
  Ref known(const Ref& before, const PrefixKey& key, std::span<const Token> tokens, std::uint64_t hash) const {
    const auto [first, last] = pages_.equal_range(hash);
    const auto found = std::find_if(first, last, [&](const auto& entry) {
      const Page& page = **entry.second;
      return page.before == before && page.key == key && std::equal(tokens.begin(), tokens.end(), page.tokens.begin());
    });
    return found == last ? nullptr : *found->second;
  }

  Ref make(const Ref& before, const PrefixKey& key, std::span<const Token> tokens, std::uint64_t hash,
           std::size_t kinds) {
    auto page = std::make_shared<Page>();
    page->before = before;
    page->key = key;
    page->tokens.assign(tokens.begin(), tokens.end());
    page->hash = hash;
    page->count = count(before) + 1;
    page->kinds.resize(kinds);
    page->place = order_.insert(order_.begin(), page);
    try {
      pages_.emplace(hash, page->place);
    } catch (...) {
      order_.erase(page->place);
      throw;
    }
    return page;
  }

  void erase(Order::iterator place) {
    const auto [first, last] = pages_.equal_range((*place)->hash);
    pages_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == place; }));
    order_.erase(place);
  }

  /// Marks the whole prefix as used, so that the beginning outlives the pages after it.
  void use(const Ref& last) {
    for (Page* page = last.get(); page != nullptr; page = page->before.get())
      order_.splice(order_.begin(), order_, page->place);
  }

  PrefixHash hash_;
  mutable std::mutex mutex_;
  Order order_;                                                    // most recently used first
  std::unordered_multimap<std::uint64_t, Order::iterator> pages_;  // by hash
  PrefixStats stats_;
};

}}
