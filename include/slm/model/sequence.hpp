// Sequence: the tokens of one text, and the pages with their keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/model/kv_pool.hpp"
#include "slm/model/sequence_file.hpp"
#include "slm/model/sequence_state.hpp"

namespace slm { inline namespace v0_1 {

namespace detail {

struct SequenceAccess;

}  // namespace detail

/// One sequence of one model. A fork shares pages until either of the two writes to them (copy on write). Not
/// thread-safe; different sequences are independent.
class Sequence {
 public:
  /// An empty sequence with its KV cache in `pool`; model.sequence() uses the model's default pool. With prefix
  /// sharing, only sequences with equal adapter and group share pages. A group per tenant prevents tenants from
  /// inferring each other's prompts by timing.
  explicit Sequence(KvPool pool = {}, std::uint64_t group = 0, AdapterRef adapter = nullptr) {
    state_.bind(group, std::move(adapter));
    if (pool) state_.tables.resize(pool.layout().kinds().size());
    state_.pool = std::move(pool);
  }

  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = default;

  /// Number of tokens.
  int length() const { return state_.length(); }
  std::span<const Token> tokens() const { return state_.tokens; }

  /// Appends the tokens whose pages are known from other sequences with the same prefix. In contrast, forward() reuses
  /// pages only for the tokens in its batch.
  void adopt(std::span<const Token> tokens) {
    const int length = state_.length();
    if (state_.filled != length) return;
    state_.make_room(tokens.size());
    const auto token_at = [&](int i) {
      return i < length ? state_.tokens[static_cast<std::size_t>(i)] : tokens[static_cast<std::size_t>(i - length)];
    };
    const int filled = state_.adopt(length, length + static_cast<int>(tokens.size()), token_at, false);
    state_.tokens.insert(state_.tokens.end(), tokens.begin(), tokens.begin() + (filled - length));
    state_.adopted += filled - length;
  }
  /// Total positions reused from other sequences instead of computed.
  std::int64_t adopted() const { return state_.adopted; }

  /// The LoRA adapter; null: the base model.
  const AdapterRef& adapter() const { return state_.adapter; }

  /// Changes the adapter. The next forward recomputes all positions.
  void adapt(AdapterRef adapter) {
    if (adapter != state_.adapter) state_.bind(state_.key.group, std::move(adapter));
  }

  std::uint64_t group() const { return state_.key.group; }

  /// Returns true if both sequences may share pages of a common prefix.
  bool shares_with(const Sequence& other) const { return state_.key == other.state_.key; }

  /// Changes the group. The next forward recomputes all positions.
  void join(std::uint64_t group) {
    if (group != state_.key.group) state_.bind(group, state_.adapter);
  }

  /// Removes all tokens from position `length` on, 0 <= length <= length(). Throws sequence.truncate.
  void truncate(int length) {
    if (length < 0 || length > state_.length()) {
      throw Error("sequence.truncate",
                  text("expected a new length of at most ", state_.length(), " tokens, found ", length),
                  text("Pass a length of 0..", state_.length()));
    }
    state_.tokens.resize(static_cast<std::size_t>(length));
    state_.drop_behind(length);
  }

  /// Writes tokens, keys and values, so that another process can continue the sequence. Throws sequence.unwritable.
  void save(std::ostream& out) const { detail::write_sequence(state_, out); }

  /// Reads a sequence written by save(). The pool must have the same format and model, on a backend of the same kind;
  /// the adapter must be equal. Throws sequence.bad-file, sequence.other-model, sequence.other-adapter,
  /// sequence.other-format, cache.full.
  static Sequence load(std::istream& in, KvPool pool, std::uint64_t group = 0, AdapterRef adapter = nullptr) {
    Sequence sequence(std::move(pool), group, std::move(adapter));
    detail::read_sequence(sequence.state_, in);
    return sequence;
  }

  /// Returns an independent copy, which shares pages until one of the two writes to them.
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

/// Access to a sequence's state, for models.
struct SequenceAccess {
  static SequenceState& state(Sequence& sequence) { return sequence.state_; }
};

}  // namespace detail

}}
