// Every published layout, compared with a worked example, with the formula of its index map and with the others.
#include <catch2/catch.hpp>
#include <cstring>

#include "slm/formats/finite.hpp"
#include "slm/formats/int4_check.hpp"
#include "support/int4_layers.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

/// K = N = G = 8: q[k][n] = (3k + 5n) mod 16, z[n] = n + 4, s[n] = 2^-((n mod 4) + 3).
Int4Rows worked_example() {
  Int4Rows rows{.rows = 8, .in = 8, .group = 8, .codes = {}, .zeros = {}, .scales = {}};
  for (int n = 0; n < 8; ++n) {
    for (int k = 0; k < 8; ++k) rows.codes.push_back(static_cast<std::uint8_t>((3 * k + 5 * n) % 16));
    rows.zeros.push_back(static_cast<std::uint8_t>(n + 4));
    rows.scales.push_back(std::ldexp(1.0f, -(n % 4 + 3)));
  }
  return rows;
}

/// Its weights, transposed as computed by hand: [k][n].
constexpr float worked_weights[8][8] = {{-0.5, 0, 0.125, 0.125, -0.5, 0, 0.125, -0.125},
                                        {-0.125, 0.1875, 0.21875, -0.078125, -0.125, 0.1875, -0.28125, -0.078125},
                                        {0.25, 0.375, -0.1875, -0.03125, 0.25, 0.375, -0.1875, -0.03125},
                                        {0.625, 0.5625, -0.09375, 0.015625, 0.625, -0.4375, -0.09375, 0.015625},
                                        {1.0, -0.25, 0, 0.0625, -1.0, -0.25, 0, 0.0625},
                                        {1.375, -0.0625, 0.09375, 0.109375, -0.625, -0.0625, 0.09375, -0.140625},
                                        {-0.25, 0.125, 0.1875, -0.09375, -0.25, 0.125, -0.3125, -0.09375},
                                        {0.125, 0.3125, 0.28125, -0.046875, 0.125, 0.3125, -0.21875, -0.046875}};

const std::vector<std::uint32_t> gemm_words{0x39f5e4a0, 0x6c2817d3, 0x9f5b4a06, 0xc28e7d39,
                                            0xf5b1a06c, 0x28e4d39f, 0x5b1706c2, 0x8e4a39f5};
const std::vector<std::uint32_t> row_words{0x52fc9630, 0xa741eb85, 0xfc9630da, 0x41eb852f,
                                           0x9630da74, 0xeb852fc9, 0x30da741e, 0x852fc963};
const std::vector<std::uint32_t> order_words{0x3e94fa50, 0x61c72d83, 0x94fa50b6, 0xc72d83e9,
                                             0xfa50b61c, 0x2d83e94f, 0x50b61c72, 0x83e94fa5};

template <class Word>
std::vector<Word> words_of(const Tensor& tensor) {
  std::vector<Word> words(tensor.size_bytes / sizeof(Word));
  std::memcpy(words.data(), tensor.bytes, tensor.size_bytes);
  return words;
}

std::vector<float> floats_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

bool same(const Int4Rows& a, const Int4Rows& b) {
  return a.rows == b.rows && a.in == b.in && a.group == b.group && a.codes == b.codes && a.zeros == b.zeros &&
         a.scales == b.scales;
}

/// A layer in this layout, with a size that every layout supports.
void check_worked_weights(const Int4Tensor& layer) {
  const std::vector<float> weights = weights_of(layer);
  for (std::size_t n = 0; n < 8; ++n) {
    for (std::size_t k = 0; k < 8; ++k) CHECK(weights[n * 8 + k] == worked_weights[k][n]);
  }
  // A product whose every partial sum is exact.
  const float x[8] = {1, -2, 3, -4, 0.5, 0.25, -1, 2};
  const float expected[8] = {-0.65625f, -1.140625f, -0.1015625f, 0.18359375f,
                             -2.15625f, 2.859375f,  0.3984375f,  -0.12890625f};
  for (std::size_t n = 0; n < 8; ++n) {
    float sum = 0;
    for (std::size_t k = 0; k < 8; ++k) sum += x[k] * weights[n * 8 + k];
    CHECK(sum == expected[n]);
  }
}

}  // namespace

