// Layers that are dequantized at load: FP8, 8-bit integers, and GPTQ in any order of inputs.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "slm/awq/int4_pack.hpp"
#include "slm/formats/scaled_check.hpp"
#include "slm/formats/scaled_tensor.hpp"

using namespace slm;

namespace {

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

/// 8-bit integers with one scale per output, and tensors that live as long.
struct RowScales {
  OwnedTensor codes{"w", DType::i8, {4, 64}};
  OwnedTensor scales{"s", DType::f32, {4, 1}};
  OwnedTensor zeros{"z", DType::i8, {4, 1}};
  ScaledTensor layer;

  RowScales() {
    for (std::int64_t i = 0; i < codes.elements(); ++i) codes.set(i, static_cast<std::int8_t>(7 * i - 128));
    for (std::int64_t n = 0; n < 4; ++n) scales.set_float(n, 0.25f * static_cast<float>(n + 1));
    layer.name = "layer";
    layer.layout = ScaledLayout::i8_rows;
    layer.out = 4;
    layer.in = layer.inputs = 64;
    layer.codes = &codes;
    layer.scales = &scales;
  }
  RowScales(const RowScales&) = delete;
  RowScales& operator=(const RowScales&) = delete;

  float weight(std::int64_t n, std::int64_t k, int zero = 0) const {
    return static_cast<float>(static_cast<std::int8_t>(7 * (64 * n + k) - 128) - zero) * 0.25f *
           static_cast<float>(n + 1);
  }
  void check(int zero = 0) const {
    const std::vector<float> values = values_of(dequantized(layer));
    for (std::int64_t n = 0; n < 4; ++n) {
      for (std::int64_t k = 0; k < 64; ++k) CHECK(values[static_cast<std::size_t>(64 * n + k)] == weight(n, k, zero));
    }
  }
  std::string fault() const {
    try {
      check_scaled(layer, "here");
      dequantized(layer);
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

}  // namespace

TEST_CASE("every FP8 code is its value") {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = to_float(float8_t{static_cast<std::uint8_t>(bits)});
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    INFO(bits);
    if ((bits & 127) == 127) {
      CHECK(std::isnan(value));
      continue;
    }
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    CHECK(value == (bits < 128 ? magnitude : -magnitude));
    CHECK(std::signbit(value) == (bits >= 128));
  }
  CHECK(to_float(float8_t{0x7e}) == 448);
  CHECK(to_float(float8_t{0x01}) == 0x1p-9f);
}

TEST_CASE("8-bit integers are kept as Q8_0 where that is exact, else as fp32") {
  RowScales test;
  CHECK(dequantized(test.layer).dtype == DType::q8_0);
  test.check();
  test.layer.zeros = &test.zeros;  // zeros that are all zero
  CHECK(dequantized(test.layer).dtype == DType::q8_0);
  for (std::int64_t n = 0; n < 4; ++n) test.zeros.set(n, std::int8_t{-3});
  CHECK(dequantized(test.layer).dtype == DType::f32);
  test.check(-3);
  OwnedTensor one_scale("s", DType::f32, {1}), one_zero("z", DType::i8, {1});
  one_scale.set_float(0, 1);
  one_zero.set(0, std::int8_t{5});
  test.layer.scales = &one_scale;
  test.layer.zeros = &one_zero;
  test.layer.outputs = 4;
  CHECK_NOTHROW(check_scaled(test.layer, "here"));
  CHECK(values_of(dequantized(test.layer))[200] == static_cast<float>(static_cast<std::int8_t>(7 * 200 - 128) - 5));
  test.layer.scales = &test.scales;
  test.layer.zeros = nullptr;
  test.layer.outputs = 1;
  test.scales.set_float(3, 0x1.001p0f);  // not a number of F16
  const Tensor exact = dequantized(test.layer);
  CHECK(exact.dtype == DType::f32);
  CHECK(values_of(exact)[3 * 64] == static_cast<float>(static_cast<std::int8_t>(7 * 192 - 128)) * 0x1.001p0f);
  test.scales.set_float(3, 1);
  test.layer.inputs = 16;  // less than a block
  OwnedTensor groups("s", DType::f32, {4, 4});
  for (std::int64_t i = 0; i < 16; ++i) groups.set_float(i, 1);
  test.layer.scales = &groups;
  CHECK(dequantized(test.layer).dtype == DType::f32);
}

TEST_CASE("wrong types, shapes and values of layers that are dequantized are refused") {
  const auto message = [](auto&& change) {
    RowScales test;
    REQUIRE(test.fault() == "no error");
    change(test);
    return test.fault();
  };
  CHECK_THAT(message([](RowScales& t) { t.layer.in = 63; }), Catch::Contains("quant.wrong-shape"));
  CHECK_THAT(message([](RowScales& t) { t.layer.out = 5; }), Catch::Contains("quant.wrong-shape"));
  CHECK_THAT(message([](RowScales& t) { t.layer.inputs = 0; }), Catch::Contains("quant.group-size"));
  CHECK_THAT(message([](RowScales& t) { t.layer.inputs = 32; }), Catch::Contains("quant.wrong-shape"));
  CHECK_THAT(message([](RowScales& t) { t.codes.dtype = DType::u8; }), Catch::Contains("quant.wrong-dtype"));
  CHECK_THAT(message([](RowScales& t) { t.scales.dtype = DType::i32; }), Catch::Contains("quant.wrong-dtype"));
  CHECK_THAT(message([](RowScales& t) { t.layer.zeros = &t.scales; }), Catch::Contains("quant.wrong-dtype"));
  CHECK_THAT(message([](RowScales& t) { t.scales.set_float(2, std::nanf("")); }),
             Catch::Contains("quant.non-finite") && Catch::Contains("'s' [2] is NaN"));
  CHECK_THAT(message([](RowScales& t) { t.scales.set_float(2, std::numeric_limits<float>::max()); }),
             Catch::Contains("quant.non-finite") && Catch::Contains("the weight [2, "));
  const auto floats = [](RowScales& t) {
    t.codes.dtype = DType::f8_e4m3;
    t.layer.layout = ScaledLayout::f8_rows;
    for (std::int64_t i = 0; i < t.codes.elements(); ++i) t.codes.set(i, std::uint8_t{0x38});
  };
  CHECK(message(floats) == "no error");
  CHECK_THAT(message([&](RowScales& t) {
               floats(t);
               t.codes.set(64 + 5, std::uint8_t{0xff});
             }),
             Catch::Contains("quant.non-finite") && Catch::Contains("the weight [1, 5] of 'w' is NaN"));
}
