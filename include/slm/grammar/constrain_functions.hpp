// The implementation of constrain().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/macros.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/output_constraint.hpp"
#include "slm/grammar/constrain.hpp"
#include "slm/grammar/constraint.hpp"
#include "slm/grammar/trie_state.hpp"
#include "slm/text/utf8.hpp"

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
        text_ += bytes;
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
    text_.resize(constraint_.length());
  }

  bool may_end() const override { return constraint_.may_end(); }
  bool must_end() const override { return constraint_.must_end(); }

  void mask(std::span<std::uint64_t> bits) const override {
    constraint_.mask(tokens_, bits);
    for (const Token end : tokens_.ends()) {
      if (tokens_.bytes(end).empty()) clear_bit(bits, end);
    }
  }

  void forced(std::size_t most, std::vector<Token>& out) const override {
    constexpr std::size_t usual = 16;  // bytes of a token, at most
    const std::string bytes = constraint_.forced(usual * most);
    if (bytes.empty()) return;
    std::string_view rest = bytes;
    Constraint along = constraint_;
    for (const Token token : tokens_.state_->cut(last_text(), rest)) {
      // Before a token that reaches beyond the forced text, tokens depend on the text behind it.
      if (most-- == 0 || reaches_beyond(along, rest)) return;
      out.push_back(token);
      const std::string& taken = tokens_.bytes(token);
      along.advance(taken);
      rest.remove_prefix(taken.size());
    }
  }

 private:
  /// The bytes of the last few tokens.
  std::string_view last_text() const {
    constexpr std::size_t few = 4;
    std::size_t begin = ends_.size() > few ? ends_[ends_.size() - few - 1] : 0;
    while (begin < text_.size() && utf8::is_continuation(text_[begin])) ++begin;
    return std::string_view(text_).substr(begin);
  }

  /// Whether a token may follow that begins with `rest` and is longer.
  bool reaches_beyond(const Constraint& constraint, std::string_view rest) const {
    const TrieState& trie = *tokens_.state_;
    const auto [begin, end] = trie.below(rest);
    if (begin == end) return false;
    Bits bits(trie.words());
    constraint.mask(tokens_, bits);
    for (std::uint32_t i = begin; i < end; ++i) {
      const auto token = static_cast<std::size_t>(trie.nodes[i].token);
      if (trie.nodes[i].token >= 0 && (bits[token / 64] >> token % 64 & 1) != 0) return true;
    }
    return false;
  }

  Constraint constraint_;
  TokenTrie tokens_;
  std::string text_;
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
