// LanguageModel: the concept that decoders use. A model maps a batch to logits, hidden states or sampled tokens.
#pragma once

#include <concepts>

#include "slm/lm/batch.hpp"
#include "slm/lm/kv_pool.hpp"
#include "slm/lm/model_info.hpp"
#include "slm/lm/sequence.hpp"

namespace slm { inline namespace v0_1 {

/// A causal language model: immutable weights, used by any number of sequences and threads.
///   pool(options)   creates a KV cache pool; construct sequences in it with Sequence{pool}
///   sequence()      returns an empty sequence in the model's default pool
///   forward(batch)  appends the batch's tokens to their sequences and computes the requested results. Throws Error
///                   before any change if the batch is invalid (batch.…), or the context or KV cache is full.
/// A row's result depends on its own sequence only: not on other rows of the batch, nor on how the prompt was divided.
template <class M>
concept LanguageModel = requires(const M& model, Batch& batch) {
  { model.info() } -> std::same_as<const ModelInfo&>;
  { model.pool(KvPoolOptions{}) } -> std::same_as<KvPool>;
  { model.sequence() } -> std::same_as<Sequence>;
  { model.forward(batch) } -> std::same_as<void>;
};

}}
