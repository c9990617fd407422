// Splitting rows of activations into blocks with the heights of kernels.
#include <catch2/catch.hpp>

#include "slm/backend/cpu/kernel_table.hpp"

using namespace slm::backend::cpu;

TEST_CASE(
    "row blocks contain each row once, in order, in as few blocks as possible, each with the height of a kernel") {
  for (const RowHeights heights :
       {RowHeights{1, 2, 3, 5, 8, 10}, RowHeights{1, 4}, RowHeights{2, 6}, RowHeights{4, 5, 8}, RowHeights::up_to(6)}) {
    for (int rows = 0; rows <= 520; ++rows) {
      const RowBlocks blocks(rows, heights);
      CAPTURE(rows, heights.widest());
      REQUIRE(blocks.blocks == (rows + heights.widest() - 1) / heights.widest());
      int first = 0, place = 0;
      for (int b = 0; b < blocks.blocks; ++b) {
        REQUIRE(blocks.first(b) == first);
        REQUIRE(blocks.place(b) == place);
        REQUIRE(blocks.size(b) > 0);
        REQUIRE(heights.has(blocks.height(b)));
        REQUIRE(blocks.height(b) == heights.fitting(blocks.size(b)));
        first += blocks.size(b);
        place += blocks.height(b);
      }
      REQUIRE(first == rows);
      REQUIRE(blocks.places() == place);
    }
  }
}

TEST_CASE("row blocks are equal, unless the widest ones compute fewer rows") {
  const RowHeights heights{1, 2, 4, 6};
  CHECK(RowBlocks(8, heights).size(0) == 4);
  CHECK(RowBlocks(8, heights).places() == 8);
  CHECK(RowBlocks(7, heights).size(0) == 6);
  CHECK(RowBlocks(7, heights).places() == 7);
}

TEST_CASE("heights of rows of bytes become heights of rows of two bytes") {
  const RowHeights heights = RowHeights{1, 2, 5, 6, 10}.divided(2, 8);
  CHECK(heights.has(1));
  CHECK(heights.has(3));
  CHECK_FALSE(heights.has(2));
  CHECK(heights.widest() == 3);
}
