// Matrices in GGUF's blocks on the CPU: the tiles contain the blocks' values, products are within the rounding error of
// activations, and rows are independent.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/block_matrix.hpp"
#include "support/errors.hpp"
#include "support/int4_products.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;

namespace {

bool same_bits(const float* a, const float* b, std::size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

std::vector<float> dequantized(const CodeMatrix& matrix) {
  std::vector<float> weights(static_cast<std::size_t>(matrix.out * matrix.in));
  for (std::int64_t n = 0; n < matrix.out; ++n) matrix.dequantize(n, weights.data() + n * matrix.in);
  return weights;
}

/// The largest |found - exact| / bound of all products. An activation has an error of half a step, the largest of its
/// block over 32639 or 127; fp32 rounds two sums per block, each by 2^-24 of its largest possible value.
double worst_share_of_bound(const std::vector<float>& found, const std::vector<float>& weights,
                            const std::vector<float>& x, int rows, const CodeTiles& tiles, int terms) {
  const auto in = static_cast<std::size_t>(tiles.in), out = weights.size() / in;
  const auto block = static_cast<std::size_t>(tiles.block);
  double worst = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    for (std::size_t n = 0; n < out; ++n) {
      double exact = 0, bound = 0, sizes = 0;
      for (std::size_t first = 0; first < in; first += block) {
        double largest = 0, sum_of_weights = 0, most_code = 0;
        for (std::size_t k = first; k < first + block; ++k) {
          const auto value = static_cast<double>(x[r * in + k]), weight = static_cast<double>(weights[n * in + k]);
          exact += value * weight;
          largest = std::max(largest, std::abs(value));
          sum_of_weights += std::abs(weight);
          most_code = std::max(most_code, std::abs(weight));
        }
        bound += sum_of_weights * largest / (terms == 2 ? 32639 : 127) * 0.5001;
        // Codes without their zero, and minima, may be several times as large as the resulting weights.
        sizes += 16 * most_code * largest * static_cast<double>(block);
      }
      bound += sizes * 0x1p-24 * 2 * static_cast<double>(in / block);
      worst = std::max(worst, std::abs(static_cast<double>(found[r * out + n]) - exact) / bound);
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("tiles of every block type contain the values of its blocks, bit for bit, for any number of threads") {
  for (const DType type : block_types) {
    for (const int out : {1, 16, 17, 300}) {
      const BlockMatrix blocks(type, out, 512, 1);
      CAPTURE(name_of(type), out);
      CHECK(dequantized(blocks.packed()) == blocks.weights);
      CHECK(dequantized(blocks.packed(3)) == blocks.weights);
    }
  }
}

TEST_CASE("blocks of types with equally wide codes are equally long, except with 8 bits") {
  for (const DType type : block_types) {
    const CodeTiles tiles = narrow_code_tiles_of(type);
    const int known = backend::cpu::gguf_code_block(tiles.bits);
    CAPTURE(name_of(type));
    CHECK((tiles.block == known || (known == 0 && tiles.bits == 8)));
  }
}

TEST_CASE("tiles have the bits of the file's blocks, or few more") {
  const auto bits = [](DType type) {
    const BlockMatrix blocks(type, 64, 1024, 1);
    return static_cast<double>(blocks.packed().bytes()) * 8 / (64 * 1024);
  };
  CHECK(bits(DType::q4_0) == 4.5);
  CHECK(bits(DType::q4_1) == 5);
  CHECK(bits(DType::q8_0) == 8.5);
  CHECK(bits(DType::q4_k) == 4.625);
  CHECK(bits(DType::q5_0) == 5.5);
  CHECK(bits(DType::q5_1) == 6);
  CHECK(bits(DType::q5_k) == 5.625);
  CHECK(bits(DType::q6_k) == 6.5625);
}

TEST_CASE("products with blocks differ from those of their values by the rounding of activations at most") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 40, 512, 2);
    const CodeMatrix matrix = blocks.packed();
    const CodeTiles& tiles = matrix.segments.front().tiles;
    std::vector<float> x = gaussian(17 * 512, 3);
    for (const std::size_t k : {5u, 300u, 700u}) x[k] *= 50;  // large values affect only their own blocks
    for (const int terms : {1, 2}) {
      for (const int rows : {1, 2, 3, 5, 8, 9, 17}) {
        const std::vector<float> found = int4_product(set, terms, tiles, x.data(), rows);
        CAPTURE(static_cast<int>(set), name_of(type), terms, rows);
        CHECK(worst_share_of_bound(found, blocks.weights, x, rows, tiles, terms) <= 1);
      }
    }
  }
}

TEST_CASE("the bound detects minima of the adjacent block, and factors or zeros of another one") {
  const auto share_after = [](DType type, auto&& spoil) {
    const BlockMatrix blocks(type, 16, 512, 4);
    const CodeMatrix matrix = blocks.packed();
    CodeTiles tiles = matrix.segments.front().tiles;
    std::vector<std::byte> bytes(tiles.bytes, tiles.bytes + tiles.total_bytes());
    tiles.bytes = bytes.data();
    spoil(bytes.data(), tiles);
    const std::vector<float> x = gaussian(512, 5);
    const std::vector<float> found = int4_product(DotSet::portable, 2, tiles, x.data(), 1);
    return worst_share_of_bound(found, blocks.weights, x, 1, tiles, 2);
  };
  const auto rotate = [](std::byte* at, std::int64_t by, std::int64_t size) { std::rotate(at, at + by, at + size); };
  CHECK(share_after(DType::q4_1, [](std::byte*, const CodeTiles&) {}) <= 1);
  CHECK(share_after(DType::q4_1, [&](std::byte* tile, const CodeTiles& tiles) {
          rotate(tile + tiles.minima_offset(), 32, 32 * tiles.blocks());
        }) > 3);
  CHECK(share_after(DType::q4_k, [&](std::byte* tile, const CodeTiles& tiles) {
          rotate(tile + tiles.minimum_factors_offset(), 16, 16 * tiles.blocks());
        }) > 3);
  CHECK(share_after(DType::q6_k, [&](std::byte* tile, const CodeTiles& tiles) {
          rotate(tile + tiles.factors_offset(), 16, 16 * tiles.blocks());
        }) > 3);
  CHECK(share_after(DType::q8_0, [](std::byte*, CodeTiles& tiles) { tiles.zero = 127; }) > 3);
}

TEST_CASE("a row's product with blocks does not depend on other rows, nor on the split of outputs") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 100, 512, 6);
    const CodeMatrix matrix = blocks.packed();
    const CodeTiles& tiles = matrix.segments.front().tiles;
    const std::vector<float> x = gaussian(70 * 512, 7);
    for (const int terms : {1, 2}) {
      std::vector<float> alone;
      for (int r = 0; r < 70; ++r) {
        const std::vector<float> row = int4_product(set, terms, tiles, x.data() + r * 512, 1);
        alone.insert(alone.end(), row.begin(), row.end());
      }
      for (const int rows : {2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 70}) {
        for (const int slice : {128, 37}) {
          const std::vector<float> together = int4_product(set, terms, tiles, x.data(), rows, slice);
          CAPTURE(static_cast<int>(set), name_of(type), terms, rows, slice);
          REQUIRE(same_bits(together.data(), alone.data(), together.size()));
        }
      }
    }
  }
}

