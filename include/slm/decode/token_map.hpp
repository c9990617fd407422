// TokenMap: the tokens that a draft and a target with different tokenizers have in common, and how the draft reads the
// target's tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/token_bytes.hpp"
#include "slm/decode/vocabulary.hpp"
#include "slm/lm/model_info.hpp"

namespace slm { inline namespace v0_1 { namespace detail {

/// Tokens are in common if they have the same bytes. Of several tokens with the same bytes in one vocabulary, the first
/// one is in common; a byte token such as <0x41> only if there is no other.
class TokenMap {
 public:
  struct Pair {
    Token target;
    Token draft;
  };

  TokenMap(const ModelInfo& draft, const ModelInfo& target) : known_(static_cast<std::size_t>(target.vocab)) {
    const auto of_draft = tokens_of(draft), of_target = tokens_of(target);
    const Index drafts = index_of(of_draft), targets = index_of(of_target);
    const Pair ends = ends_of(draft, target, drafts, targets, of_draft, of_target);
    bool any = false;
    ends_.reserve(known_.size());
    for (Token id = 0; id < target.vocab; ++id) {
      const std::string_view bytes = bytes_of(of_target, id);
      const auto found = drafts.find(bytes);
      const bool is_known = found != drafts.end();
      any = any || is_known;
      known_[static_cast<std::size_t>(id)] = is_known || id == ends.target;
      if (id == ends.target) {
        tokens_.push_back(ends.draft);
        common_.push_back(ends);
      } else if (is_known) {
        tokens_.push_back(found->second);
        if (targets.at(bytes) == id) common_.push_back({id, found->second});
      } else {
        spell(bytes, drafts);
      }
      ends_.push_back(tokens_.size());
    }
    if (!any) common_.clear();  // end tokens alone are not enough
  }

  /// Ascending by the target's ids.
  std::span<const Pair> common() const { return common_; }
  /// The draft's tokens for one of the target's: at least one. Tokens that the draft lacks are spelled by several, as
  /// far as possible.
  std::span<const Token> tokens_for(Token target) const {
    const auto id = static_cast<std::size_t>(target);
    const std::size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::span(tokens_).subspan(begin, ends_[id] - begin);
  }
  /// Whether the draft has a token with the bytes of this one.
  bool knows(Token target) const { return known_[static_cast<std::size_t>(target)]; }
  int target_vocab() const { return static_cast<int>(known_.size()); }

 private:
  using Index = std::unordered_map<std::string_view, Token>;

  static constexpr Token stand_in = 0;
  static constexpr std::size_t most_spelled = 256;  // bytes of a token that is spelled
  static constexpr std::size_t longest_piece = 32;  // bytes of a token that spells

  static std::vector<TokenBytes> tokens_of(const ModelInfo& model) {
    auto tokens = model.tokens();
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(model.vocab)));
    return bytes_of_tokens(tokens);
  }

  /// The ids by bytes.
  static Index index_of(const std::vector<TokenBytes>& tokens) {
    Index index;
    index.reserve(tokens.size());
    for (const bool is_fallback : {false, true}) {
      for (std::size_t id = 0; id < tokens.size(); ++id) {
        if (tokens[id].bytes.empty() || tokens[id].is_fallback != is_fallback) continue;
        index.emplace(tokens[id].bytes, static_cast<Token>(id));
      }
    }
    return index;
  }

  static std::string_view bytes_of(const std::vector<TokenBytes>& tokens, Token id) {
    const auto index = static_cast<std::size_t>(id);
    return index < tokens.size() ? std::string_view(tokens[index].bytes) : std::string_view{};
  }

  /// The first end tokens of both, which correspond if no end token is in common; else no_token.
  static Pair ends_of(const ModelInfo& draft, const ModelInfo& target, const Index& drafts, const Index& targets,
                      const std::vector<TokenBytes>& of_draft, const std::vector<TokenBytes>& of_target) {
    const auto is_common = [&](Token end) { return drafts.contains(bytes_of(of_target, end)); };
    if (draft.end_tokens.empty() || std::any_of(target.end_tokens.begin(), target.end_tokens.end(), is_common) ||
        target.end_tokens.empty()) {
      return {no_token, no_token};
    }
    const Token end = draft.end_tokens.front();
    const bool is_free = end >= 0 && end < draft.vocab && !targets.contains(bytes_of(of_draft, end));
    return {is_free ? target.end_tokens.front() : no_token, end};
  }

  /// Appends the draft's longest tokens from left to right. Bytes that it lacks are left out.
  void spell(std::string_view bytes, const Index& drafts) {
    const std::size_t before = tokens_.size();
    if (bytes.size() > most_spelled) bytes = {};
    while (!bytes.empty()) {
      std::size_t length = std::min(bytes.size(), longest_piece);
      auto found = drafts.find(bytes.substr(0, length));
      while (found == drafts.end() && --length > 0) found = drafts.find(bytes.substr(0, length));
      if (found != drafts.end()) tokens_.push_back(found->second);
      bytes.remove_prefix(std::max<std::size_t>(length, 1));
    }
    if (tokens_.size() == before) tokens_.push_back(stand_in);
  }

  std::vector<Pair> common_;
  std::vector<bool> known_;        // [target's vocab]
  std::vector<Token> tokens_;      // of all of the target's ids
  std::vector<std::size_t> ends_;  // [target's vocab]: where they end in tokens_
};

/// The map of a pair with different tokenizers; null if they are equal, as far as the models' ModelInfo allows to see.
/// Throws decode.different-tokenizers if the texts of the tokens are unknown, or no token is in common.
inline std::shared_ptr<const TokenMap> map_tokens(const ModelInfo& draft, const ModelInfo& target) {
  const auto difference = token_difference(draft, target);
  if (!difference) return nullptr;
  if (!draft.tokens || !target.tokens) throw different_tokenizers(draft, target, *difference);
  auto map = std::make_shared<const TokenMap>(draft, target);
  if (map->common().empty())
    throw different_tokenizers(draft, target, text(*difference, ", and no token is in common"));
  return map;
}

}}}
