// LatentAttention: keys and values of all heads that are computed from one row a token.
#pragma once

#include <string_view>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Multi-head latent attention. The KV cache has one row a token for all heads: a rotated key, then the latent.
/// Matrices of each head turn its query into one of the latent's width, and the sum of latents into the head's output.
/// ModelConfig::rotary is the width of the rotated part, and head_dim that of the cached row.
struct LatentAttention {
  int rank = 0;        // width of the latent; 0: keys and values are not latent
  int query_rank = 0;  // width of what the queries are computed from; 0: from the layer's input
  int unrotated = 0;   // width of the part of a head's query that is not rotated
  int value = 0;       // width of a head's output

  constexpr bool operator==(const LatentAttention&) const = default;
};

/// Returns the fault of latent attention by heads of this shape, or an empty string.
constexpr std::string_view fault_of(const LatentAttention& latent, int kv_heads, int head_dim, int rotary) {
  if (latent == LatentAttention{}) return {};
  if (latent.rank < 1 || rotary < 2 || head_dim != latent.rank + rotary)
    return "head_dim of latent attention must be the rank and the rotated part, and at most 1024";
  if (kv_heads != 1) return "latent attention has one KV head";
  if (latent.query_rank < 0 || latent.query_rank > 1 << 20) return "the rank of queries must be 0..1048576";
  if (latent.unrotated < 1 || latent.unrotated > latent.rank)
    return "the part of a latent head that is not rotated must be 1..rank";
  if (latent.value < 1 || latent.value > head_dim) return "the width of a latent head's output must be 1..head_dim";
  return {};
}

}}
