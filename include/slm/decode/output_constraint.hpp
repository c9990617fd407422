// OutputConstraint: what an answer may be. Decoders see this interface; grammars implement it (grammar/constrain.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

/// A constraint along one answer. Not thread-safe.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;

  /// Takes the next token's text. Returns false, without any change, if no permitted answer continues so.
  virtual bool advance(Token token) = 0;
  /// Returns to the first `tokens` tokens taken.
  virtual void truncate(std::size_t tokens) = 0;
  /// Whether the tokens so far are a permitted answer.
  virtual bool may_end() const = 0;
  /// Whether they are, and no other permitted answer begins with them.
  virtual bool must_end() const = 0;
  /// Sets bit t % 64 of word t / 64 for each token with a text that may follow, and clears all others.
  virtual void mask(std::span<std::uint64_t> bits) const = 0;
  /// Appends at most `most` tokens of the text that every permitted answer continues with.
  virtual void forced(std::size_t most, std::vector<Token>& out) const = 0;
};

/// Immutable, and may be used by several threads and requests.
class OutputConstraint {
 public:
  virtual ~OutputConstraint() = default;

  /// The state of an empty answer.
  virtual std::unique_ptr<ConstraintState> begin() const = 0;
  /// Highest id + 1 of the tokens that it knows.
  virtual std::size_t vocab() const = 0;
  /// Whether the token has a text. Others, such as end tokens, are never in a mask.
  virtual bool has_text(Token token) const = 0;
};

using ConstraintRef = std::shared_ptr<const OutputConstraint>;

}}
