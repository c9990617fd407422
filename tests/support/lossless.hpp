// Generates many short texts with the real decoder and compares their joint distribution with the exact one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "slm/decode/speculative_definition.hpp"
#include "support/naive_decoding.hpp"
#include "support/statistics.hpp"
#include "support/toy_models.hpp"

namespace slm::testing {

struct Setting {
  int draft_length;
  int vocab;  // small enough that most cells of the joint distribution are well filled
};
inline const Setting toy_settings[] = {{1, 8}, {2, 6}, {4, 4}};

inline Sampling sampling_number(int number) {
  switch (number) {
    case 0: return {.temperature = 0.8f, .top_k = 5, .top_p = 0.9f};
    case 1: return {.temperature = 1.0f};
    case 2: return {.temperature = 0.4f};
    default: return {.temperature = 1.3f, .top_k = 4, .top_p = 0.95f};
  }
}

inline const std::vector<Token> opening{1, 0};

inline ToyOptions target_options(int vocab) { return {.vocab = vocab, .seed = 5, .spread = 2.2}; }

inline ToyOptions draft_options(int vocab) {
  return {.vocab = vocab, .seed = 5, .spread = 2.2, .other_seed = 77, .other_share = 0.45};
}

/// Whether a token may follow the output of a constrained request; empty: every token may.
using Permits = std::function<bool(std::span<const Token> output, Token next)>;

/// The exact distribution of `length` tokens after the prompt, as cells in base `vocab`.
inline std::vector<double> exact_law(const ToyModel& target, const Sampling& sampling, int length,
                                     const Permits& permits = {}) {
  const auto vocab = static_cast<std::size_t>(target.info().vocab);
  std::vector<double> law(1, 1.0);
  std::vector<std::vector<Token>> texts(1);
  for (int i = 0; i < length; ++i) {
    std::vector<double> longer;
    std::vector<std::vector<Token>> longer_texts;
    for (std::size_t cell = 0; cell < law.size(); ++cell) {
      std::vector<Token> whole = opening;
      whole.insert(whole.end(), texts[cell].begin(), texts[cell].end());
      Sampling here = sampling;
      if (permits) {
        here.adjust_logits = [&](std::span<const Token>, std::span<float> logits) {
          for (std::size_t id = 0; id < logits.size(); ++id) {
            if (!permits(texts[cell], static_cast<Token>(id))) logits[id] = -std::numeric_limits<float>::infinity();
          }
        };
      }
      std::map<Token, long double> p;
      if (law[cell] > 0) p = naive_distribution(target.logits_after(whole), here, opening, texts[cell]);
      for (std::size_t v = 0; v < vocab; ++v) {
        const auto found = p.find(static_cast<Token>(v));
        longer.push_back(found == p.end() ? 0.0 : law[cell] * static_cast<double>(found->second));
        longer_texts.push_back(texts[cell]);
        longer_texts.back().push_back(static_cast<Token>(v));
      }
    }
    law = std::move(longer);
    texts = std::move(longer_texts);
  }
  return law;
}

/// Generates `texts` answers to a request of K + 2 tokens, with seeds 1, 2, ..., and compares them with their law.
template <class Rule, class Draft>
Fit fit_to(const std::vector<double>& law, Draft draft, ToyModel target, const Setting& setting, Request request,
           Speculation speculation = {}, int texts = 60000) {
  if (!speculation.draft_length) speculation.draft_tokens = setting.draft_length;
  SpeculativeDecoder decoder{std::move(draft), std::move(target), speculation, Rule{}};
  std::vector<std::int64_t> counts(law.size());
  const auto vocab = static_cast<std::size_t>(decoder.target().info().vocab);
  for (int text = 1; text <= texts; ++text) {
    request.sampling.seed = static_cast<std::uint64_t>(text);
    std::size_t cell = 0;
    decoder.generate(request, [&](Token token) { cell = cell * vocab + static_cast<std::size_t>(token); });
    ++counts[cell];
  }
  return compare(counts, law);
}

/// The window must be longer than K + 1 tokens: a wrong bonus token shows only in the following tokens.
template <class Rule, class Draft>
Fit fit(Draft draft, ToyModel target, const Setting& setting, Sampling sampling, Speculation speculation = {},
        int texts = 60000) {
  sampling.max_new_tokens = setting.draft_length + 2;
  const auto law = exact_law(target, sampling, sampling.max_new_tokens);
  return fit_to<Rule>(law, std::move(draft), std::move(target), setting, {.prompt = opening, .sampling = sampling},
                      speculation, texts);
}

template <class Rule>
Fit fit_toys(const Setting& setting, const Sampling& sampling, const Speculation& speculation = {}) {
  return fit<Rule>(ToyModel{draft_options(setting.vocab)}, ToyModel{target_options(setting.vocab)}, setting, sampling,
                   speculation);
}

}  // namespace slm::testing
