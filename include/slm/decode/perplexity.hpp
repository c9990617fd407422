// Perplexity of a model on a text, and the divergence between two models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/core/view.hpp"
#include "slm/decode/logits_scan.hpp"
#include "slm/lm/language_model.hpp"
#include "slm/lm/session.hpp"

namespace slm { inline namespace v0_1 {

struct PerplexityOptions {
  int window = 2048;                          // tokens per window; limited by the model's context
  int stride = 0;                             // tokens between window starts; 0: the window size, without overlap
  std::function<void(double)> progress = {};  // called with 0..1
};

struct Perplexity {
  double negative_log_likelihood = 0;  // sum over the scored tokens, in nats
  std::int64_t tokens = 0;             // scored tokens: those with at least one preceding token in their window
  int windows = 0;
  int window = 0;  // window size used

  double mean() const { return tokens > 0 ? negative_log_likelihood / static_cast<double>(tokens) : 0; }
  double value() const { return std::exp(mean()); }
};

/// Compares a model with a base model on the same text. At each scored token: the Kullback-Leibler divergence sum p
/// log(p / q), in nats, from the base's distribution p to the model's q.
struct Divergence {
  Perplexity model, base;
  std::vector<double> nats;         // per scored token, ascending
  std::int64_t same_likeliest = 0;  // tokens for which both models have the same most likely token

  double same_share() const { return static_cast<double>(same_likeliest) / static_cast<double>(nats.size()); }
  double mean() const { return std::accumulate(nats.begin(), nats.end(), 0.0) / static_cast<double>(nats.size()); }
  /// The divergence that `share` of the tokens do not exceed.
  double quantile(double share) const {
    const double at = std::ceil(share * static_cast<double>(nats.size())) - 1;
    return nats[static_cast<std::size_t>(std::clamp(at, 0.0, static_cast<double>(nats.size() - 1)))];
  }
};

namespace detail {

/// A part of a window that is read in one forward.
struct ScoredPart {
  bool begins = false;            // begins a window, after the tokens `before`
  std::span<const Token> before;  // read without results
  std::span<const Token> tokens;
  std::span<const Token> behind;  // the successor of each token: the scored tokens
};

/// Returns the logits after each of the part's tokens.
template <LanguageModel M>
View<const float, 2> read_part(Session<M>& session, const ScoredPart& part) {
  if (part.begins) {
    session.truncate(0);
    if (!part.before.empty()) session.forward(part.before, 0);
  }
  return session.forward(part.tokens, static_cast<int>(part.tokens.size()));
}

/// Calls use(part) for all parts of a text's windows. The returned Perplexity has no likelihood yet.
template <class Use>
Perplexity each_scored_part(const ModelInfo& info, std::span<const Token> tokens, const PerplexityOptions& options,
                            const Use& use) {
  const int window = std::min(options.window, info.context);
  const int stride = options.stride == 0 ? window : options.stride;
  if (window < 2 || stride < 1 || stride > window) {
    throw Error("perplexity.window",
                text("expected a window of 2 tokens or more and a stride of 1 to the window, found ", window, " and ",
                     stride, " (the context of '", info.name, "' is ", info.context, ")"),
                "Use a smaller stride, or omit both");
  }
  if (tokens.size() < 2) {
    throw Error("perplexity.short-text", text("expected a text of at least 2 tokens, found ", tokens.size(), " tokens"),
                "Use a longer text");
  }
  for (const Token token : tokens) {
    if (token >= 0 && token < info.vocab) continue;
    throw Error("perplexity.token",
                text("token id ", token, " is outside the vocabulary 0..", info.vocab - 1, " of '", info.name, "'"),
                "Encode the text with this model's own tokenizer");
  }
  constexpr std::size_t rows_at_once = 64;
  Perplexity result{.window = window};
  std::size_t scored_to = 0;  // tokens before this index are scored or cannot be
  for (std::size_t begin = 0; scored_to < tokens.size(); begin += static_cast<std::size_t>(stride)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(window), tokens.size());
    const std::size_t first = std::max(begin + 1, scored_to);  // the first token to score
    if (first >= end) break;                                   // the last window has one token only
    for (std::size_t at = first - 1; at + 1 < end; at += rows_at_once) {
      const std::size_t count = std::min(rows_at_once, end - 1 - at);
      use(ScoredPart{.begins = at == first - 1,
                     .before = tokens.subspan(begin, first - 1 - begin),
                     .tokens = tokens.subspan(at, count),
                     .behind = tokens.subspan(at + 1, count)});
      result.tokens += static_cast<std::int64_t>(count);
      if (options.progress) options.progress(static_cast<double>(at + count) / static_cast<double>(tokens.size()));
    }
    ++result.windows;
    scored_to = end;
  }
  return result;
}

/// Log-softmax of a row of logits.
class LogSoftmax {
 public:
  LogSoftmax(View<const float, 2> logits, std::size_t row)
      : row_(logits.row(static_cast<std::int64_t>(row)), static_cast<std::size_t>(logits.extent(1))),
        peak_(find_peak(row_)) {
    double total = 0;
    for (const float logit : row_) total += std::exp(static_cast<double>(logit) - static_cast<double>(peak_.logit));
    normaliser_ = static_cast<double>(peak_.logit) + std::log(total);
  }
  double operator[](std::size_t token) const { return static_cast<double>(row_[token]) - normaliser_; }
  std::size_t size() const { return row_.size(); }
  Token likeliest() const { return peak_.token; }

