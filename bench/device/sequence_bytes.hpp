// The bytes that a step moves for each of its sequences, besides the weights.
#pragma once

#include <algorithm>

#include "slm/model/page_pool.hpp"

namespace slm::bench {

/// Keys and values of `positions` positions, as far as the layers' windows reach, and the states of recurrent layers:
/// one is read, and one is written after each of the `rows` rows.
inline double sequence_bytes(const KvLayout& layout, int positions, int rows) {
  double bytes = 0;
  for (int kind = 0; kind < static_cast<int>(layout.kinds().size()); ++kind) {
    const auto page = static_cast<double>(layout.page_bytes(kind));
    const int window = layout.kinds()[static_cast<std::size_t>(kind)].window;
    const int seen = window == 0 ? positions : std::min(positions, window);
    bytes += kind == layout.state_kind() ? page * (1 + rows) : page / page_positions * seen;
  }
  return bytes;
}

}  // namespace slm::bench
