// The functions of Constraint.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "slm/core/error.hpp"
#include "slm/core/macros.hpp"
#include "slm/grammar/constraint.hpp"
#include "slm/grammar/engine.hpp"
#include "slm/text/utf8.hpp"

namespace slm { inline namespace v0_1 {

namespace grammar {

/// The states behind each byte. Copies share all full blocks.
class History {
 public:
  explicit History(Expression root) : root_(root) {}
  History(const History&) = default;
  ~History() {
    // One block at a time: a long chain must not recurse.
    while (before_ != nullptr && before_.use_count() == 1) before_ = std::exchange(before_->before, nullptr);
  }

  std::size_t length() const { return (before_ == nullptr ? 0 : before_->length) + used_; }

  Expression state() const {
    if (used_ > 0) return states_[used_ - 1];
    return before_ != nullptr ? before_->states.back() : root_;
  }

  void push(Expression state) {
    if (used_ == states_.size()) {
      const std::size_t before = length();
      before_ = std::make_shared<Block>(Block{states_, before, before_});
      used_ = 0;
    }
    states_[used_++] = state;
  }

  void truncate(std::size_t length) {
    while (before_ != nullptr && before_->length > length) {
      states_ = before_->states;
      used_ = states_.size();
      before_ = std::shared_ptr<Block>(before_->before);
    }
    used_ = length - (before_ == nullptr ? 0 : before_->length);
  }

 private:
  using States = std::array<Expression, 64>;

  struct Block {
    States states;
    std::size_t length;  // with this block
    std::shared_ptr<Block> before;
  };

  Expression root_;
  States states_{};
  std::size_t used_ = 0;
  std::shared_ptr<Block> before_;
};

}  // namespace grammar

SLM_CONSTRUCTOR Constraint::Constraint(const Grammar& grammar)
    : engine_(grammar.pool_->take()), history_(std::make_unique<grammar::History>(engine_->root)) {}
SLM_CONSTRUCTOR Constraint::Constraint(const Constraint& other)
    : engine_(other.engine_), history_(std::make_unique<grammar::History>(*other.history_)) {}
SLM_CONSTRUCTOR Constraint::Constraint(Constraint&& other) noexcept
    : engine_(std::move(other.engine_)), history_(std::move(other.history_)) {}
SLM_INLINE Constraint& Constraint::operator=(const Constraint& other) { return *this = Constraint(other); }
SLM_INLINE Constraint& Constraint::operator=(Constraint&& other) noexcept {
  engine_ = std::move(other.engine_);
  history_ = std::move(other.history_);
  return *this;
}
SLM_CONSTRUCTOR Constraint::~Constraint() {}

SLM_INLINE std::size_t Constraint::length() const { return history_->length(); }

SLM_INLINE std::size_t Constraint::advance(std::string_view bytes) {
  const std::lock_guard lock(engine_->mutex);
  grammar::Expression state = history_->state();
  std::size_t taken = 0;
  for (; taken < bytes.size(); ++taken) {
    if (taken % 64 == 0) engine_->limit_time();
    state = engine_->automaton.step(state, static_cast<unsigned char>(bytes[taken]));
    if (state == grammar::nothing) break;
    history_->push(state);
  }
  return taken;
}

SLM_INLINE void Constraint::truncate(std::size_t length) {
  if (length > history_->length()) {
    throw Error("grammar.length", text("a text of ", history_->length(), " bytes cannot be cut to ", length),
                "Pass an earlier length");
  }
  history_->truncate(length);
}

SLM_INLINE bool Constraint::may_end() const {
  const std::lock_guard lock(engine_->mutex);
  return engine_->expressions.nullable(history_->state());
}

SLM_INLINE bool Constraint::must_end() const {
  const std::lock_guard lock(engine_->mutex);
  engine_->limit_time();
  const grammar::Expression state = history_->state();
  if (!engine_->expressions.nullable(state)) return false;
  for (unsigned byte_class = 0; byte_class < engine_->automaton.classes(); ++byte_class) {
    if (engine_->automaton.step_class(state, byte_class) != grammar::nothing) return false;
  }
  return true;
}

SLM_INLINE std::string Constraint::forced(std::size_t most) const {
  const std::lock_guard lock(engine_->mutex);
  grammar::Automaton& automaton = engine_->automaton;
  std::string bytes;
  grammar::Expression state = history_->state();
  while (bytes.size() < most && !engine_->expressions.nullable(state)) {
    if (bytes.size() % 64 == 0) engine_->limit_time();
    std::optional<unsigned> only;
    unsigned alive = 0;
    for (unsigned byte_class = 0; byte_class < automaton.classes() && alive < 2; ++byte_class) {
      if (automaton.step_class(state, byte_class) == grammar::nothing) continue;
      only = byte_class;
      alive += automaton.class_size(byte_class);
    }
    if (alive != 1) break;
    bytes += static_cast<char>(automaton.representative(*only));
    state = automaton.step_class(state, *only);
  }
  // The beginning of a character is no text yet. A text may begin inside of one.
  std::size_t end = bytes.size(), back = 0;
  while (back < 4 && back < end && utf8::is_continuation(bytes[end - 1 - back])) ++back;
  if (back < end && utf8::examine(std::string_view(bytes).substr(end - 1 - back)).kind == utf8::Sequence::partial) {
    bytes.resize(end - 1 - back);
  }
  return bytes;
}

SLM_INLINE void Constraint::mask(const TokenTrie& tokens, std::span<std::uint64_t> bits) const {
  const grammar::TrieState& trie = *tokens.state_;
  if (bits.size() < trie.words()) {
    throw Error("grammar.mask-size", text("a mask of ", trie.words(), " words does not fit into ", bits.size()),
                "Pass one bit per token");
  }
  const std::lock_guard lock(engine_->mutex);
  engine_->limit_time();
  const grammar::Expression state = history_->state();
  const grammar::Bits& allowed = engine_->masks(tokens.state_).of(state);
  std::copy(allowed.begin(), allowed.end(), bits.begin());
  std::fill(bits.begin() + static_cast<std::ptrdiff_t>(allowed.size()), bits.end(), 0);
  if (!engine_->expressions.nullable(state)) return;
  for (const Token end : trie.ends) grammar::set_bit(bits, end);
}

}}