TEST_CASE("all sets that fuse multiply and add give the same bits for blocks") {
  const std::vector<DotSet> sets = available_dot_sets();
  if (sets.size() < 3) SUCCEED("fewer than two such sets are here");
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 40, 512, 8);
    const CodeMatrix matrix = blocks.packed();
    const CodeTiles& tiles = matrix.segments.front().tiles;
    const std::vector<float> x = gaussian(13 * 512, 9);
    for (std::size_t i = 2; i < sets.size(); ++i) {  // after portable and AVX2
      for (const int terms : {1, 2}) {
        for (const int rows : {1, 3, 8, 13}) {
          const std::vector<float> first = int4_product(sets[1], terms, tiles, x.data(), rows);
          const std::vector<float> other = int4_product(sets[i], terms, tiles, x.data(), rows);
          CAPTURE(static_cast<int>(sets[i]), name_of(type), terms, rows);
          REQUIRE(same_bits(first.data(), other.data(), first.size()));
        }
      }
    }
  }
}

TEST_CASE("NaN and infinity pass through products with blocks, in their own row only") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 20, 256, 10);
    const CodeMatrix matrix = blocks.packed();
    const CodeTiles& tiles = matrix.segments.front().tiles;
    const std::vector<float> clean = gaussian(3 * 256, 11);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x = clean;
      x[256 + 77] = bad;
      for (const int terms : {1, 2}) {
        const std::vector<float> found = int4_product(set, terms, tiles, x.data(), 3);
        const std::vector<float> other = int4_product(set, terms, tiles, clean.data(), 3);
        CAPTURE(static_cast<int>(set), name_of(type), terms);
        CHECK(std::all_of(&found[20], &found[40], [](float value) { return std::isnan(value); }));
        CHECK(same_bits(&found[0], &other[0], 20));
        CHECK(same_bits(&found[40], &other[40], 20));
      }
    }
  }
}

