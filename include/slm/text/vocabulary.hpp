// Vocabulary: token text <-> id, in flat memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// A map between texts and ids. Ids need not be dense, but may not lie absurdly far behind their number.
class Vocabulary {
 public:
  static constexpr std::int64_t id_limit = 10'000'000;
  static constexpr std::int64_t most_gaps = 1'000'000;  // ids without a token that a vocabulary may have

  explicit Vocabulary(std::size_t expected_tokens = 0) {
    entries_.reserve(expected_tokens);
    rehash(expected_tokens * 2);
  }

  /// Adds a token. False (and nothing is added) when the text or the id is taken; the id must be in [0, id_limit).
  bool add(std::string_view text, Token id) {
    if (find(text) || entry_of(id) != none) return false;
    if ((entries_.size() + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
    const auto index = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({pool_.size(), static_cast<std::uint32_t>(text.size()), id});
    pool_ += text;
    slots_[slot_of(text)] = index;
    if (static_cast<std::size_t>(id) >= by_id_.size()) by_id_.resize(static_cast<std::size_t>(id) + 1, none);
    by_id_[static_cast<std::size_t>(id)] = index;
    return true;
  }

  std::optional<Token> find(std::string_view text) const {
    const std::uint32_t index = slots_[slot_of(text)];
    if (index == none) return std::nullopt;
    return entries_[index].id;
  }

  bool contains(Token id) const { return entry_of(id) != none; }

  /// Text of a token; empty when there is none.
  std::string_view text(Token id) const {
    const std::uint32_t index = entry_of(id);
    return index == none ? std::string_view{} : text_of(entries_[index]);
  }

  std::size_t size() const { return entries_.size(); }
  /// Highest id + 1.
  int id_end() const { return static_cast<int>(by_id_.size()); }

 private:
  struct Entry {
    std::size_t offset;
    std::uint32_t length;
    Token id;
  };
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  std::string_view text_of(const Entry& entry) const {
    return std::string_view{pool_}.substr(entry.offset, entry.length);
  }

  std::uint32_t entry_of(Token id) const {
    return id < 0 || static_cast<std::size_t>(id) >= by_id_.size() ? none : by_id_[static_cast<std::size_t>(id)];
  }

  /// Where the text is, or the empty slot where it belongs.
  std::size_t slot_of(std::string_view text) const {
    std::uint64_t hash = 0xCBF29CE484222325u;
    for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
    std::size_t slot = static_cast<std::size_t>(hash ^ hash >> 29) & (slots_.size() - 1);
    while (slots_[slot] != none && text_of(entries_[slots_[slot]]) != text) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  void rehash(std::size_t least) {
    std::size_t size = 16;
    while (size < least) size *= 2;
    slots_.assign(size, none);
    for (std::uint32_t index = 0; index < entries_.size(); ++index) slots_[slot_of(text_of(entries_[index]))] = index;
  }

  std::string pool_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // open addressing, a power of two, at most half full
  std::vector<std::uint32_t> by_id_;
};

}}