TEST_CASE("the worked example in AutoAWQ gemm") {
  const PackedLayer packed(worked_example(), {});
  CHECK(packed.tensors[0].name == "layer.qweight");
  CHECK(packed.tensors[0].shape == std::vector<std::int64_t>{8, 1});
  CHECK(words_of<std::uint32_t>(packed.tensors[0]) == gemm_words);
  CHECK(packed.tensors[2].name == "layer.qzeros");
  CHECK(words_of<std::uint32_t>(packed.tensors[2]) == std::vector<std::uint32_t>{0xb975a864});
  CHECK(packed.tensors[1].dtype == DType::f16);
  CHECK(packed.tensors[1].shape == std::vector<std::int64_t>{1, 8});
  CHECK(floats_of(packed.tensors[1]) == worked_example().scales);
  check_worked_weights(packed.layer);
}

TEST_CASE("the worked example in AutoAWQ gemv") {
  const PackedLayer packed(worked_example(), {.layout = Int4Layout::awq_gemv});
  CHECK(words_of<std::uint32_t>(packed.tensors[0]) == row_words);
  CHECK(words_of<std::uint32_t>(packed.tensors[2]) == std::vector<std::uint32_t>{4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(packed.tensors[1].shape == std::vector<std::int64_t>{8, 8});
  const std::vector<float> scales = floats_of(packed.tensors[1]);
  for (std::size_t n = 0; n < 8; ++n) {
    CHECK(scales[8 * n] == worked_example().scales[n]);
    for (std::size_t pad = 1; pad < 8; ++pad) CHECK(scales[8 * n + pad] == 0);
  }
  check_worked_weights(packed.layer);
}

TEST_CASE("the worked example in compressed-tensors") {
  const PackedLayer packed(worked_example(), {.layout = Int4Layout::packed_rows, .scale_dtype = DType::bf16});
  CHECK(packed.tensors[0].name == "layer.weight_packed");
  CHECK(words_of<std::uint32_t>(packed.tensors[0]) == row_words);
  CHECK(packed.tensors[1].name == "layer.weight_scale");
  CHECK(packed.tensors[1].shape == std::vector<std::int64_t>{8, 1});
  CHECK(packed.tensors[2].name == "layer.weight_zero_point");
  CHECK(packed.tensors[2].shape == std::vector<std::int64_t>{1, 1});
  CHECK(words_of<std::uint32_t>(packed.tensors[2]) == std::vector<std::uint32_t>{0xba987654});
  CHECK(packed.tensors[3].name == "layer.weight_shape");
  CHECK(words_of<std::int64_t>(packed.tensors[3]) == std::vector<std::int64_t>{8, 8});
  check_worked_weights(packed.layer);
}

TEST_CASE("the worked example in both orders of Quark, and as two's complement") {
  const PackedLayer order(worked_example(), {.layout = Int4Layout::quark_order});
  CHECK(order.tensors[0].name == "layer.weight");
  CHECK(words_of<std::uint32_t>(order.tensors[0]) == order_words);
  CHECK(words_of<std::uint32_t>(order.tensors[2]) == std::vector<std::uint32_t>{0xba987654});
  check_worked_weights(order.layer);

  const PackedLayer reorder(worked_example(), {.layout = Int4Layout::quark_reorder});
  CHECK(words_of<std::uint32_t>(reorder.tensors[0]) == gemm_words);
  CHECK(words_of<std::uint32_t>(reorder.tensors[2]) == std::vector<std::uint32_t>{0xb975a864});
  check_worked_weights(reorder.layer);

  const PackedLayer complement(worked_example(), {.layout = Int4Layout::quark_reorder, .twos_complement = true});
  CHECK(words_of<std::uint32_t>(complement.tensors[0])[0] == (gemm_words[0] ^ 0x88888888u));
  check_worked_weights(complement.layer);
}

TEST_CASE("the worked example in GPTQ, with both forms of zero points") {
  const PackedLayer second(worked_example(), {.layout = Int4Layout::gptq});
  CHECK(second.tensors[0].name == "layer.qweight");
  CHECK(second.tensors[0].shape == std::vector<std::int64_t>{1, 8});
  CHECK(words_of<std::uint32_t>(second.tensors[0]) == row_words);
  CHECK(second.tensors[2].name == "layer.qzeros");
  CHECK(words_of<std::uint32_t>(second.tensors[2]) == std::vector<std::uint32_t>{0xba987654});
  check_worked_weights(second.layer);

  const PackedLayer first(worked_example(), {.layout = Int4Layout::gptq, .zeros_less_one = true});
  CHECK(words_of<std::uint32_t>(first.tensors[2]) == std::vector<std::uint32_t>{0xa9876543});
  check_worked_weights(first.layer);
}

TEST_CASE("a worked example in gemv_fast") {  // its layout needs 64 inputs
  Int4Rows rows{
      .rows = 4, .in = 64, .group = 64, .codes = {}, .zeros = {5, 0, 15, 8}, .scales = {0.5f, 0.25f, 0.1f, 0}};
  rows.scales[2] = to_float(from_float<half_t>(0.1f));
  for (int n = 0; n < 4; ++n) {
    for (int k = 0; k < 64; ++k) rows.codes.push_back(static_cast<std::uint8_t>((7 * k + 3 * n + k / 8) % 16));
  }
  const PackedLayer packed(rows, {.layout = Int4Layout::awq_gemv_fast});
  CHECK(packed.tensors[0].dtype == DType::i16);
  CHECK(packed.tensors[0].shape == std::vector<std::int64_t>{1, 64});
  const auto words = words_of<std::uint16_t>(packed.tensors[0]);
  const std::vector<std::uint16_t> first{0xb290, 0x2907, 0x907e, 0x07e5, 0x7e5c, 0xe5c3, 0x5c3a, 0xc3a1,
                                         0xf6d4, 0x6d4b, 0xd4b2, 0x4b29, 0xb290, 0x2907, 0x907e, 0x07e5};
  CHECK(std::vector(words.begin(), words.begin() + 16) == first);
  CHECK(words[16] == 0xe5c3);
  CHECK(words[17] == 0x5c3a);
  CHECK(words[63] == 0x907e);
  CHECK(packed.tensors[1].shape == std::vector<std::int64_t>{16, 4});  // groups of 64 are padded to sixteen
  CHECK(floats_of(packed.tensors[2])[0] == -2.5f);
  Int4Rows expected = rows;
  expected.zeros[3] = 0;  // if the scale is zero, every weight is zero and the zero point is lost
  CHECK(same(unpack(packed.layer, 0, 4), expected));
  const std::vector<float> weights = weights_of(packed.layer);
  CHECK(weights[1] == (7 - 5) * 0.5f);
  CHECK(weights[64 + 9] == ((63 + 3 + 1) % 16) * 0.25f);
  CHECK(weights[3 * 64 + 5] == 0);
}

TEST_CASE("AutoAWQ's nibble order: columns 0..7 holding 0..7") {
  Int4Rows rows{.rows = 8, .in = 1, .group = 1, .codes = {0, 1, 2, 3, 4, 5, 6, 7}, .zeros = {}, .scales = {}};
  rows.zeros.assign(8, 0);
  rows.scales.assign(8, 1.0f);
  const PackedLayer gemm(rows, {});
  CHECK(words_of<std::uint32_t>(gemm.tensors[0])[0] == 0x75316420);
  const PackedLayer order(rows, {.layout = Int4Layout::quark_order});
  CHECK(words_of<std::uint32_t>(order.tensors[0])[0] == 0x76543210);
}

TEST_CASE("packing and unpacking is the identity, in every layout, size, group and part") {
  struct Size {
    std::int64_t out, in, group;
  };
  for (const Size size :
       {Size{8, 64, 32}, Size{24, 128, 64}, Size{136, 192, 64}, Size{264, 256, 128}, Size{8, 320, 320},
        Size{40, 48, 16}, Size{1, 64, 64}, Size{13, 24, 8}, Size{16, 20, 20}, Size{7, 9, 3}, Size{128, 1152, 128}}) {
    const Int4Rows rows = random_rows(size.out, size.in, size.group, static_cast<std::uint64_t>(size.out + size.in));
    for (const Int4Layout layout : all_layouts) {
      if (!misfit(layout, size.out, size.in).empty()) {
        CHECK_THROWS_WITH(PackedLayer(rows, {.layout = layout}), Catch::Contains("quant.not-packable"));
        continue;
      }
      for (const bool complement : {false, true}) {
        if (complement && layout != Int4Layout::quark_order && layout != Int4Layout::quark_reorder) continue;
        INFO(name_of(layout) << " [" << size.out << ", " << size.in << "] group " << size.group);
        const PackedLayer packed(rows, {.layout = layout, .twos_complement = complement});
        const Int4Shapes shapes = shapes_of(layout, size.out, size.in, size.group);
        CHECK(packed.layer.codes->shape == shapes.codes);
        CHECK(packed.layer.scales->shape == shapes.scales);
        CHECK(packed.layer.zeros->shape == shapes.zeros);
        CHECK_NOTHROW(check_int4(packed.layer, "here"));
        Int4Rows expected = rows;
        if (layout == Int4Layout::awq_gemv_fast) {
          for (std::size_t i = 0; i < expected.zeros.size(); ++i) {
            if (expected.scales[i] == 0) expected.zeros[i] = 0;
          }
        }
        CHECK(same(unpack(packed.layer, 0, size.out), expected));
        for (const std::int64_t first : {std::int64_t{0}, size.out / 3, size.out - 1, size.out}) {
          for (const std::int64_t count :
               {std::int64_t{0}, std::int64_t{1}, (size.out - first) / 2, size.out - first}) {
            if (first + count > size.out) continue;
            const Int4Rows part = unpack(packed.layer, first, count);
            const auto codes = expected.codes.begin() + first * size.in;
            const auto groups = expected.groups();
            REQUIRE(part.codes == std::vector(codes, codes + count * size.in));
            const auto zeros = expected.zeros.begin() + first * groups;
            REQUIRE(part.zeros == std::vector(zeros, zeros + count * groups));
            const auto scales = expected.scales.begin() + first * groups;
            REQUIRE(part.scales == std::vector(scales, scales + count * groups));
          }
        }
      }
    }
  }
}

TEST_CASE("rows in another order than the stored one, in whole and in part") {
  const Int4Rows rows = random_rows(72, 256, 64, 8);
  const auto order = std::make_shared<std::vector<std::int64_t>>();
  for (std::int64_t n = 0; n < 72; ++n) order->push_back(n / 12 % 3 * 24 + n / 36 * 12 + n % 12);
  for (const Int4Layout layout : all_layouts) {
    INFO(name_of(layout));
    const PackedLayer packed(rows, {.layout = layout});
    const Int4Rows stored = unpack(packed.layer, 0, 72);
    Int4Tensor layer = packed.layer;
    layer.order = order;
    for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 72}, {5, 40}, {71, 1}, {30, 0}}) {
      const Int4Rows part = unpack(std::get<Int4Tensor>(rows_of(LinearSource(layer), first, count)), 0, count);
      REQUIRE(part.rows == count);
      for (std::int64_t n = 0; n < count; ++n) {
        const std::int64_t from = (*order)[static_cast<std::size_t>(first + n)];
        CHECK(std::equal(part.codes.begin() + n * 256, part.codes.begin() + (n + 1) * 256,
                         stored.codes.begin() + from * 256));
        CHECK(
            std::equal(part.zeros.begin() + n * 4, part.zeros.begin() + (n + 1) * 4, stored.zeros.begin() + from * 4));
        CHECK(std::equal(part.scales.begin() + n * 4, part.scales.begin() + (n + 1) * 4,
                         stored.scales.begin() + from * 4));
      }
    }
  }
}

