// The packed order of four-bit weights: positions, and lossless conversion from any layout.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "slm/backend/cpu/cpu.hpp"
#include "support/errors.hpp"
#include "support/int4_layers.hpp"
#include "support/random_layer.hpp"

using namespace slm;
using namespace slm::testing;
using backend::Cpu;
using backend::ThreadPool;
using backend::cpu::CodeMatrix;

namespace {

CodeMatrix matrix_of(const std::vector<LinearSource>& sources, int threads = 1) {
  ThreadPool pool(threads);
  REQUIRE(CodeMatrix::can_hold(sources));
  return CodeMatrix::stack(sources, pool);
}

std::vector<float> dequantized(const CodeMatrix& matrix) {
  std::vector<float> weights(static_cast<std::size_t>(matrix.out * matrix.in));
  for (std::int64_t n = 0; n < matrix.out; ++n) matrix.dequantize(n, weights.data() + n * matrix.in);
  return weights;
}

const CodeTiles& tiles_of(const CodeMatrix& matrix) { return matrix.segments.front().tiles; }

const Int4Packing rows_layout{.layout = Int4Layout::packed_rows};

}  // namespace

TEST_CASE("a line holds eight inputs of sixteen outputs") {
  Int4Rows rows = random_rows(16, 32, 32, 1);
  for (int n = 0; n < 16; ++n) {
    for (int k = 0; k < 32; ++k)
      rows.codes[static_cast<std::size_t>(n * 32 + k)] = static_cast<std::uint8_t>((n + k) % 16);
  }
  const PackedLayer packed(rows, rows_layout);
  const CodeMatrix matrix = matrix_of({packed.layer});
  const CodeTiles& tiles = tiles_of(matrix);
  CHECK(tiles.block == 32);
  CHECK(tiles.lines_offset() == 64);  // 16 scales of 2 bytes and 16 zero points, up to a whole line
  CHECK(tiles.tile_bytes() == 64 + 4 * 64);
  CHECK(matrix.bytes() == tiles.tile_bytes());
  const std::byte* lines = tiles.tile(0) + tiles.lines_offset();
  for (int n = 0; n < 16; ++n) {
    for (int k = 0; k < 32; ++k) {
      const int byte = static_cast<int>(lines[k / 8 * 64 + n * 4 + k % 4]);
      CHECK((k % 8 < 4 ? byte & 15 : byte >> 4) == (n + k) % 16);
    }
    CHECK(static_cast<int>(tiles.tile(0)[tiles.zeros_offset() + n]) == rows.zeros[static_cast<std::size_t>(n)]);
  }
}

TEST_CASE("every layout gives its weights, bit for bit, for any number of threads") {
  for (const Int4Layout layout : all_layouts) {
    for (const auto& [out, in, group] : {std::tuple{128, 128, 32}, {264, 256, 128}, {8, 64, 64}, {16, 192, 192}}) {
      const Int4Rows rows = random_rows(out, in, group, 3);
      const PackedLayer packed(rows, Int4Packing{.layout = layout});
      const std::vector<float> expected = weights_of(packed.layer);
      CAPTURE(static_cast<int>(layout), out, in, group);
      CHECK(dequantized(matrix_of({packed.layer})) == expected);
      CHECK(dequantized(matrix_of({packed.layer}, 3)) == expected);
    }
  }
}

TEST_CASE("rows that end inside a tile or a block") {
  for (const auto& [out, in] : {std::pair{1, 8}, {7, 40}, {17, 100}, {100, 1000}, {33, 31}}) {
    const PackedLayer packed(random_rows(out, in, in, 4), rows_layout);  // one group of any length
    const CodeMatrix matrix = matrix_of({packed.layer});
    CAPTURE(out, in);
    CHECK(matrix.out == out);
    CHECK(dequantized(matrix) == weights_of(packed.layer));
  }
}

