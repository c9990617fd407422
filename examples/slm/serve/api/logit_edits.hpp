// Edits of the logits that a request asks for: functions of the text, as Sampling::adjust_logits wants them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slm/core/types.hpp"
#include "slm/text/tokenizer.hpp"

namespace serve {

/// The logit of a token that must not follow. It is finite: where a grammar permits no other token, the token follows.
inline constexpr float banned_logit = -1e30f;

/// The most tokens of a request's `logit_bias`.
inline constexpr std::size_t most_biased = 1024;

/// No end token before the text has `least` tokens.
struct LeastLength {
  std::vector<slm::Token> ends;
  std::size_t least;

  void operator()(std::span<const slm::Token> text, std::span<float> logits) const {
    if (text.size() >= least) return;
    for (const slm::Token end : ends) {
      if (static_cast<std::size_t>(end) < logits.size()) logits[static_cast<std::size_t>(end)] = banned_logit;
    }
  }
};

/// Reasoning that is not over after `most` tokens of the answer is closed: the next tokens are those of its tag.
struct ReasoningBudget {
  slm::Tokenizer tokenizer;
  std::string begin, end;         // the tags
  std::vector<slm::Token> close;  // the tokens of `end`
  bool begun;                     // the prompt ends inside of the reasoning
  std::size_t prompt, most;       // tokens

  void operator()(std::span<const slm::Token> text, std::span<float> logits) const {
    if (text.size() < prompt + most || text.size() >= prompt + most + close.size()) return;
    const auto answer = text.subspan(prompt);
    const auto closing = answer.subspan(most);
    if (!std::equal(closing.begin(), closing.end(), close.begin()) || !reasons(answer.first(most))) return;
    const auto next = static_cast<std::size_t>(close[closing.size()]);
    if (next >= logits.size()) return;
    std::fill(logits.begin(), logits.end(), banned_logit);
    logits[next] = 0;
  }

 private:
  bool reasons(std::span<const slm::Token> answer) const {
    std::string said;
    for (const slm::Token token : answer) said += tokenizer.bytes(token);
    const std::size_t first = std::min(said.find_first_not_of(" \n"), said.size());
    return (begun || said.compare(first, begin.size(), begin) == 0) && said.find(end, first) == said.npos;
  }
};

using LogitEdit = std::function<void(std::span<const slm::Token>, std::span<float>)>;

/// Both, in this order. first: may be null.
inline LogitEdit both(LogitEdit first, LogitEdit second) {
  if (!first) return second;
  return [first = std::move(first), second = std::move(second)](std::span<const slm::Token> text,
                                                                std::span<float> logits) {
    first(text, logits);
    second(text, logits);
  };
}

}  // namespace serve