TEST_CASE("all layouts give the same weights, bit for bit") {
  const Int4Rows rows = random_rows(72, 256, 64, 5);
  const std::vector<float> expected = weights_of(PackedLayer(rows, {}).layer);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t group = i / 64;
    REQUIRE(expected[i] == static_cast<float>(rows.codes[i] - rows.zeros[group]) * rows.scales[group]);
  }
  for (const Int4Layout layout : all_layouts) {
    for (const DType dtype : {DType::f16, DType::f32}) {
      CHECK(weights_of(PackedLayer(rows, {.layout = layout, .scale_dtype = dtype}).layer) == expected);
    }
  }
}

TEST_CASE("every code and zero point with scales of every size, subnormals too") {
  const float scales[] = {0x1p-24f, 6.1035156e-5f, 0x1.0p-10f, 0.02f, 0.1f, 1.0f, 4000.0f, -0.02f, 0.0f};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    Int4Rows rows{.rows = 144, .in = 64, .group = 64, .codes = {}, .zeros = {}, .scales = {}};
    for (std::size_t n = 0; n < 144; ++n) {
      for (std::size_t k = 0; k < 64; ++k) rows.codes.push_back(static_cast<std::uint8_t>(k % 16));
      rows.zeros.push_back(static_cast<std::uint8_t>(n % 16));
      const float scale = scales[n / 16];
      rows.scales.push_back(dtype == DType::f16    ? to_float(from_float<half_t>(scale))
                            : dtype == DType::bf16 ? to_float(from_float<bfloat16_t>(scale))
                                                   : scale);
    }
    CHECK(rows.scales[0] == 0x1p-24f);  // the smallest subnormal of F16 is not flushed
    for (const Int4Layout layout : all_layouts) {
      INFO(name_of(layout));
      const PackedLayer packed(rows, {.layout = layout, .scale_dtype = dtype});
      CHECK_NOTHROW(check_int4(packed.layer, "here"));
      const std::vector<float> weights = weights_of(packed.layer);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float expected = static_cast<float>(rows.codes[i] - rows.zeros[i / 64]) * rows.scales[i / 64];
        REQUIRE(weights[i] == expected);
      }
    }
  }
}

