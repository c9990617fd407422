// Constraint: a grammar along one text.
#pragma once

#include "slm/core/implementation_order.inc"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "slm/core/macros.hpp"
#include "slm/grammar/grammar.hpp"
#include "slm/grammar/token_trie.hpp"

namespace slm { inline namespace v0_1 {

namespace grammar {
class Engine;
class History;
}

/// A copy is a fork: it costs the same for every length. Constraints of one grammar may be used by several threads,
/// one constraint by one thread at a time. A function that exceeds a limit throws Error ("grammar.limit").
class Constraint {
 public:
  explicit Constraint(const Grammar& grammar);
  Constraint(const Constraint& other);
  Constraint(Constraint&& other) noexcept;
  Constraint& operator=(const Constraint& other);
  Constraint& operator=(Constraint&& other) noexcept;
  ~Constraint();

  /// Bytes taken so far.
  std::size_t length() const;

  /// Takes the leading bytes that the grammar allows; returns their number.
  std::size_t advance(std::string_view bytes);

  /// Returns to an earlier length.
  void truncate(std::size_t length);

  /// Whether the bytes so far are a text of the grammar.
  bool may_end() const;

  /// Whether they are, and no other text of the grammar begins with them.
  bool must_end() const;

  /// The bytes that every continuation begins with, in whole characters; at most `most`.
  std::string forced(std::size_t most = 1024) const;

  /// Sets bit t % 64 of word t / 64 for each token that may follow, and clears all others. End tokens may follow where
  /// the text may end. `bits` may be wider than the vocabulary.
  void mask(const TokenTrie& tokens, std::span<std::uint64_t> bits) const;

 private:
  std::shared_ptr<grammar::Engine> engine_;
  std::unique_ptr<grammar::History> history_;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_grammar_constraint_hpp)
}}}

#if SLM_COMPILES
#include "slm/grammar/constraint_functions.hpp"
#endif
