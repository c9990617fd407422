// RowCut: which rows of a weight each rank holds. LayerCut: which layers each stage of a pipeline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "slm/core/macros.hpp"

namespace slm { inline namespace v0_1 {

/// Neighbouring rows.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t last = 0;  // behind them

  std::int64_t count() const { return last - first; }
};

/// Rows are cut at multiples of the kernels' tile, and in each half of the weight alike, so that a rank that holds an
/// output of a gate holds the same one of its up. Ranks beyond the number of tiles hold nothing, as do those beyond the
/// cut's.
struct RowCut {
  static constexpr std::int64_t tile_of_kernels = 16;

  std::int64_t tile = tile_of_kernels;
  int ranks = 1;
  int parts = 1;           // 2, or 1 where the number of rows is odd
  std::int64_t width = 0;  // rows of a part

  RowCut() = default;
  RowCut(std::int64_t rows, int of_ranks)
      : ranks(of_ranks), parts(rows % 2 == 0 ? 2 : 1), width(rows / (rows % 2 == 0 ? 2 : 1)) {}
  /// In one part, at multiples of anything.
  RowCut(std::int64_t rows, int of_ranks, std::int64_t multiples) : tile(multiples), ranks(of_ranks), width(rows) {}

  /// The first row of a rank in each part; that of rank + 1 is where it ends.
  SLM_DEVICE std::int64_t first(int rank) const {
    const std::int64_t tiles = (width + tile - 1) / tile, row = tiles * rank / ranks * tile;
    return row < width ? row : width;
  }
  /// Its rows in each part.
  SLM_DEVICE std::int64_t count(int rank) const { return first(rank + 1) - first(rank); }
  /// That any rank has in each part.
  std::int64_t most() const {
    std::int64_t most = 0;
    for (int rank = 0; rank < ranks; ++rank) most = std::max(most, count(rank));
    return most;
  }

  /// Whether ranks begin and end at multiples of some rows.
  bool lies_at(std::int64_t multiples) const {
    bool lies = true;
    for (int rank = 0; rank < ranks; ++rank) lies = lies && first(rank) % multiples == 0;
    return lies;
  }

  /// All of a rank, ascending.
  std::vector<RowRange> of(int rank) const {
    std::vector<RowRange> rows;
    for (int part = 0; count(rank) > 0 && part < parts; ++part)
      rows.push_back({part * width + first(rank), part * width + first(rank + 1)});
    return rows;
  }

  struct Place {
    int rank = 0;
    std::int64_t row = 0;  // among those of the rank, part by part
  };
  SLM_DEVICE Place find(std::int64_t row) const {
    const std::int64_t part = row / width;
    row %= width;
    int rank = 0;
    while (first(rank + 1) <= row) ++rank;
    return {rank, part * count(rank) + row - first(rank)};
  }
};

/// Neighbouring layers; the first stages have one more where they do not divide.
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
