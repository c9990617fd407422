// Bpe: the byte-pair-encoding model. A word costs O(n log n) in the longest stretch that merges can span.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/text/utf8.hpp"
#include "slm/text/vocabulary.hpp"

namespace slm { inline namespace v0_1 {

/// (left id, right id) -> rank and merged id; lower ranks merge first.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    Token merged;
  };

  explicit MergeTable(std::size_t expected = 0) { rehash(expected * 2); }

  /// Adds a pair; the first rank of a pair counts, a second is ignored.
  void add(Token left, Token right, Merge merge) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
    Slot& slot = slots_[slot_of(key_of(left, right))];
    if (slot.key != empty) return;
    slot = {key_of(left, right), merge};
    ++size_;
  }

  /// Calls visit(left id, right id) for each pair.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != empty) visit(static_cast<Token>(slot.key >> 32), static_cast<Token>(slot.key & 0xFFFFFFFFu));
    }
  }

  /// The merge of a pair, or nullptr.
  const Merge* find(Token left, Token right) const {
    const Slot& slot = slots_[slot_of(key_of(left, right))];
    return slot.key == empty ? nullptr : &slot.merge;
  }

 private:
  struct Slot {
    std::uint64_t key = empty;
    Merge merge{};
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};  // no pair: ids are not negative

  static std::uint64_t key_of(Token left, Token right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }

  std::size_t slot_of(std::uint64_t key) const {
    const std::uint64_t mixed = (key ^ key >> 31) * 0x9E3779B97F4A7C15u;
    std::size_t slot = static_cast<std::size_t>(mixed >> 32) & (slots_.size() - 1);
    while (slots_[slot].key != empty && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  void rehash(std::size_t least) {
    std::size_t size = 16;
    while (size < least) size *= 2;
    const std::vector<Slot> old = std::move(slots_);
    slots_.assign(size, Slot{});
    for (const Slot& slot : old) {
      if (slot.key != empty) slots_[slot_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t size_ = 0;
};

class Bpe {
 public:
  struct Options {
    std::optional<Token> unknown;  // stands for a character that is in no token; without it the character is dropped
    bool fuse_unknown = false;     // consecutive unknown characters become one
    bool byte_fallback = false;    // a character that is in no token becomes its bytes <0x00>..<0xFF>
    bool ignore_merges = false;    // a word that is a token stays one, whatever the merges say
  };

  /// Memory that is kept from word to word.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      Token id;
      std::int32_t previous, next;  // indices; id < 0: merged into its left neighbour
    };
    std::vector<Symbol> symbols;
    // Merges to do, each as rank and position in one number; the smallest is next. `sorted` is read from its front;
    // positions after all of it wait in `later` and are sorted afterwards; only the other merges need a heap
    // (a heap alone is three times slower on a long run of one character).
    std::vector<std::uint64_t> sorted, later, heap;
  };

  /// A stretch of this many symbols is cut, so that positions fit 31 bits.
  static constexpr std::size_t most_symbols = std::size_t{1} << 30;

  Bpe() = default;
  Bpe(const Vocabulary& vocabulary, MergeTable merges, Options options)
      : merges_(std::move(merges)), options_(options) {
    std::string character;
    for (char32_t code = 0; code < direct_.size(); ++code) {
      character.clear();
      utf8::append(character, code);
      direct_[code] = vocabulary.find(character).value_or(-1);
    }
    merges_.each([&](Token left, Token right) {
      const std::string_view before = vocabulary.text(left), behind = vocabulary.text(right);
      if (!before.empty() && !behind.empty()) {
        joinable_[join_bit(utf8::at(before, utf8::before(before, before.size())), utf8::at(behind, 0))] = true;
      }
    });
    static constexpr char digits[] = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
      const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
      bytes_[byte] = vocabulary.find({name, sizeof name}).value_or(-1);
    }
  }

  /// Appends the tokens of one word (valid UTF-8) to `out`.
  void encode(const Vocabulary& vocabulary, std::string_view word, std::vector<Token>& out, Scratch& scratch) const {
    if (options_.ignore_merges) {
      if (const auto whole = vocabulary.find(word)) return out.push_back(*whole);
    }
    char32_t previous = none;    // the character that is the last symbol
    bool unknown_waits = false;  // put before the next character that is a token: byte tokens overtake it, as upstream
    for (std::size_t position = 0; position < word.size();) {
      const std::size_t begin = position;
      const char32_t code = utf8::next(word, position);
      const std::string_view character = word.substr(begin, position - begin);
      const Token id = code < direct_.size() ? direct_[code] : vocabulary.find(character).value_or(-1);
      if (id >= 0) {
        if (std::exchange(unknown_waits, false)) put(*options_.unknown, scratch), previous = none;
        // No merge joins two characters that are adjacent in no merge, so the text before them is complete. This
        // keeps the queue short where the whole text is one word.
        if ((previous != none && !joinable_[join_bit(previous, code)]) || scratch.symbols.size() == most_symbols) {
          finish(out, scratch);
        }
        put(id, scratch);
        previous = code;
      } else if (options_.byte_fallback &&
                 std::all_of(character.begin(), character.end(), [&](char byte) { return byte_token(byte) >= 0; })) {
        for (const char byte : character) put(byte_token(byte), scratch);
        previous = none;
      } else if (options_.unknown) {
        if (unknown_waits && !options_.fuse_unknown) put(*options_.unknown, scratch), previous = none;
        unknown_waits = true;
      }
    }
    if (unknown_waits) put(*options_.unknown, scratch);
    finish(out, scratch);
  }

 private:
  static constexpr char32_t none = ~char32_t{0};

  /// Merges what was put and appends the tokens.
  void finish(std::vector<Token>& out, Scratch& scratch) const {
    auto& symbols = scratch.symbols;
    if (symbols.empty()) return;
    symbols.back().next = -1;
    if (symbols.size() > 1) merge(scratch);
    for (const auto& symbol : symbols) {
      if (symbol.id >= 0) out.push_back(symbol.id);
    }
    symbols.clear();
  }

  static void put(Token id, Scratch& scratch) {
    const auto index = static_cast<std::int32_t>(scratch.symbols.size());
    scratch.symbols.push_back({id, index - 1, index + 1});
  }

  static std::size_t join_bit(char32_t left, char32_t right) {
    return (std::uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u >> (64 - join_bits);
  }

  /// Merges the pair of lowest rank, leftmost first, until no pair is left.
  void merge(Scratch& scratch) const {
    auto& symbols = scratch.symbols;
    auto& sorted = scratch.sorted;
    auto& later = scratch.later;
    auto& heap = scratch.heap;
    const auto found = [&](std::int32_t left) -> const MergeTable::Merge* {
      const auto& symbol = symbols[static_cast<std::size_t>(left)];
      return symbol.next < 0 ? nullptr : merges_.find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
    };
    const auto entry = [](const MergeTable::Merge& merge, std::int32_t left) {
      return std::uint64_t{merge.rank} << 32 | static_cast<std::uint32_t>(left);
    };
    sorted.clear();
    later.clear();
    heap.clear();
    for (std::int32_t left = 0; left + 1 < static_cast<std::int32_t>(symbols.size()); ++left) {
      if (const auto* merge = found(left)) sorted.push_back(entry(*merge, left));
    }
    std::sort(sorted.begin(), sorted.end());
    const auto push = [&](std::int32_t left) {
      const auto* merge = left < 0 ? nullptr : found(left);
      if (merge == nullptr) return;
      if (const std::uint64_t queued = entry(*merge, left); queued > sorted.back()) {
        later.push_back(queued);
      } else {
        heap.push_back(queued);
        std::push_heap(heap.begin(), heap.end(), std::greater<>{});
      }
    };
    for (std::size_t front = 0;;) {
      if (front == sorted.size() && !later.empty()) {
        std::swap(sorted, later);
        std::sort(sorted.begin(), sorted.end());
        later.clear();
        front = 0;
      }
      std::uint64_t top = 0;
      if (!heap.empty() && (front == sorted.size() || heap.front() < sorted[front])) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
        top = heap.back();
        heap.pop_back();
      } else if (front < sorted.size()) {
        top = sorted[front++];
      } else {
        return;
      }
      const auto left = static_cast<std::int32_t>(top & 0xFFFFFFFFu);
      auto& symbol = symbols[static_cast<std::size_t>(left)];
      const auto* merge = symbol.id < 0 ? nullptr : found(left);
      if (merge == nullptr || merge->rank != top >> 32) continue;  // the pair has changed since it was queued
      auto& eaten = symbols[static_cast<std::size_t>(symbol.next)];
      symbol.id = merge->merged;
      symbol.next = eaten.next;
      eaten.id = -1;
      if (symbol.next >= 0) symbols[static_cast<std::size_t>(symbol.next)].previous = left;
      push(symbol.previous);
      push(left);
    }
  }

  Token byte_token(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }

  static constexpr int join_bits = 20;

  MergeTable merges_;
  Options options_;
  // Whether some merge has this character at the end of its left side and that one at the start of its right side; two
  // pairs may share a bit, which costs time only.
  std::vector<bool> joinable_ = std::vector<bool>(std::size_t{1} << join_bits);
  std::array<Token, 0x800> direct_{};  // tokens of one- and two-byte characters, -1: none
  std::array<Token, 256> bytes_{};     // <0x00>..<0xFF>, -1: none
};

}}