TEST_CASE("products with blocks stay inside all arrays") {
  const DotSet set = GENERATE(from_range(available_dot_sets()));
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 17, 256, 12);
    const CodeMatrix matrix = blocks.packed();
    const CodeTiles& tiles = matrix.segments.front().tiles;
    for (const int terms : {1, 2}) {
      for (const int rows : {1, 5, 20}) {
        const std::vector<float> x = gaussian(static_cast<std::size_t>(rows) * 256, 13);
        const std::vector<float> found = fenced_int4_product(set, terms, tiles, x, rows);
        const std::vector<float> expected = int4_product(set, terms, tiles, x.data(), rows);
        CAPTURE(static_cast<int>(set), name_of(type), terms, rows);
        REQUIRE(same_bits(found.data(), expected.data(), expected.size()));
      }
    }
  }
}

TEST_CASE("stacked blocks of different types are one matrix of the same products") {
  const auto isa = GENERATE(backend::Isa::portable, backend::Isa::avx2, backend::Isa::automatic);
  if (!backend::is_available(isa)) return;
  Cpu device({.threads = 2, .isa = isa});
  const BlockMatrix q(DType::q4_k, 48, 256, 14), k(DType::q4_k, 24, 256, 15), v(DType::q6_k, 24, 256, 16),
      other(DType::q8_0, 40, 256, 17), wide(DType::q5_k, 32, 256, 19);  // as q4_k, except for the width of the codes
  const auto pack = [&](const std::vector<LinearSource>& sources) { return device.pack<AwqInt4<>>(sources); };
  const auto product = [&](const auto& matrix, int rows) {
    const std::vector<float> x = gaussian(12 * 256, 18);
    std::vector<float> y(static_cast<std::size_t>(rows * matrix.out));
    device.begin(StepPlan{})
        .project(View<const float, 2>{x.data(), rows, 256}, Linear{matrix}, View<float, 2>{y.data(), rows, matrix.out});
    return y;
  };
  const auto stacked = pack({q.tensor, k.tensor, v.tensor, other.tensor, wide.tensor});
  CHECK(stacked.out == 168);
  stacked.visit([]<class Matrix>(const Matrix& matrix) {
    if constexpr (std::is_same_v<Matrix, CodeMatrix>) {
      CHECK(matrix.segments.size() == 4);
      CHECK(matrix.packings.size() == 4);
    } else {
      FAIL("not in tiles");
    }
  });
  for (const int rows : {1, 2, 3, 4, 5, 6, 8, 12}) {
    const std::vector<float> together = product(stacked, rows);
    std::ptrdiff_t first = 0;
    for (const BlockMatrix* part : {&q, &k, &v, &other, &wide}) {
      const auto width = static_cast<std::ptrdiff_t>(part->tensor.shape[0]);
      const std::vector<float> alone = product(pack({part->tensor}), rows);
      for (std::ptrdiff_t r = 0; r < rows; ++r) {
        CHECK(
            std::equal(alone.begin() + r * width, alone.begin() + (r + 1) * width, together.begin() + r * 168 + first));
      }
      first += width;
    }
  }
}

TEST_CASE("rows of a table in blocks are read as stored") {
  Cpu device{1};
  for (const DType type : block_types) {
    const BlockMatrix blocks(type, 24, 256, 19);
    const auto table = device.pack<AwqInt4<>>(std::vector<LinearSource>{blocks.tensor});
    const std::vector<Token> tokens{3, 23, 0};
    std::vector<float> x(3 * 256);
    device.begin(TestPlan(tokens)).embed(table, View<float, 2>{x.data(), 3, 256});
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(x[i] == blocks.weights[static_cast<std::size_t>(tokens[i / 256]) * 256 + i % 256]);
    }
  }
}

TEST_CASE("a block without a finite scale is rejected when a matrix is packed, on any thread") {
  for (const int threads : {1, 3}) {
    for (const DType type : block_types) {
      BlockMatrix blocks(type, 300, 256, 20);
      const std::size_t last = blocks.bytes.size() - bytes_of(type), infinite = last + scale_place(type);
      if (type == DType::mxfp4) {
        blocks.bytes[last] = std::byte{255};
      } else if (type == DType::iq1_m) {  // in parts
        for (const std::size_t part : {49u, 51u, 53u, 55u}) blocks.bytes[last + part] = std::byte{0xf0};
      } else {
        blocks.bytes[infinite] = std::byte{0};
        blocks.bytes[infinite + 1] = std::byte{0x7c};
      }
      CAPTURE(name_of(type), threads);
      CHECK(error_id([&] { blocks.packed(threads); }) == "gguf.non-finite");
    }
  }
}
