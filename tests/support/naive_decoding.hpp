// Plain decoding implemented as directly as possible, without the library's processor, draws or loop: full sorts, long
// double, every prefix evaluated from scratch. The decoders are tested against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "slm/core/rng.hpp"
#include "slm/core/types.hpp"
#include "slm/decode/sampling.hpp"

namespace slm::testing {

/// id -> probability of the next token after prompt and output.
inline std::map<Token, long double> naive_distribution(std::vector<float> logits, const Sampling& sampling,
                                                       std::span<const Token> prompt, std::span<const Token> output) {
  std::vector<Token> history(prompt.begin(), prompt.end());
  history.insert(history.end(), output.begin(), output.end());
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const auto token = static_cast<Token>(id);
    const auto uses = std::count(output.begin(), output.end(), token);
    if (std::find(history.begin(), history.end(), token) != history.end()) {
      logits[id] = logits[id] > 0 ? logits[id] / sampling.repetition_penalty : logits[id] * sampling.repetition_penalty;
    }
    if (uses > 0) logits[id] -= sampling.presence_penalty + sampling.frequency_penalty * static_cast<float>(uses);
  }
  if (sampling.adjust_logits) sampling.adjust_logits(history, logits);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (sampling.temperature == 0) return {{static_cast<Token>(order[0]), 1.0L}};
  if (sampling.top_k > 0 && static_cast<std::size_t>(sampling.top_k) < order.size()) {
    order.resize(static_cast<std::size_t>(sampling.top_k));
  }
  std::vector<long double> weights;
  for (const std::size_t id : order) {
    weights.push_back(std::exp((static_cast<long double>(logits[id]) - logits[order[0]]) / sampling.temperature));
  }
  const auto sum = [&] { return std::accumulate(weights.begin(), weights.end(), 0.0L); };
  if (sampling.top_p < 1) {
    const long double total = sum();
    long double running = 0;
    std::size_t keep = 0;
    while (keep < weights.size() && running < sampling.top_p * total) running += weights[keep++];
    weights.resize(std::max<std::size_t>(keep, 1));
  }
  while (weights.back() < sampling.min_p * weights[0] || weights.back() < 0x1p-44L * weights[0]) weights.pop_back();
  const long double total = sum();
  std::map<Token, long double> result;
  for (std::size_t i = 0; i < weights.size(); ++i) result[static_cast<Token>(order[i])] = weights[i] / total;
  return result;
}

/// Gumbel-max as documented: argmax of log p(v) + g, g = -log(-log(u(seed, position, v))).
inline Token naive_gumbel(const std::map<Token, long double>& p, std::uint64_t seed, std::size_t position) {
  Token best = -1;
  long double best_score = -INFINITY;
  for (const auto& [token, probability] : p) {
    const auto id = static_cast<std::uint32_t>(token);
    const auto words = philox({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), id / 2,
                               static_cast<std::uint32_t>(Stream::gumbel)},
                              seed);
    const std::uint64_t bits = std::uint64_t{words[id % 2 * 2]} << 32 | words[id % 2 * 2 + 1];
    const long double u = (static_cast<long double>(bits >> 12) + 0.5L) / 4503599627370496.0L;
    const long double score = std::log(probability) - std::log(-std::log(u));
    if (score > best_score) {
      best_score = score;
      best = token;
    }
  }
  return best;
}

/// Prompt and output of plain decoding under the coupled rule. Ends like the decoders, except by a sink.
template <class Model>
std::vector<Token> naive_text(const Model& model, std::vector<Token> prompt, const Sampling& sampling) {
  std::vector<Token> text = prompt;
  const auto ends = [&](Token token) {
    const auto has = [token](const std::vector<Token>& set) {
      return std::find(set.begin(), set.end(), token) != set.end();
    };
    return (!sampling.ignore_end_tokens && has(model.info().end_tokens)) || has(sampling.stop_tokens);
  };
  while (text.size() < prompt.size() + static_cast<std::size_t>(sampling.max_new_tokens) &&
         text.size() < static_cast<std::size_t>(model.info().context)) {
    const auto p = naive_distribution(model.logits_after(text), sampling, prompt,
                                      std::span<const Token>{text}.subspan(prompt.size()));
    text.push_back(naive_gumbel(p, sampling.seed, text.size()));
    if (ends(text.back())) break;
  }
  return text;
}

}  // namespace slm::testing
