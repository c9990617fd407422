// Sampling: the parameters of one generation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "slm/core/draw.hpp"
#include "slm/core/error.hpp"
#include "slm/core/types.hpp"
#include "slm/lm/language_model.hpp"

namespace slm { inline namespace v0_1 {

/// Parameters of one generate() call. Logits are processed in this order: penalties, adjust_logits, temperature, top_k,
/// top_p, min_p, renormalisation.
struct Sampling {
  int max_new_tokens = 128;
  float temperature = 1.0f;  // 0: greedy, the highest logit; ties take the lowest id
  int top_k = 0;             // keep the k most likely tokens; 0: all
  float top_p = 1.0f;        // keep the smallest set of most likely tokens with at least this total probability; 1: all
  float min_p = 0.0f;        // keep tokens whose probability is at least this share of the highest; 0: all
  float repetition_penalty = 1.0f;  // divides positive, multiplies negative logits of tokens in prompt or output
  float presence_penalty = 0.0f;    // subtracted once from the logit of each token in the output
  float frequency_penalty = 0.0f;   // subtracted once per occurrence of the token in the output
  std::uint64_t seed = 0;
  std::vector<Token> stop_tokens{};  // generation ends after any of these, in addition to the model's end tokens
  bool ignore_end_tokens = false;    // continue after the model's end tokens (for measurements)
  /// Optional. Edits the logits of the token after `prefix` (prompt, output, and tokens under verification). It must be
  /// a pure function of its arguments. A grammar masks tokens with -infinity here.
  std::function<void(std::span<const Token> prefix, std::span<float> logits)> adjust_logits{};

  bool greedy() const { return temperature == 0.0f; }

  bool penalises() const { return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f; }
};

/// The parameters in the form that every device uses. vocab: the target's.
inline Draw draw_of(const Sampling& sampling, int vocab) {
  Draw draw{.seed = sampling.seed, .vocab = vocab};
  if (sampling.greedy()) return draw;
  draw.scale = 1.4426950408889634 * 0x1p31 / static_cast<double>(sampling.temperature);
  draw.top_k = sampling.top_k < vocab ? sampling.top_k : 0;
  if (sampling.top_p < 1) draw.top_p = static_cast<std::uint32_t>(sampling.top_p * 0x1p32f);
  if (sampling.top_p < 1 && draw.top_p == 0) draw.top_p = 1;
  const double lightest = std::ceil(static_cast<double>(sampling.min_p) * static_cast<double>(whole_weight));
  draw.min_weight = std::max(std::uint64_t{1}, static_cast<std::uint64_t>(lightest));
  return draw;
}

/// Returns `sampling` with the fields that `by` sets, such as ModelInfo::sampling.
inline Sampling with(Sampling sampling, const SuggestedSampling& by) {
  sampling.temperature = by.temperature.value_or(sampling.temperature);
  sampling.top_k = by.top_k.value_or(sampling.top_k);
  sampling.top_p = by.top_p.value_or(sampling.top_p);
  sampling.min_p = by.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = by.repetition_penalty.value_or(sampling.repetition_penalty);
  return sampling;
}

/// Throws Error if a parameter is outside its range. vocab: number of ids.
inline void validate(const Sampling& sampling, int vocab) {
  const auto require = [](bool holds, std::string_view field, double found, std::string_view range) {
    if (holds) return;
    throw Error("sampling.out-of-range", text("Sampling::", field, " is ", found, ", expected ", range),
                text("Set ", field, " to a value in that range"));
  };
  require(sampling.max_new_tokens >= 0, "max_new_tokens", sampling.max_new_tokens, "0 or more");
  require(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature", sampling.temperature,
          "a finite number of 0 or more");
  require(sampling.top_k >= 0, "top_k", sampling.top_k, "0 (all) or more");
  require(sampling.top_p > 0 && sampling.top_p <= 1, "top_p", sampling.top_p, "more than 0, at most 1");
  require(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p", sampling.min_p, "0 to 1");
  require(std::isfinite(sampling.repetition_penalty) && sampling.repetition_penalty > 0, "repetition_penalty",
          sampling.repetition_penalty, "a finite number above 0");
  require(std::isfinite(sampling.presence_penalty), "presence_penalty", sampling.presence_penalty, "a finite number");
  require(std::isfinite(sampling.frequency_penalty), "frequency_penalty", sampling.frequency_penalty,
          "a finite number");
  for (const Token token : sampling.stop_tokens) {
    if (token < 0 || token >= vocab) {
      throw Error("sampling.stop-token-out-of-range",
                  text("stop token ", token, " is outside the vocabulary of ", vocab, " ids"),
                  "Take stop tokens from the target's tokenizer");
    }
  }
}

}}
