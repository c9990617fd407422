// RowCut: which rows of a weight each rank holds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace slm::inline v0_1 {

/// Rows are cut at multiples of the kernels' tile, and in each half of the weight alike, so that a rank that holds an
/// output of a gate holds the same one of its up. Ranks beyond the number of tiles hold nothing.
struct RowCut {
  static constexpr std::int64_t tile = 16;

  int ranks = 1;
  int parts = 1;           // 2, or 1 where the number of rows is odd
  std::int64_t width = 0;  // rows of a part

  RowCut() = default;
  RowCut(std::int64_t rows, int of_ranks)
      : ranks(of_ranks), parts(rows % 2 == 0 ? 2 : 1), width(rows / (rows % 2 == 0 ? 2 : 1)) {}

  /// The first row of a rank in each part; that of rank + 1 is where it ends.
  std::int64_t first(int rank) const {
    const std::int64_t tiles = (width + tile - 1) / tile;
    return std::min(width, tiles * rank / ranks * tile);
  }
  /// Its rows in each part.
  std::int64_t count(int rank) const { return first(rank + 1) - first(rank); }

  struct Place {
    int rank = 0;
    std::int64_t row = 0;  // among those of the rank, part by part
  };
  Place find(std::int64_t row) const {
    const std::int64_t part = row / width;
    row %= width;
    int rank = 0;
    while (first(rank + 1) <= row) ++rank;
    return {rank, part * count(rank) + row - first(rank)};
  }
};

}  // namespace slm
