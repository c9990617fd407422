// Outputs of models and decoders: the logits of a prompt, and texts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/decode/sampling.hpp"
#include "slm/decode/stats.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/session.hpp"

namespace slm::testing {

/// [tokens of the prompt, vocab]
inline std::vector<float> prompt_logits(AnyModel model, const std::vector<Token>& prompt) {
  Session session(std::move(model));
  const View<const float, 2> rows = session.forward(prompt, static_cast<int>(prompt.size()));
  return {rows.data, rows.data + rows.size()};
}

/// The prompt and its continuation. accepted: the number of accepted draft tokens is added to it.
template <class Decoder>
std::vector<Token> text_of(Decoder& decoder, const std::vector<Token>& prompt, const Sampling& sampling,
                           std::int64_t* accepted = nullptr) {
  std::vector<Token> text = prompt;
  const Stats stats = decoder.generate(prompt, sampling, [&](Token token) { text.push_back(token); });
  if (accepted != nullptr) *accepted += stats.accepted;
  return text;
}

}  // namespace slm::testing
