// AnswerPool: which token followed which tokens in finished answers, with counts. Bounded, thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// A table of 2^bits entries (last tokens -> next token, count). Entries with the lowest counts are replaced first, and
/// each failed replacement lowers the counts, so that old answers fade. Requests find answers of their tenant only.
class AnswerPool {
 public:
  static constexpr std::size_t most_found = 16;

  /// A proposal after the first `length` tokens of a text.
  struct Found {
    std::size_t size = 0, length = 0;
    std::array<Token, most_found> tokens;
    std::array<float, most_found> chances;
  };

  explicit AnswerPool(int bits) : mask_((std::size_t{1} << std::clamp(bits, 4, 24)) - 1) {}

  /// Adds the tokens from index `begin` on.
  void add(std::span<const Token> text, std::size_t begin, std::uint64_t tenant) {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) entries_.resize(mask_ + 1);
    for (std::size_t i = std::max(begin, order); i < text.size(); ++i) count(key(text.first(i), tenant), text[i]);
  }

  /// Proposes the tokens that followed the end of `text`, as long as one token is more frequent than all others.
  Found find(std::span<const Token> text, int most, std::uint64_t tenant) const {
    Found found;
    found.length = text.size();
    if (text.size() < order) return found;
    std::array<Token, order + most_found> window;
    std::copy(text.end() - order, text.end(), window.begin());
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return found;
    while (found.size < std::min(most_found, static_cast<std::size_t>(std::max(most, 0)))) {
      const std::uint64_t here = key({window.data(), order + found.size}, tenant);
      const Entry* best = nullptr;
      std::uint32_t all = 0;
      for (std::size_t i = 0; i < ways; ++i) {
        const Entry& entry = entries_[slot(here, i)];
        if (entry.count == 0 || entry.check != check(here)) continue;
        all += entry.count;
        if (best == nullptr || entry.count > best->count) best = &entry;
      }
      if (best == nullptr || 2 * best->count <= all) break;
      window[order + found.size] = found.tokens[found.size] = best->next;
      found.chances[found.size] = (static_cast<float>(best->count) + 0.5f) / (static_cast<float>(all) + 1);
      ++found.size;
    }
    return found;
  }

 private:
  static constexpr std::size_t order = 4, ways = 4;
  static constexpr std::uint32_t most_count = 1 << 16;

  struct Entry {
    std::uint32_t check = 0;
    Token next = 0;
    std::uint32_t count = 0;  // 0: free
  };

  static std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
  }
  /// A hash of the last tokens and the tenant.
  static std::uint64_t key(std::span<const Token> text, std::uint64_t tenant) {
    std::uint64_t hash = mixed(tenant + 0x9e3779b97f4a7c15u);
    for (const Token token : text.last(order)) hash = mixed(hash + static_cast<std::uint32_t>(token) + 1);
    return hash;
  }
  static std::uint32_t check(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 32); }
  std::size_t slot(std::uint64_t key, std::size_t way) const { return (static_cast<std::size_t>(key) + way) & mask_; }

  void count(std::uint64_t key, Token next) {
    Entry* least = nullptr;
    for (std::size_t i = 0; i < ways; ++i) {
      Entry& entry = entries_[slot(key, i)];
      if (entry.count > 0 && entry.check == check(key) && entry.next == next) {
        entry.count = std::min(entry.count + 1, most_count);
        return;
      }
      if (least == nullptr || entry.count < least->count) least = &entry;
    }
    if (least->count > 1) {
      --least->count;
    } else {
      *least = {check(key), next, 1};
    }
  }

  mutable std::mutex mutex_;
  std::size_t mask_;
  std::vector<Entry> entries_;  // allocated by the first answer
};

}}}
