// The results of a model, possibly over several ranks, by their bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "slm/decode/autoregressive.hpp"
#include "slm/decode/speculative.hpp"
#include "slm/lm/any_model.hpp"
#include "slm/lm/batch.hpp"
#include "support/over_ranks.hpp"

namespace slm::testing {

inline const std::vector<std::string> folders{"llama-mha3h",
                                              "llama-bias",
                                              "llama-sharded-bf16",
                                              "llama3-gqa-scaled-tied",
                                              "mistral-swa8",
                                              "olmo-clip-untied",
                                              "olmo-tied",
                                              "qwen2-bias-tied",
                                              "qwen2-swa-from-layer1",
                                              "qwen3-qknorm-headdim",
                                              "phi-partial",
                                              "phi-qknorm-gqa",
                                              "phi3-swa7",
                                              "phi3-longrope",
                                              "gpt2",
                                              "opt-preln",
                                              "opt-postln-proj",
                                              "mpt-alibi-3h",
                                              "mpt-foundry-3b-like",
                                              "mpt-foundry-mqa",
                                              "mpt-foundry-qkln-alibi6h",
                                              "mpt-foundry-gqa-qkgn-swa",
                                              "mosaicgpt-qkln-alibi",
                                              "mosaicgpt-wpe-bias-clip"};

inline std::vector<Token> some_tokens(std::uint64_t seed, int count, int vocab) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i)
    tokens.push_back(static_cast<Token>((seed * 31 + static_cast<std::uint64_t>(i) * 37 + seed * i * 5) %
                                        static_cast<std::uint64_t>(vocab)));
  return tokens;
}

/// Logits of batches of several sequences, one of which forks, and hidden states.
inline void read_texts(const AnyModel& model, Bits& bits) {
  const int vocab = model.info().vocab;
  Sequence first = model.sequence(), second = model.sequence();
  Batch batch;
  batch.add(first, some_tokens(1, 12, vocab), {.result = RowResult::logits, .rows = 12});
  batch.add(second, some_tokens(2, 5, vocab), {.result = RowResult::logits, .rows = 1});
  model.forward(batch);
  for (int i = 0; i < 2; ++i) bits.add(batch.logits(i).data, batch.logits(i).size());
  Sequence third = first.fork();
  batch.clear();
  batch.add(first, some_tokens(3, 1, vocab), {.result = RowResult::logits});
  batch.add(third, some_tokens(4, 3, vocab), {.result = RowResult::logits, .rows = 2});
  batch.add(second, some_tokens(5, 2, vocab), {.result = RowResult::hidden, .rows = 2});
  model.forward(batch);
  for (int i = 0; i < 2; ++i) bits.add(batch.logits(i).data, batch.logits(i).size());
  bits.add(batch.hidden(2).data, batch.hidden(2).size());
}

/// Tokens and log-probabilities, greedy and sampled, of several concurrent requests.
template <class Decoder>
void generate(Decoder decoder, Bits& bits, int vocab) {
  std::vector<Request> requests;
  for (const float temperature : {0.0f, 0.9f}) {
    requests.push_back(
        {.prompt = some_tokens(requests.size() + 7, 4, vocab),
         .sampling = {.max_new_tokens = 6, .temperature = temperature, .seed = 3, .ignore_end_tokens = true},
         .logprobs = {.raw = true, .sampled = true}});
  }
  const auto stats = decoder.generate(requests, [&](std::size_t request, const GeneratedToken& next) {
    const double numbers[] = {static_cast<double>(request), static_cast<double>(next.token), next.logprob,
                              next.sampled_logprob};
    bits.add(numbers, 4);
    return true;
  });
  for (const Stats& one : stats) bits.add(&one.accepted, 1);
}

inline Bits answers(const AnyModel& draft, const AnyModel& target) {
  Bits bits;
  read_texts(target, bits);
  generate(AutoregressiveDecoder{target}, bits, target.info().vocab);
  generate(SpeculativeDecoder{draft, target, {.draft_tokens = 3}}, bits, target.info().vocab);
  return bits;
}

}  // namespace slm::testing