TEST_CASE("stacked layers are one matrix with the smallest group") {
  const PackedLayer q(random_rows(24, 256, 128, 5), rows_layout), k(random_rows(8, 256, 64, 6), rows_layout),
      v(random_rows(8, 256, 256, 7), rows_layout);
  const CodeMatrix matrix = matrix_of({q.layer, k.layer, v.layer});
  CHECK(matrix.out == 40);
  CHECK(tiles_of(matrix).block == 64);
  std::vector<float> expected = weights_of(q.layer);
  for (const PackedLayer* next : {&k, &v}) {
    const std::vector<float> more = weights_of(next->layer);
    expected.insert(expected.end(), more.begin(), more.end());
  }
  CHECK(dequantized(matrix) == expected);
}

TEST_CASE("the block of a group") {
  CHECK(int4_block(128, 4096) == 128);
  CHECK(int4_block(1024, 4096) == 128);
  CHECK(int4_block(64, 576) == 64);
  CHECK(int4_block(192, 576) == 64);
  CHECK(int4_block(32, 96) == 32);
  CHECK(int4_block(100, 100) == 32);  // a whole row
  CHECK(int4_block(100, 200) == 0);
  CHECK(int4_block(16, 64) == 0);
}

TEST_CASE("scales outside the range of F16 stay F32") {
  Int4Rows rows = random_rows(16, 64, 32, 8);
  for (float& scale : rows.scales) scale = to_float(from_float<bfloat16_t>(scale));
  const PackedLayer close(rows, Int4Packing{.layout = Int4Layout::packed_rows, .scale_dtype = DType::bf16});
  rows.scales[5] = 0x1.02p-30f;  // a bfloat16, far below F16's smallest
  const PackedLayer tiny(rows, Int4Packing{.layout = Int4Layout::packed_rows, .scale_dtype = DType::bf16});
  rows.scales[5] = 0.1f;
  const PackedLayer full(rows, Int4Packing{.layout = Int4Layout::packed_rows, .scale_dtype = DType::f32});
  CHECK(tiles_of(matrix_of({close.layer})).half_scales);
  CHECK_FALSE(tiles_of(matrix_of({tiny.layer})).half_scales);
  CHECK_FALSE(tiles_of(matrix_of({full.layer})).half_scales);
  for (const PackedLayer* layer : {&close, &tiny, &full}) {
    CHECK(dequantized(matrix_of({layer->layer})) == weights_of(layer->layer));
  }
}

TEST_CASE("weights without a packed order become floating point; floating-point weights stay") {
  Cpu device{1};
  const PackedLayer odd(random_rows(16, 96, 48, 9), rows_layout), even(random_rows(16, 96, 32, 9), rows_layout);
  RandomTensor<Bf16> dense(16, 96, 10);
  RandomTensor<Fp16> half(16, 96, 11);
  const auto kind = [&](const std::vector<LinearSource>& sources) {
    const auto matrix = device.pack<AwqInt4<>>(sources);
    CHECK(matrix.out == 16 * static_cast<int>(sources.size()));
    CHECK(matrix.in == 96);
    CHECK(matrix.bytes() > 0);
    return matrix.visit([]<class M>(const M&) -> std::string {
      if constexpr (std::is_same_v<M, CodeMatrix>) {
        return "int4";
      } else {
        return std::string(std::is_same_v<M, DenseMatrix<Fp32>>   ? "f32"
                           : std::is_same_v<M, DenseMatrix<Bf16>> ? "bf16"
                                                                  : "f16");
      }
    });
  };
  CHECK(kind({even.layer, even.layer}) == "int4");
  CHECK(kind({odd.layer}) == "f32");
  CHECK(kind({even.layer, dense.tensor}) == "f32");
  CHECK(kind({dense.tensor, dense.tensor}) == "bf16");
  CHECK(kind({half.tensor}) == "f16");
  CHECK(kind({half.tensor, dense.tensor}) == "f32");
}

