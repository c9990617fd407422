// TokenTrie: the bytes of all tokens of a vocabulary as a tree, for masks.
#pragma once

#include "slm/core/implementation_order.inc"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"

namespace slm { inline namespace v0_1 {

class Tokenizer;

namespace grammar {
struct TrieState;
class GrammarState;
}

/// Immutable and cheap to copy: copies share one state.
class TokenTrie {
 public:
  /// The ordinary tokens of a tokenizer. Special tokens have no bytes; `ends` end a text.
  TokenTrie(const Tokenizer& tokenizer, std::span<const Token> ends = {});

  /// Tokens by their bytes. Tokens with no bytes are never allowed, except `ends`.
  TokenTrie(const std::vector<std::string>& tokens, std::span<const Token> ends = {});

  /// Highest id + 1.
  std::size_t size() const;

  /// The bytes of an ordinary token; empty for others.
  const std::string& bytes(Token token) const;

  std::span<const Token> ends() const;

  bool is_end(Token token) const;

 private:
  friend class Constraint;
  friend class grammar::GrammarState;

  std::shared_ptr<const grammar::TrieState> state_;
};

}}

namespace slm { inline namespace v0_1 { namespace detail {
SLM_HAS_FUNCTIONS(slm_grammar_token_trie_hpp)
}}}

#if SLM_COMPILES
#include "slm/grammar/trie_state.hpp"
#endif
