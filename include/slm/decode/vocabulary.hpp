// Whether draft and target have the same token ids, as far as their ModelInfo allows to see.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Without token texts, two sizes may belong to one tokenizer if they differ by a few added tokens at the end, such as
/// Llama 2 (32000) and CodeLlama (32016).
inline constexpr int most_added_tokens = 256;

constexpr bool sizes_may_match(int draft_vocab, int target_vocab) {
  const int difference = draft_vocab - target_vocab;
  return difference <= most_added_tokens && -difference <= most_added_tokens;
}

namespace detail {

/// How draft and target differ in their token ids; nothing if they may have the same tokenizer. Compares token texts if
/// both have them, otherwise sizes and end tokens.
inline std::optional<std::string> token_difference(const ModelInfo& draft, const ModelInfo& target) {
  const auto draft_tokens = draft.tokens ? draft.tokens() : std::vector<std::string>{};
  const auto target_tokens = target.tokens ? target.tokens() : std::vector<std::string>{};
  const std::size_t both = std::min(draft_tokens.size(), target_tokens.size());
  for (std::size_t id = 0; id < both; ++id) {
    if (draft_tokens[id] == target_tokens[id]) continue;
    return text("id ", id, " is '", draft_tokens[id], "' in the draft and '", target_tokens[id], "' in the target");
  }
  if (both > 0) return std::nullopt;
  if (!sizes_may_match(draft.vocab, target.vocab)) {
    return text("their vocabularies hold ", draft.vocab, " and ", target.vocab, " ids, more than ", most_added_tokens,
                " apart");
  }
  const auto shares = [&](Token end) {
    return std::find(target.end_tokens.begin(), target.end_tokens.end(), end) != target.end_tokens.end();
  };
  if (draft.end_tokens.empty() || target.end_tokens.empty() ||
      std::any_of(draft.end_tokens.begin(), draft.end_tokens.end(), shares)) {
    return std::nullopt;
  }
  return text("the draft ends with id ", draft.end_tokens.front(), ", the target with id ", target.end_tokens.front());
}

inline Error different_tokenizers(const ModelInfo& draft, const ModelInfo& target, const std::string& found) {
  return Error("decode.different-tokenizers",
               text("the draft ", draft.name, " and the target ", target.name, " have different tokenizers: ", found),
               "Use a draft model of the target's family, or lookup");
}

}  // namespace detail

/// Throws decode.different-tokenizers if draft and target have different tokenizers, as far as their ModelInfo allows
/// to see. Decoders also accept such pairs if they know the texts of both models' tokens.
inline void check_same_tokenizer(const ModelInfo& draft, const ModelInfo& target) {
  if (const auto found = detail::token_difference(draft, target)) {
    throw detail::different_tokenizers(draft, target, *found);
  }
}

}}