TEST_CASE("symmetric layers omit their zeros, or store eights") {
  const Int4Rows rows = random_rows(16, 64, 32, 6, true);
  for (const Int4Layout layout : all_layouts) {
    const PackedLayer packed(rows, {.layout = layout, .symmetric = true});
    const bool left_out =
        layout == Int4Layout::packed_rows || layout == Int4Layout::quark_order || layout == Int4Layout::quark_reorder;
    CHECK((packed.layer.zeros == nullptr) == left_out);
    CHECK(unpack(packed.layer, 0, 16).codes == rows.codes);
    CHECK(weights_of(packed.layer) == weights_of(PackedLayer(rows, {}).layer));
    if (layout == Int4Layout::awq_gemm) CHECK(words_of<std::uint32_t>(*packed.layer.zeros)[0] == 0x88888888);
  }
  CHECK_THROWS_WITH(PackedLayer(random_rows(16, 64, 32, 6), {.symmetric = true}),
                    Catch::Contains("expected zero point 8"));
}

TEST_CASE("layers that cannot be packed or unpacked are rejected") {
  Int4Rows rows = random_rows(16, 64, 32, 7);
  const PackedLayer packed(rows, {});
  for (const auto& [first, count] :
       {std::pair<std::int64_t, std::int64_t>{-1, 1}, {0, 17}, {16, 1}, {0, -1}, {17, 0}}) {
    CHECK_THROWS_WITH(unpack(packed.layer, first, count), Catch::Contains("quant.row-range"));
  }
  const auto refused = [](Int4Rows wrong) {
    CHECK_THROWS_WITH(pack_int4(wrong, "layer"), Catch::Contains("quant.not-packable"));
  };
  rows.codes[3] = 16;
  refused(rows);
  rows.codes[3] = 0;
  rows.zeros[3] = 16;
  refused(rows);
  rows.zeros.pop_back();
  refused(rows);
  rows = random_rows(16, 64, 32, 7);
  rows.group = 24;
  refused(rows);
  rows = random_rows(16, 64, 32, 7);
  rows.scales[5] = 70000;
  CHECK_THROWS_WITH(pack_int4(rows, "layer"), Catch::Contains("quant.scale-overflow"));
  CHECK_NOTHROW(pack_int4(rows, "layer", {.layout = Int4Layout::packed_rows, .scale_dtype = DType::bf16}));
}

TEST_CASE("NaN and infinity are found at any position") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const std::int64_t size : {1, 3, 511, 512, 1024, 5000}) {
      OwnedTensor tensor("t", dtype, {size});
      Random random(1);
      for (std::int64_t i = 0; i < size; ++i) tensor.set_float(i, i % 7 == 0 ? -65504.0f / 2 : random());
      CHECK_FALSE(first_non_finite(tensor));
      for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
        for (const float bad :
             {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
          OwnedTensor damaged("t", dtype, {size});
          damaged.set_float(at, bad);
          CHECK(first_non_finite(damaged) == at);
        }
      }
    }
  }
}
