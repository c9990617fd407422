// RowCut: the distribution of a weight's rows over ranks. LayerCut: the distribution of layers over pipeline stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// A range of adjacent rows [first, last).
struct RowRange {
  std::int64_t first = 0;
  std::int64_t last = 0;  // exclusive

  std::int64_t count() const { return last - first; }
};

/// Rows are divided at multiples of the kernels' tile, equally in both halves of a weight. A rank with an output of a
/// gate therefore has the matching output of its up projection. Surplus ranks hold no rows.
struct RowCut {
  static constexpr std::int64_t tile_of_kernels = 16;

  std::int64_t tile = tile_of_kernels;
  int ranks = 1;
  int parts = 1;           // 2, or 1 if the number of rows is odd
  std::int64_t width = 0;  // rows per part

  RowCut() = default;
  RowCut(std::int64_t rows, int of_ranks)
      : ranks(of_ranks), parts(rows % 2 == 0 ? 2 : 1), width(rows / (rows % 2 == 0 ? 2 : 1)) {}
  /// One part, divided at multiples of `multiples` rows.
  RowCut(std::int64_t rows, int of_ranks, std::int64_t multiples) : tile(multiples), ranks(of_ranks), width(rows) {}

  /// A rank's first row in each part; first(rank + 1) is its end.
  SLM_DEVICE std::int64_t first(int rank) const {
    const std::int64_t tiles = (width + tile - 1) / tile, row = tiles * rank / ranks * tile;
    return row < width ? row : width;
  }
  /// A rank's number of rows in each part.
  SLM_DEVICE std::int64_t count(int rank) const { return first(rank + 1) - first(rank); }
  /// The maximum of count() over all ranks.
  std::int64_t most() const {
    std::int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, count(rank));
    return most;
  }

  /// Whether all ranks' boundaries are multiples of `multiples` rows.
  bool lies_at(std::int64_t multiples) const {
    bool lies = true;
    for (int rank = 0; rank < ranks; ++rank) lies = lies && first(rank) % multiples == 0;
    return lies;
  }

  /// All rows of a rank, ascending.
  std::vector<RowRange> of(int rank) const {
    std::vector<RowRange> rows;
    for (int part = 0; count(rank) > 0 && part < parts; ++part)
      rows.push_back({part * width + first(rank), part * width + first(rank + 1)});
    return rows;
  }

  struct Place {
    int rank = 0;
    std::int64_t row = 0;  // index among the rank's rows, part by part
  };
  SLM_DEVICE Place find(std::int64_t row) const {
    const std::int64_t part = row / width;
    row %= width;
    int rank = 0;
    while (first(rank + 1) <= row) ++rank;
    return {rank, part * count(rank) + row - first(rank)};
  }
};

/// Adjacent layers per stage; if they do not divide evenly, the first stages have one more.
struct LayerCut {
  int layers = 0;
  int stages = 1;

  int first(int stage) const { return layers / stages * stage + std::min(stage, layers % stages); }
  int stage_of(int layer) const {
    int stage = 0;
    while (first(stage + 1) <= layer) ++stage;
    return stage;
  }
};

}}
