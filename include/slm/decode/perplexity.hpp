// Perplexity of a model on a text: how many tokens it hesitates between, on average.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "slm/core/error.hpp"
#include "slm/decode/logprobs.hpp"
#include "slm/model/language_model.hpp"
#include "slm/model/session.hpp"

namespace slm::inline v0_1 {

struct PerplexityOptions {
  int window = 2048;                          // tokens seen at once; less where the model's context is shorter
  int stride = 0;                             // tokens from one window to the next; 0: the window, without overlap
  std::function<void(double)> progress = {};  // called with 0..1
};

struct Perplexity {
  double negative_log_likelihood = 0;  // sum over the scored tokens, in nats
  std::int64_t tokens = 0;             // scored: each with at least one token before it in its window
  int windows = 0;
  int window = 0;  // as used

  double mean() const { return tokens > 0 ? negative_log_likelihood / static_cast<double>(tokens) : 0; }
  double value() const { return std::exp(mean()); }
};

/// Strided, as the field reports it: windows start every `stride` tokens; each scores the tokens that no earlier window
/// has scored, given those before them in the window. A window's first token has nothing before it and is not scored.
/// Throws Error when there are fewer than two tokens or the options make no sense.
template <LanguageModel M>
Perplexity perplexity(const M& model, std::span<const Token> tokens, const PerplexityOptions& options = {}) {
  const int window = std::min(options.window, model.info().context);
  const int stride = options.stride == 0 ? window : options.stride;
  if (window < 2 || stride < 1 || stride > window) {
    throw Error("perplexity.window",
                text("expected a window of 2 tokens or more and a stride of 1 to the window, found ", window, " and ",
                     stride, " (the context of '", model.info().name, "' is ", model.info().context, ")"),
                "Give a smaller stride, or leave both to the defaults");
  }
  if (tokens.size() < 2) {
    throw Error("perplexity.short-text", text("the text has ", tokens.size(), " tokens, at least 2 are needed"),
                "Give a longer text");
  }
  for (const Token token : tokens) {
    if (token >= 0 && token < model.info().vocab) continue;
    throw Error("perplexity.token",
                text("token id ", token, " is outside the vocabulary 0..", model.info().vocab - 1, " of '",
                     model.info().name, "'"),
                "Encode the text with this model's own tokenizer");
  }
  constexpr std::size_t rows_at_once = 64;
  Session session(model);
  LogprobReport report;
  Perplexity result{.window = window};
  std::size_t scored_to = 0;  // tokens before this index are scored, or cannot be
  for (std::size_t begin = 0; scored_to < tokens.size(); begin += static_cast<std::size_t>(stride)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(window), tokens.size());
    const std::size_t first = std::max(begin + 1, scored_to);  // the first token to score
    if (first >= end) break;                                   // a last window of one token
    session.truncate(0);
    if (first - 1 > begin) session.forward(tokens.subspan(begin, first - 1 - begin), 0);
    for (std::size_t at = first - 1; at + 1 < end; at += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, end - 1 - at);
      const auto logits = session.forward(tokens.subspan(at, count), static_cast<int>(count));
      for (std::size_t r = 0; r < count; ++r) {
        const std::span<const float> row(logits.row(static_cast<std::int64_t>(r)),
                                         static_cast<std::size_t>(model.info().vocab));
        report.by_row(row, tokens[at + r + 1], 0);
        result.negative_log_likelihood -= report.logprob();
      }
      result.tokens += static_cast<std::int64_t>(count);
      if (options.progress) options.progress(static_cast<double>(at + count) / static_cast<double>(tokens.size()));
    }
    ++result.windows;
    scored_to = end;
  }
  return result;
}

}  // namespace slm
