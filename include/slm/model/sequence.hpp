// Sequence: one text of a model, its tokens and the pages that hold their keys and values.
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

/// One text of one model. A fork shares pages until one of the two writes to them. One thread at a time uses a
/// sequence; different sequences are used by different threads freely.
class Sequence {
 public:
  /// An empty text whose keys and values lie in this pool; model.sequence() takes the model's own. Where the pool
  /// shares prefixes, it does so among texts of one adapter and one group: a group for each tenant keeps them from
  /// telling by the time it takes what others have asked.
  explicit Sequence(KvPool pool = {}, std::uint64_t group = 0, AdapterRef adapter = nullptr) {
    state_.bind(group, std::move(adapter));
    if (pool) state_.tables.resize(pool.layout().kinds().size());
    state_.pool = std::move(pool);
  }

  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = default;

  /// Tokens so far.
  int length() const { return state_.length(); }
  std::span<const Token> tokens() const { return state_.tokens; }

  /// Appends as many of these tokens as pages are known for, of texts that begin alike; a forward would take over those
  /// of its own tokens only.
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
  /// Positions that it has ever taken over instead of computing them.
  std::int64_t adopted() const { return state_.adopted; }

  /// What the text is read with; null: the bare model.
  const AdapterRef& adapter() const { return state_.adapter; }

  /// From now on the text is read with this adapter: what was read with another is read again by the next forward.
  void adapt(AdapterRef adapter) {
    if (adapter != state_.adapter) state_.bind(state_.key.group, std::move(adapter));
  }

  std::uint64_t group() const { return state_.key.group; }

  /// Whether it takes over what the other one has computed where both begin alike.
  bool shares_with(const Sequence& other) const { return state_.key == other.state_.key; }

  /// From now on the text is of this group: what was read is read again by the next forward.
  void join(std::uint64_t group) {
    if (group != state_.key.group) state_.bind(group, state_.adapter);
  }

  /// Forgets every token from `length` on, 0 <= length <= length(). Throws sequence.truncate.
  void truncate(int length) {
    if (length < 0 || length > state_.length()) {
      throw Error("sequence.truncate", text("cannot truncate ", state_.length(), " tokens to ", length),
                  text("Give a length of 0..", state_.length()));
    }
    state_.tokens.resize(static_cast<std::size_t>(length));
    state_.drop_behind(length);
  }

  /// Writes tokens, keys and values, so that another process goes on where this one is. Throws sequence.unwritable.
  void save(std::ostream& out) const { detail::write_sequence(state_, out); }

  /// What save() wrote, in a pool of the same format, of the same model on the same kind of backend, with the same
  /// adapter. Throws sequence.bad-file, sequence.other-model, sequence.other-adapter, sequence.other-format,
  /// cache.full.
  static Sequence load(std::istream& in, KvPool pool, std::uint64_t group = 0, AdapterRef adapter = nullptr) {
    Sequence sequence(std::move(pool), group, std::move(adapter));
    detail::read_sequence(sequence.state_, in);
    return sequence;
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

}}