TEST_CASE("floating-point weights are copied on request, and always in a four-bit model") {
  RandomTensor<Bf16> first(16, 96, 10), second(8, 96, 11);
  const std::vector<Tensor> tensors{first.tensor, second.tensor};
  const std::vector<LinearSource> sources{first.tensor, second.tensor};
  Cpu mapped{1}, copying{backend::CpuOptions{.threads = 1, .copy_weights = true}};
  const auto in_place = mapped.pack<Bf16>(tensors), copied = copying.pack<Bf16>(tensors);
  CHECK(in_place.row(16) == reinterpret_cast<const bfloat16_t*>(second.tensor.bytes));
  const auto check = [&](const DenseMatrix<Bf16>& matrix) {
    CHECK(matrix.out == 24);
    REQUIRE(matrix.segments.size() == 1);
    CHECK(reinterpret_cast<std::uintptr_t>(matrix.row(0)) % 64 == 0);
    for (std::int64_t r = 0; r < 24; ++r) {
      CHECK(matrix.row(r) != in_place.row(r));
      CHECK(std::memcmp(matrix.row(r), in_place.row(r), 96 * sizeof(bfloat16_t)) == 0);
    }
  };
  check(copied);
  const auto check_mixed = [&](const Cpu::Mixed& mixed, bool is_copy) {
    mixed.visit([&]<class M>(const M& matrix) {
      if constexpr (std::is_same_v<M, DenseMatrix<Bf16>>) {
        if (is_copy) return check(matrix);
        CHECK(matrix.row(16) == in_place.row(16));
      } else {
        FAIL("not bf16");
      }
    });
  };
  check_mixed(mapped.pack<AwqInt4<>>(sources), true);
  check_mixed(mapped.pack<AnyFormat>(sources), false);
  Cpu asked = mapped;
  asked.copy_weights();
  check_mixed(asked.pack<AnyFormat>(sources), true);
  check_mixed(mapped.pack<AnyFormat>(sources), false);
}

TEST_CASE("an embedding in four bits can be looked up") {
  const PackedLayer packed(random_rows(24, 64, 32, 12), rows_layout);
  const std::vector<LinearSource> sources{packed.layer};
  Cpu device{1};
  const auto table = device.pack<AwqInt4<>>(sources);
  const std::vector<Token> tokens{3, 23, 0};
  std::vector<float> x(3 * 64);
  device.begin(TestPlan(tokens)).embed(table, View<float, 2>{x.data(), 3, 64});
  const std::vector<float> weights = weights_of(packed.layer);
  for (std::size_t i = 0; i < x.size(); ++i) {
    REQUIRE(x[i] == weights[static_cast<std::size_t>(tokens[i / 64]) * 64 + i % 64]);
  }
}

TEST_CASE("memory of packed weights is zeroed, on separate cache lines, and independent of other matrices") {
  const auto is_zero = [](const std::shared_ptr<std::byte>& bytes, std::size_t size) {
    return std::all_of(bytes.get(), bytes.get() + size, [](std::byte b) { return b == std::byte{0}; });
  };
  constexpr std::size_t size = 1000, more_than_shared = (std::size_t{64} << 20) + 1;
  auto first = backend::HugePages::take(size);
  REQUIRE(is_zero(first, size));
  std::memset(first.get(), 1, size);
  const auto second = backend::HugePages::take(size);
  REQUIRE(is_zero(second, size));
  REQUIRE(reinterpret_cast<std::uintptr_t>(second.get()) % 64 == 0);
  REQUIRE((second.get() >= first.get() + size || first.get() >= second.get() + size));
  first.reset();
  std::memset(second.get(), 2, size);
  const auto large = backend::HugePages::take(more_than_shared);
  large.get()[more_than_shared - 1] = std::byte{3};
  REQUIRE(is_zero(backend::HugePages::take(size), size));
  REQUIRE(second.get()[size - 1] == std::byte{2});
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t impossible : {most, most - 100, most / 2, std::size_t{1} << 60}) {
    REQUIRE(error_id([&] { backend::HugePages::take(impossible); }) == "backend.out-of-memory");
  }
  REQUIRE(is_zero(backend::HugePages::take(size), size));
}
