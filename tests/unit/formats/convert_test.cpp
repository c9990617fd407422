#include <catch2/catch.hpp>
#include <cstring>

#include "slm/formats/convert.hpp"

using namespace slm;

TEST_CASE("convert reads unaligned tensors of every floating type") {
  alignas(8) std::byte bytes[16] = {};
  const float value = -1.5f;
  std::memcpy(bytes + 1, &value, 4);
  const Tensor f32{.name = "w", .dtype = DType::f32, .shape = {1}, .bytes = bytes + 1, .size_bytes = 4};
  float out = 0;
  convert(f32, 0, 1, &out);
  CHECK(out == -1.5f);
  bfloat16_t narrow;
  convert(f32, 0, 1, &narrow);
  CHECK(narrow.bits == 0xbfc0);
  const Tensor integers{.name = "ids", .dtype = DType::i32, .shape = {1}, .bytes = bytes, .size_bytes = 4};
  CHECK_THROWS_WITH(convert(integers, 0, 1, &out), Catch::Contains("'ids' is I32"));
}
