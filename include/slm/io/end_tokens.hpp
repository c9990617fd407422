// End tokens of a model: one rule for folders and GGUF files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/io/family.hpp"

namespace slm { inline namespace v0_1 {

/// Whether a control token with this text is known as an end token.
inline bool ends_texts(std::string_view control_token) {
  constexpr std::string_view known[] = {"<|eot_id|>", "<|im_end|>",      "<|end|>", "<end_of_turn>", "<|endoftext|>",
                                        "</s>",       "<|end_of_text|>", "<EOT>",   "<|eom_id|>"};
  return std::find(std::begin(known), std::end(known), control_token) != std::end(known);
}

/// A token in a tokenizer's files.
struct ListedToken {
  std::int64_t id = -1;
  std::string content;
  bool is_control = false;
};

/// The end tokens that a tokenizer's files declare.
struct TokenizerEnds {
  std::optional<std::int64_t> eos;  // the tokenizer's eos_token
  std::string eos_file;             // file that declares it
  std::vector<ListedToken> tokens;
};

/// source: where the token is declared, in words.
inline void add_end_token(ModelDescription& model, Token token, std::string source) {
  std::vector<Token>& ends = model.settings.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return;
  ends.push_back(token);
  model.end_sources.push_back(std::move(source));
}

/// Adds the tokenizer's eos_token and the control tokens that are known as end tokens, since files often declare fewer
/// than the model was trained with. Ids outside the vocabulary are dropped.
inline void add_tokenizer_ends(ModelDescription& model, TokenizerEnds ends) {
  const int vocab = model.config.vocab;
  if (ends.eos && (*ends.eos < 0 || *ends.eos >= vocab)) {
    model.notes.push_back(text("the end token ", *ends.eos, " of '", ends.eos_file, "' is outside the vocabulary 0..",
                               vocab - 1, ": dropped"));
  } else if (ends.eos) {
    add_end_token(model, static_cast<Token>(*ends.eos), text("eos_token of ", ends.eos_file));
  }
  std::stable_sort(ends.tokens.begin(), ends.tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const auto& [id, content, is_control] : ends.tokens) {
    if (!is_control || !ends_texts(content) || id < 0 || id >= vocab) continue;
    add_end_token(model, static_cast<Token>(id), text("control token ", content));
  }
}

}}
