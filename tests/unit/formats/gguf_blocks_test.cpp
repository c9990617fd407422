#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "slm/core/sha256.hpp"
#include "slm/formats/convert.hpp"
#include "slm/formats/gguf_types.hpp"
#include "slm/io/json.hpp"
#include "support/paths.hpp"

using namespace slm;

namespace {

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Tensor tensor_of(DType type, const std::vector<std::byte>& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size() / bytes_of(type)) * values_of_block(type);
  return {.name = "blk.0.w", .dtype = type, .shape = {1, count}, .bytes = bytes.data(), .size_bytes = bytes.size()};
}

std::vector<float> values_of(DType type, const std::string& hex) {
  const std::vector<std::byte> bytes = bytes_of_hex(hex);
  const Tensor tensor = tensor_of(type, bytes);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  convert(tensor, 0, tensor.elements(), values.data());
  return values;
}

const GgufType& type_named(const std::string& name) {
  return *std::find_if(std::begin(gguf_types), std::end(gguf_types),
                       [&](const auto& info) { return info.name == name; });
}

float float_of_hex(const Json& bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(bits.get<std::string>(), nullptr, 16)));
}

/// Random blocks with scales of all sizes, as the fixture's expected digests assume.
std::vector<std::byte> generated_blocks(DType type, int count) {
  const std::size_t size = bytes_of(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  std::uint64_t state = 7;
  for (int i = 0; i < count; ++i) {
    std::byte* const block = bytes.data() + static_cast<std::size_t>(i) * size;
    for (std::size_t k = 0; k < size; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      block[k] = static_cast<std::byte>(state >> 56);
    }
    const float scales[] = {1, -0.75f, 6e-8f, 65504};
    const half_t scale = from_float<half_t>(scales[i % 4]);
    if (type == DType::mxfp4) {
      block[0] = static_cast<std::byte>(std::to_integer<int>(block[0]) % 253);
    } else if (type == DType::iq1_m) {
      for (std::size_t part = 0; part < 4; ++part) {
        block[49 + 2 * part] =
            (block[49 + 2 * part] & std::byte{15}) | static_cast<std::byte>((scale.bits >> 4 * part & 15) << 4);
      }
    } else {
      std::memcpy(block + (type == DType::tq1_0 ? 52 : type == DType::tq2_0 ? 64 : 0), &scale, sizeof scale);
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("each block type has the values of the gguf package, bit for bit") {
  const Json types = read_json_object(slm::testing::fixture("gguf/blocks.json"));
  CHECK(types.size() == 11);
  for (const auto& [name, blocks] : types.items()) {
    const GgufType& type = type_named(name);
    REQUIRE(type.dtype.has_value());
    std::string together;  // several adjacent blocks are read like one
    std::vector<float> expected;
    for (const Json& block : blocks) {
      together += block.at("bytes").get<std::string>();
      for (const Json& bits : block.at("floats")) {
        expected.push_back(float_of_hex(bits));
      }
    }
    INFO(name);
    REQUIRE(expected.size() == 4 * static_cast<std::size_t>(type.values));
    CHECK(values_of(*type.dtype, together) == expected);  // except the sign of zeros

    // One block of several, in another format.
    const std::vector<std::byte> bytes = bytes_of_hex(together);
    std::vector<bfloat16_t> second(static_cast<std::size_t>(type.values));
    convert(tensor_of(*type.dtype, bytes), type.values, type.values, second.data());
    for (std::size_t n = 0; n < second.size(); ++n) {
      CHECK(to_float(second[n]) == to_float(from_float<bfloat16_t>(expected[second.size() + n])));
    }
  }
}

TEST_CASE("each block type with a table of values gives the floats of the gguf package, for every entry") {
  const Json types = read_json_object(slm::testing::fixture("gguf/table-blocks.json"));
  CHECK(types.size() == 11);
  for (const auto& [name, expected] : types.items()) {
    INFO(name);
    const DType type = type_named(name).dtype.value();
    for (const Json& block : expected.at("blocks")) {
      std::vector<float> floats;
      for (const Json& bits : block.at("floats")) floats.push_back(float_of_hex(bits));
      CHECK(values_of(type, block.at("bytes").get<std::string>()) == floats);
    }
    const std::vector<std::byte> bytes = generated_blocks(type, 512);
    const Tensor tensor = tensor_of(type, bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    for (float& value : values) value += 0.0f;  // zeros are positive
    CHECK(sha256({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}) ==
          expected.at("sha256").get<std::string>());
  }
}

TEST_CASE("F32, F16 and BF16 of a GGUF file are read unchanged") {
  CHECK(values_of(DType::f16, "0100ff7b01bc") == std::vector<float>{5.9604645e-08f, 65504, -1.0009766f});
  CHECK(values_of(DType::bf16, "c03ff7c20100") == std::vector<float>{1.5f, -123.5f, 9.1835e-41f});
  CHECK(values_of(DType::f32, "0000c03f0000f7c2") == std::vector<float>{1.5f, -123.5f});
}

TEST_CASE("types of GGUF files are identified by their numbers") {
  for (const GgufType& type : gguf_types) {
    CHECK(gguf_type(type.id) == &type);
    CHECK((type.values == 0) == (type.bytes == 0));
  }
  CHECK(gguf_type(42) == nullptr);
  CHECK(gguf_type(14)->dtype == DType::q6_k);
  CHECK(gguf_type(14)->bytes == 210);
}

TEST_CASE("a block whose scale or minimum is not finite is rejected, naming tensor and block") {
  struct Scale {
    DType type;
    std::size_t place;
  };
  for (const auto [type, place] :
       {Scale{DType::q4_0, 0}, {DType::q4_1, 0},   {DType::q4_1, 2},    {DType::q5_0, 0},   {DType::q5_1, 0},
        {DType::q5_1, 2},      {DType::q8_0, 0},   {DType::iq4_nl, 0},  {DType::q2_k, 80},  {DType::q2_k, 82},
        {DType::q3_k, 108},    {DType::q4_k, 0},   {DType::q4_k, 2},    {DType::q5_k, 0},   {DType::q5_k, 2},
        {DType::q6_k, 208},    {DType::iq4_xs, 0}, {DType::iq3_xxs, 0}, {DType::iq3_s, 0},  {DType::iq2_xxs, 0},
        {DType::iq2_xs, 0},    {DType::iq2_s, 0},  {DType::iq1_s, 0},   {DType::tq1_0, 52}, {DType::tq2_0, 64}}) {
    INFO(name_of(type) << " " << place);
    const auto read = [type = type, place = place](std::uint16_t bits) {
      std::vector<std::byte> bytes(2 * bytes_of(type), std::byte{0x11});
      std::memcpy(bytes.data() + bytes_of(type) + place, &bits, 2);
      const Tensor tensor = tensor_of(type, bytes);
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data());
    };
    for (const std::uint16_t bits : {0x7c00, 0xfc00, 0x7e01}) {
      CHECK_THROWS_WITH(read(bits),
                        Catch::Contains("block 1 of tensor 'blk.0.w'") && Catch::Contains("gguf.non-finite"));
    }
    CHECK_NOTHROW(read(0x7bff));
  }
}

TEST_CASE("scales that are stored otherwise are checked too: in parts, or as an exponent") {
  const auto read = [](DType type, const std::vector<std::byte>& bytes) {
    const Tensor tensor = tensor_of(type, bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    convert(tensor, 0, tensor.elements(), values.data());
    for (const float value : values) CHECK(std::isfinite(value));
  };
  std::vector<std::byte> parts(56, std::byte{0x11});
  CHECK_NOTHROW(read(DType::iq1_m, parts));
  parts[53] = std::byte{0xc0}, parts[55] = std::byte{0x70};  // 0x7c.., in quarters
  CHECK_THROWS_WITH(read(DType::iq1_m, parts), Catch::Contains("gguf.non-finite"));
  std::vector<std::byte> exponent(17, std::byte{0x77});
  exponent[0] = std::byte{252};
  CHECK_NOTHROW(read(DType::mxfp4, exponent));
  for (const int large : {253, 254, 255}) {
    exponent[0] = static_cast<std::byte>(large);
    CHECK_THROWS_WITH(read(DType::mxfp4, exponent), Catch::Contains("gguf.non-finite"));
  }
}
