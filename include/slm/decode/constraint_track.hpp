// ConstraintTrack: a request's constraint during decoding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/lm/row_result.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Follows the tokens of the answer, including tentative ones, which are pushed and popped in stack order. Masks of the
/// last tokens are kept, so that drafting, the thread beside the model's step and verification compute each only once.
/// An error of the constraint belongs to its place in the text: it is thrown when a token there is decided.
class ConstraintTrack {
 public:
  /// of: null for a request without a constraint. ends: tokens that may only follow a permitted answer. tentative: the
  /// largest number of tentative tokens.
  void start(const ConstraintRef& of, int vocab, std::span<const Token> ends, std::size_t tentative) {
    state_ = nullptr;
    slots_.clear();
    if (of == nullptr) return;
    state_ = of->begin();
    ends_.assign(ends.begin(), ends.end());
    words_ = (std::max(of->vocab(), static_cast<std::size_t>(vocab)) + 63) / 64;
    slots_.resize(tentative + 2);
    slots_.front().length = 0;
    length_ = taken_ = 0;
  }

  bool on() const { return state_ != nullptr; }

  void push(Token token) {
    Slot& slot = slots_[++length_ % slots_.size()];
    if (slot.length != length_ || slot.token != token) {
      for (Slot& other : slots_) {
        if (other.length >= length_) other.length = unused;
      }
      slot.length = length_;
      slot.token = token;
      slot.state = Slot::State::unknown;
      slot.failure = nullptr;
    }
    if (taken_ + 1 != length_ || is_end(token)) return;
    guard(slot, [&] { taken_ += state_->advance(token); });
  }

  void pop() {
    if (taken_ == length_) state_->truncate(--taken_);
    --length_;
  }

  /// The number of leading tokens that may follow, up to the first one that ends the answer.
  std::size_t permitted(std::span<const Token> tokens) {
    std::size_t count = 0;
    for (bool ended = is_complete(); count < tokens.size() && !ended; ++count) {
      const bool may_end = is_end(tokens[count]) && follows() && guarded([&] { return state_->may_end(); });
      push(tokens[count]);
      if (!may_end && !follows()) {
        pop();
        break;
      }
      ended = may_end || is_complete();
    }
    for (std::size_t pushed = count; pushed > 0; --pushed) pop();
    return count;
  }

  /// Whether the answer is complete: nothing may follow.
  bool is_complete() {
    return follows() && guarded([&] { return state_->must_end(); });
  }

  /// Computes the mask of the next token, unless it is known.
  void prepare() {
    Slot& slot = top();
    if (slot.state != Slot::State::unknown) return;
    slot.state = Slot::State::open;
    if (!follows() || is_complete()) return;
    guard(slot, [&] {
      slot.bits.resize(words_);
      state_->mask(slot.bits);
      const bool may_end = state_->may_end();
      for (const Token end : ends_) {
        const auto bit = std::uint64_t{1} << (static_cast<unsigned>(end) % 64);
        std::uint64_t& word = slot.bits[static_cast<std::size_t>(end) / 64];
        word = may_end ? word | bit : word & ~bit;
      }
      slot.state = Slot::State::masked;
    });
  }

  /// The mask of the next token; see apply(). Valid until the slot of this place is used for another text.
  TokenMask mask() {
    prepare();
    return top().state == Slot::State::masked ? TokenMask(top().bits) : TokenMask();
  }

  /// Sets the logits of forbidden tokens to -infinity. Behind the end of the answer, and behind a token that may not
  /// follow, nothing is decided and no token is forbidden.
  void apply(std::span<float> row) {
    prepare();
    if (top().state != Slot::State::masked) return;
    const std::vector<std::uint64_t>& bits = top().bits;
    for (std::size_t first = 0; first < row.size(); first += 64) {
      const std::uint64_t word = bits[first / 64];
      if (word == ~std::uint64_t{0}) continue;
      const std::size_t count = std::min<std::size_t>(64, row.size() - first);
      for (std::size_t i = 0; i < count; ++i) {
        if ((word >> i & 1) == 0) row[first + i] = -std::numeric_limits<float>::infinity();
      }
    }
  }

  /// Whether no id below `vocab` may follow.
  bool forbids_all(std::size_t vocab) {
    prepare();
    if (top().state != Slot::State::masked) return false;
    const std::vector<std::uint64_t>& bits = top().bits;
    for (std::size_t id = 0; id < vocab; ++id) {
      if ((bits[id / 64] >> id % 64 & 1) != 0) return false;
    }
    return true;
  }

  /// Throws the error of the constraint at this place, if there is one.
  void check() {
    prepare();
    if (top().failure) std::rethrow_exception(top().failure);
  }

 private:
  static constexpr std::size_t unused = std::numeric_limits<std::size_t>::max();

  /// The place behind the first `length` tokens, of which `token` is the last.
  struct Slot {
    enum class State { unknown, open, masked };

    std::size_t length = unused;
    Token token = 0;
    State state = State::unknown;
    std::exception_ptr failure;
    std::vector<std::uint64_t> bits;  // if masked
  };

  Slot& top() { return slots_[length_ % slots_.size()]; }
  /// Whether all tokens are part of a permitted answer that has not ended.
  bool follows() const { return taken_ == length_; }
  bool is_end(Token token) const { return std::find(ends_.begin(), ends_.end(), token) != ends_.end(); }

  template <class Use>
  static void guard(Slot& slot, Use&& use) {
    try {
      use();
    } catch (...) {
      slot.failure = std::current_exception();
    }
  }
  template <class Use>
  bool guarded(Use&& use) {
    bool result = false;
    guard(top(), [&] { result = use(); });
    return result;
  }

  std::unique_ptr<ConstraintState> state_;  // null: no constraint
  std::vector<Token> ends_;
  std::size_t words_ = 0;    // of a mask
  std::size_t length_ = 0;   // tokens pushed
  std::size_t taken_ = 0;    // leading tokens that the state has taken
  std::vector<Slot> slots_;  // by length % slots_.size()
};

}}}
