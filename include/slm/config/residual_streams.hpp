// ResidualStreams: several residual streams, of which the layers compute the first (AltUp of Gemma 3n).
#pragma once

#include <string_view>

#include "slm/core/architecture.hpp"

namespace slm { inline namespace v0_1 {

/// Before a layer, each stream gets a weighted sum of all of them; the weights depend on the first stream. The layer
/// computes the first stream. After it, each stream gets a multiple of the change of the first one. Around the layers,
/// matrices make the streams from the embedding, and the output from the streams.
struct ResidualStreams {
  int count = 0;        // 0: one stream, without the parts below
  int low_rank = 0;     // width of the branch of two matrices beside attention
  bool scaled = false;  // the layer's own input sees the first stream times a vector

  constexpr bool operator==(const ResidualStreams&) const = default;
};

/// Returns the fault of the streams, or an empty string.
constexpr std::string_view fault_of(const ResidualStreams& streams) {
  if (streams == ResidualStreams{}) return {};
  if (streams.count < 2 || streams.count > most_streams) return "residual streams must be 2..16";
  if (streams.low_rank < 1 || streams.low_rank > 1 << 16) return "the rank of the branch beside attention is 1..65536";
  return {};
}

}}
