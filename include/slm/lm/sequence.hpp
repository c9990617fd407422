// Sequence: the tokens of one text, and the cache that its model has computed for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/adapter.hpp"
#include "slm/lm/kv_pool.hpp"

namespace slm { inline namespace v0_1 {

/// The inputs of keys and values besides the tokens. Only sequences with equal keys share pages.
struct PrefixKey {
  std::uint64_t tenant = 0;   // see Sequence
  std::uint64_t adapter = 0;  // Adapter::digest; 0: none
  bool operator==(const PrefixKey&) const = default;
};

namespace detail {

/// The data of a sequence of any model. Models with a cache of computed positions derive their own state.
struct SequenceState {
  std::vector<Token> tokens;
  AdapterRef adapter = nullptr;  // null: none
  PrefixKey key = {};            // shared by all positions
  std::int64_t adopted = 0;      // total positions reused from other sequences

  SequenceState() = default;
  SequenceState& operator=(const SequenceState&) = delete;
  virtual ~SequenceState() = default;

  int length() const { return static_cast<int>(tokens.size()); }

  /// Reserves memory to append `more` tokens.
  void reserve(std::size_t more) {
    const std::size_t wanted = tokens.size() + more;
    if (wanted > tokens.capacity()) tokens.reserve(std::max(wanted, 2 * tokens.capacity()));
  }

  /// Sets tenant and adapter, and discards everything computed.
  void bind(std::uint64_t tenant, AdapterRef with) {
    adapter = std::move(with);
    key = {.tenant = tenant, .adapter = adapter == nullptr ? 0 : adapter->digest};
    discard();
  }

  virtual std::unique_ptr<SequenceState> fork() const {
    return std::unique_ptr<SequenceState>(new SequenceState(*this));
  }
  /// Discards the computed values of the positions after the first `positions`.
  virtual void drop_behind(int) {}
  virtual void discard() {}
  /// Appends leading tokens whose positions other sequences have computed.
  virtual void adopt_tokens(std::span<const Token>) {}
  virtual void share_last_page() {}
  virtual void expect_truncation(int) {}
  virtual void save(std::ostream&) const { throw no_cache(); }
  /// The state must be empty.
  virtual void load(std::istream&) { throw no_cache(); }

 protected:
  SequenceState(const SequenceState&) = default;

 private:
  static Error no_cache() {
    return {"sequence.no-cache", "expected a sequence with a KV cache, found one without",
            "Save and load sequences in a pool of a model (pool())"};
  }
};

struct SequenceAccess;

}  // namespace detail

/// One sequence of one model. A fork shares pages until either of the two writes to them (copy on write). Not
/// thread-safe; different sequences are independent.
class Sequence {
 public:
  /// An empty sequence with its KV cache in `pool`; model.sequence() uses the model's default pool. With prefix
  /// sharing, only sequences with equal adapter and tenant share pages. A number per tenant prevents tenants from
  /// inferring each other's prompts by timing.
  explicit Sequence(const KvPool& pool = {}, std::uint64_t tenant = 0, AdapterRef adapter = nullptr)
      : state_(pool ? pool.cache()->sequence() : std::make_unique<detail::SequenceState>()) {
    state_->bind(tenant, std::move(adapter));
  }

  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = default;

  /// Number of tokens.
  int length() const { return state_->length(); }
  std::span<const Token> tokens() const { return state_->tokens; }

  /// Appends the tokens whose pages are known from other sequences with the same prefix. In contrast, forward() reuses
  /// pages only for the tokens in its batch.
  void adopt(std::span<const Token> tokens) { state_->adopt_tokens(tokens); }
  /// Lets other sequences reuse the positions after the last full page; forward() shares full pages only. For a
  /// sequence that is complete or will be released: to append more tokens, it copies that page.
  void share_last_page() { state_->share_last_page(); }
  /// Total positions reused from other sequences instead of computed.
  std::int64_t adopted() const { return state_->adopted; }

  /// The LoRA adapter; null: the base model.
  const AdapterRef& adapter() const { return state_->adapter; }

  /// Changes the adapter. The next forward recomputes all positions.
  void adapt(AdapterRef adapter) {
    if (adapter != state_->adapter) state_->bind(state_->key.tenant, std::move(adapter));
  }

  std::uint64_t tenant() const { return state_->key.tenant; }

  /// Returns true if both sequences may share pages of a common prefix.
  bool shares_with(const Sequence& other) const { return state_->key == other.state_->key; }

  /// Changes the tenant. The next forward recomputes all positions.
  void join(std::uint64_t tenant) {
    if (tenant != state_->key.tenant) state_->bind(tenant, state_->adapter);
  }

  /// Removes all tokens from position `length` on, 0 <= length <= length(). Throws sequence.truncate.
  void truncate(int length) {
    if (length < 0 || length > state_->length()) {
      throw Error("sequence.truncate",
                  text("expected a new length of at most ", state_->length(), " tokens, found ", length),
                  text("Pass a length of 0..", state_->length()));
    }
    state_->tokens.resize(static_cast<std::size_t>(length));
    state_->drop_behind(length);
  }

  /// States that truncate() will be called with `length` or more, as for a draft. A model with recurrent layers then
  /// keeps the states after the next positions, up to 64, instead of computing positions again.
  void expect_truncation(int length) { state_->expect_truncation(length); }

  /// Writes tokens, keys and values, so that another process can continue the sequence. Throws sequence.unwritable,
  /// sequence.no-cache.
  void save(std::ostream& out) const { state_->save(out); }

  /// Reads a sequence written by save(). The pool must have the same format and model, on a backend of the same kind;
  /// the adapter must be equal. Throws sequence.no-cache, sequence.bad-file, sequence.other-model,
  /// sequence.other-adapter, sequence.other-format, cache.full.
  static Sequence load(std::istream& in, const KvPool& pool, std::uint64_t tenant = 0, AdapterRef adapter = nullptr) {
    Sequence sequence(pool, tenant, std::move(adapter));
    sequence.state_->load(in);
    return sequence;
  }

  /// Returns an independent copy, which shares pages until one of the two writes to them.
  Sequence fork() const { return Sequence(state_->fork()); }

 private:
  friend struct detail::SequenceAccess;
  explicit Sequence(std::unique_ptr<detail::SequenceState> state) : state_(std::move(state)) {}

  std::unique_ptr<detail::SequenceState> state_;
};

namespace detail {

/// Access to a sequence's state, for models.
struct SequenceAccess {
  static SequenceState& state(Sequence& sequence) { return *sequence.state_; }
};

}  // namespace detail

}}
