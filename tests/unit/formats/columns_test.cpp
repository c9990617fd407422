// Columns of a layer have the weights of the whole layer, in every layout and type.
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "slm/formats/columns.hpp"
#include "slm/formats/convert.hpp"
#include "support/int4_layers.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

/// The number of rows of the part whose bits differ from their columns in the whole.
int different_rows(const std::vector<float>& whole, std::int64_t in, const std::vector<float>& part, std::int64_t first,
                   std::int64_t count) {
  const std::int64_t rows = static_cast<std::int64_t>(whole.size()) / in;
  int different = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    different += std::memcmp(whole.data() + r * in + first, part.data() + r * count,
                             static_cast<std::size_t>(count) * sizeof(float)) != 0;
  return different;
}

}  // namespace

TEST_CASE("columns of a four-bit layer have its weights, in every layout, with and without zeros") {
  for (const Int4Layout layout : all_layouts) {
    for (const bool symmetric : {false, true}) {
      for (const std::int64_t group : {32, 64}) {
        const std::int64_t in = 10 * group * (layout == Int4Layout::awq_gemv ? 2 : 1);
        const PackedLayer whole(random_rows(24, in, group, 3, symmetric), {.layout = layout, .symmetric = symmetric});
        const std::vector<float> weights = weights_of(whole.layer);
        const std::int64_t unit = column_unit(whole.layer);
        REQUIRE(in > 2 * unit);
        for (std::int64_t first = 0; first < in; first += unit) {
          for (const std::int64_t last : {first + unit, in}) {
            const std::int64_t count = std::min(last, in) - first;
            CAPTURE(std::string(name_of(layout)), symmetric, group, first, count);
            ColumnParts parts;
            const Int4Tensor part = columns_of(whole.layer, first, count, parts);
            CHECK(part.in == count);
            CHECK(different_rows(weights, in, weights_of(part), first, count) == 0);
            if (first > 0) CHECK(different_rows(weights, in, weights_of(part), 0, count) > 0);  // of other columns
          }
        }
        CHECK(column_unit(LinearSource(whole.layer)) % group == 0);
      }
    }
  }
}

TEST_CASE("columns of a matrix have its values, in floating point and in GGUF's blocks") {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                           DType::q8_0, DType::iq4_nl, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k,
                           DType::iq4_xs, DType::iq2_xs, DType::mxfp4}) {
    const std::int64_t unit = values_of_block(type), rows = 5, in = unit == 1 ? 37 : 4 * unit;
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows * in / unit) * bytes_of(type));
    std::uint64_t state = 7;
    for (std::byte& byte : bytes) {  // no scale has the exponent of infinity
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(state >> 56 & 0x3f);
    }
    const Tensor whole{"w", type, {rows, in}, bytes.data(), bytes.size()};
    const std::vector<float> values = values_of(whole);
    CHECK(column_unit(whole) == unit);
    for (const std::int64_t first : {std::int64_t{0}, unit, 3 * unit}) {
      for (const std::int64_t last : {first + unit, in}) {
        CAPTURE(std::string(name_of(type)), first, last);
        const Tensor part = columns_of(whole, first, last - first);
        CHECK(part.shape == std::vector<std::int64_t>{rows, last - first});
        CHECK(reinterpret_cast<std::uintptr_t>(part.bytes) % 64 == 0);
        CHECK(different_rows(values, in, values_of(part), first, last - first) == 0);
      }
    }
  }
}
