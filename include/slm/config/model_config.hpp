// ModelConfig: the shape of a model, fixed at compile time. ModelSettings: what changes between fine-tunes of one
// shape.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "slm/core/error.hpp"
#include "slm/core/types.hpp"

namespace slm {

/// The shape of a Llama-family decoder.
struct ModelConfig {
  int layers = 0;
  int hidden = 0;    // width of the residual stream
  int ffn = 0;       // width between gate/up and down
  int heads = 0;     // query heads
  int kv_heads = 0;  // heads that share one key and value; heads % kv_heads == 0
  int head_dim = 0;  // need not be hidden / heads
  int vocab = 0;     // rows of the embedding table

  constexpr bool operator==(const ModelConfig&) const = default;
};

/// What is wrong with a shape; empty when it is sound. The bounds keep every product of two fields far inside 64 bits.
constexpr std::string_view fault_of(const ModelConfig& config) {
  const auto within = [](int value, int limit) { return value >= 1 && value <= limit; };
  if (!within(config.layers, 1024)) return "layers must be 1..1024";
  if (!within(config.hidden, 1 << 20)) return "hidden must be 1..1048576";
  if (!within(config.ffn, 1 << 22)) return "ffn must be 1..4194304";
  if (!within(config.heads, 4096)) return "heads must be 1..4096";
  if (!within(config.kv_heads, config.heads)) return "kv_heads must be 1..heads";
  if (config.heads % config.kv_heads != 0) return "heads must be a multiple of kv_heads";
  if (!within(config.head_dim, 1024)) return "head_dim must be 1..1024";
  if (config.head_dim % 2 != 0) return "head_dim must be even (rotary embedding turns pairs)";
  if (!within(config.vocab, 1 << 24)) return "vocab must be 1..16777216";
  return {};
}

/// Llama-3's stretching of the rotary frequencies.
struct RopeScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  float factor = 1;
  float low_frequency_factor = 1;
  float high_frequency_factor = 4;
  float original_context = 8192;
};

/// What a checkpoint says of itself besides its shape.
struct ModelSettings {
  int context = 2048;  // max_position_embeddings
  float norm_epsilon = 1e-6f;
  float rope_theta = 10000;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;  // the head is the embedding table
  bool attention_bias = false;   // on q, k, v and the output projection
  bool mlp_bias = false;         // on gate, up and down
  std::vector<Token> end_tokens;
};

}  // namespace slm
