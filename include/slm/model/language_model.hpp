// The concept that decoders see: a model is logits after tokens, and a KV cache that can be cut back.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "slm/core/draw.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"

namespace slm {

/// What a decoder must know of a model besides its logits.
struct ModelInfo {
  std::string name = {};                                  // for messages: the folder or the config's name
  int vocab = 0;                                          // width of a logits row
  int context = 0;                                        // most tokens the KV cache holds
  std::vector<Token> end_tokens = {};                     // generation ends after any of these
  std::function<std::vector<std::string>()> tokens = {};  // id -> token text, to compare tokenizers; may be empty
  std::int64_t step_bytes = 0;                            // weight bytes read by one decode step; 0: unknown
};

/// A causal language model with its own KV cache.
///   extend(tokens, rows)  appends tokens to the KV cache and returns the logits of the last `rows` of them,
///                         [rows, vocab], 0 <= rows <= tokens.size(); valid until the next call.
///                         Throws Error when a token or the context is out of range; length() is then unchanged.
///   truncate(length)      forgets every token from `length` on, 0 <= length <= length().
/// A row's logits do not depend on how many tokens were extended beside it.
template <class M>
concept LanguageModel = requires(M& model, const M& constant, std::span<const Token> tokens, int count) {
  { constant.info() } -> std::same_as<const ModelInfo&>;
  { constant.length() } -> std::same_as<int>;
  { model.extend(tokens, count) } -> std::same_as<View<const float, 2>>;
  { model.truncate(count) } -> std::same_as<void>;
};

/// A model that can choose tokens where its logits are: only ids leave the device, no_token where a row of logits is
/// not usable. What is returned is valid until the next call.
///   chooses()                     whether it does, or the two below are not to be called
///   choose(tokens, rows, draw)    appends tokens, as extend() does, and returns the token that follows each of the
///                                 last `rows` of them, [rows]
///   propose(tokens, count, draw)  appends tokens and, one by one, what it chooses to follow: returns `count` tokens,
///                                 of which it appended all but the last, or no more once a row was not usable
template <class M>
concept ChoosingModel = LanguageModel<M> &&
    requires(M& model, const M& constant, std::span<const Token> tokens, int count, const Draw& draw) {
  { constant.chooses() } -> std::same_as<bool>;
  { model.choose(tokens, count, draw) } -> std::same_as<std::span<const Token>>;
  { model.propose(tokens, count, draw) } -> std::same_as<std::span<const Token>>;
};

/// Whether this very model chooses tokens itself.
template <class M>
bool chooses(const M& model) {
  if constexpr (ChoosingModel<M>) {
    return model.chooses();
  } else {
    return false;
  }
}

}  // namespace slm