 private:
  std::span<const float> row_;
  Peak peak_;
  double normaliser_;
};

/// sum p log(p / q); tokens with p = 0 contribute nothing.
inline double divergence_of(const LogSoftmax& p, const LogSoftmax& q) {
  double nats = 0;
  for (std::size_t token = 0; token < p.size(); ++token) {
    const double probability = std::exp(p[token]);
    if (probability > 0) nats += probability * (p[token] - q[token]);
  }
  return nats;
}

}  // namespace detail

/// Strided perplexity: windows start every `stride` tokens. Each window scores the tokens that no earlier window
/// scored, given the preceding tokens in the window. A window's first token is not scored. Throws Error if there are
/// fewer than two tokens or the options are invalid.
template <LanguageModel M>
Perplexity perplexity(const M& model, std::span<const Token> tokens, const PerplexityOptions& options = {}) {
  Session session(model);
  double sum = 0;
  Perplexity result = detail::each_scored_part(model.info(), tokens, options, [&](const detail::ScoredPart& part) {
    const auto logits = detail::read_part(session, part);
    for (std::size_t r = 0; r < part.behind.size(); ++r) {
      sum -= detail::LogSoftmax(logits, r)[static_cast<std::size_t>(part.behind[r])];
    }
  });
  result.negative_log_likelihood = sum;
  return result;
}

/// Windows and errors are those of perplexity(); windows must fit both contexts. Also throws perplexity.vocabulary if
/// the vocabulary sizes differ.
template <LanguageModel M, LanguageModel Base>
Divergence divergence(const M& model, const Base& base, std::span<const Token> tokens, PerplexityOptions options = {}) {
  if (model.info().vocab != base.info().vocab) {
    throw Error("perplexity.vocabulary",
                text("'", model.info().name, "' has ", model.info().vocab, " tokens, '", base.info().name, "' ",
                     base.info().vocab),
                "Compare models with one tokenizer");
  }
  options.window = std::min(options.window, base.info().context);
  Session session(model);
  Session beside(base);
  Divergence result;
  double sum = 0, base_sum = 0;
  result.model = detail::each_scored_part(model.info(), tokens, options, [&](const detail::ScoredPart& part) {
    const auto logits = detail::read_part(session, part), base_logits = detail::read_part(beside, part);
    for (std::size_t r = 0; r < part.behind.size(); ++r) {
      const detail::LogSoftmax q(logits, r), p(base_logits, r);
      result.nats.push_back(detail::divergence_of(p, q));
      result.same_likeliest += p.likeliest() == q.likeliest() ? 1 : 0;
      sum -= q[static_cast<std::size_t>(part.behind[r])];
      base_sum -= p[static_cast<std::size_t>(part.behind[r])];
    }
  });
  result.base = result.model;
  result.model.negative_log_likelihood = sum;
  result.base.negative_log_likelihood = base_sum;
  std::sort(result.nats.begin(), result.nats.end());
  return result;
}

}}
