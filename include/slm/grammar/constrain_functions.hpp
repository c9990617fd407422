// The implementation of constrain().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/grammar/constrain.hpp"
#include "slm/grammar/constraint.hpp"
#include "slm/grammar/trie_state.hpp"

namespace slm { inline namespace v0_1 {

namespace grammar {

class GrammarState final : public ConstraintState {
 public:
  GrammarState(const Grammar& grammar, TokenTrie tokens) : constraint_(grammar), tokens_(std::move(tokens)) {}

  bool advance(Token token) override {
    const std::string& bytes = tokens_.bytes(token);
    if (bytes.empty()) return false;
    const std::size_t before = constraint_.length();
    try {
      if (constraint_.advance(bytes) == bytes.size()) {
        ends_.push_back(constraint_.length());
        return true;
      }
    } catch (...) {
      constraint_.truncate(before);
      throw;
    }
    constraint_.truncate(before);
    return false;
  }

  void truncate(std::size_t tokens) override {
    ends_.resize(tokens);
    constraint_.truncate(tokens == 0 ? 0 : ends_.back());
  }

  bool may_end() const override { return constraint_.may_end(); }
  bool must_end() const override { return constraint_.must_end(); }

  void mask(std::span<std::uint64_t> bits) const override {
    constraint_.mask(tokens_, bits);
    for (const Token end : tokens_.ends()) {
      if (tokens_.bytes(end).empty()) clear_bit(bits, end);
    }
  }

  void forced(std::size_t, std::vector<Token>&) const override {}

 private:
  Constraint constraint_;
  TokenTrie tokens_;
  std::vector<std::size_t> ends_;  // bytes up to the end of each token
};

class GrammarConstraint final : public OutputConstraint {
 public:
  GrammarConstraint(Grammar grammar, TokenTrie tokens) : grammar_(std::move(grammar)), tokens_(std::move(tokens)) {}

  std::unique_ptr<ConstraintState> begin() const override { return std::make_unique<GrammarState>(grammar_, tokens_); }
  std::size_t vocab() const override { return tokens_.size(); }
  bool has_text(Token token) const override { return !tokens_.bytes(token).empty(); }

 private:
  Grammar grammar_;
  TokenTrie tokens_;
};

}  // namespace grammar

SLM_INLINE ConstraintRef constrain(const Grammar& grammar, const TokenTrie& tokens) {
  return std::make_shared<const grammar::GrammarConstraint>(grammar, tokens);
}

}}
