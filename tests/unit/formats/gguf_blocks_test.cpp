#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "slm/formats/gguf_blocks.hpp"
#include "slm/io/json.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"

using namespace slm;
using slm::testing::error_id;

namespace {

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> values_of(GgufType type, const std::string& hex, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize(type, bytes_of_hex(hex).data(), count, values.data());
  return values;
}

const GgufTypeInfo& type_named(const std::string& name) {
  return *std::find_if(std::begin(gguf_types), std::end(gguf_types),
                       [&](const auto& info) { return info.name == name; });
}

}  // namespace

TEST_CASE("each block type gives the floats that the gguf package gives, bit for bit") {
  const Json types = read_json_object(slm::testing::fixture("gguf/blocks.json"));
  CHECK(types.size() == 11);
  for (const auto& [name, blocks] : types.items()) {
    const GgufTypeInfo& info = type_named(name);
    REQUIRE(info.readable);
    std::string together;  // several blocks in a row are read like one
    std::vector<float> expected;
    for (const Json& block : blocks) {
      together += block.at("bytes").get<std::string>();
      for (const Json& bits : block.at("floats")) {
        expected.push_back(
            std::bit_cast<float>(static_cast<std::uint32_t>(std::stoul(bits.get<std::string>(), nullptr, 16))));
      }
    }
    INFO(name);
    REQUIRE(expected.size() == 4 * static_cast<std::size_t>(info.values));
    const std::vector<float> found = values_of(info.type(), together, static_cast<std::int64_t>(expected.size()));
    CHECK(found == expected);  // but for the sign of zeros
  }
}

TEST_CASE("F32, F16 and BF16 of a GGUF file are read as they are") {
  CHECK(values_of(GgufType::f16, "0100ff7b01bc", 3) == std::vector<float>{5.9604645e-08f, 65504, -1.0009766f});
  CHECK(values_of(GgufType::bf16, "c03ff7c20100", 3) == std::vector<float>{1.5f, -123.5f, 9.1835e-41f});
  CHECK(values_of(GgufType::f32, "0000c03f0000f7c2", 2) == std::vector<float>{1.5f, -123.5f});
}

TEST_CASE("the sizes of blocks are those of the format") {
  for (const GgufTypeInfo& info : gguf_types) {
    CHECK(gguf_type_info(info.id) == &info);
    CHECK((info.values == 0) == (info.bytes == 0));
    if (info.readable) CHECK(info_of(info.type()).name == info.name);
  }
  CHECK(gguf_type_info(42) == nullptr);
  CHECK(info_of(GgufType::q6_k).bytes == 210);
}

TEST_CASE("a block whose scale or minimum is no finite number is refused, naming tensor and block") {
  const auto with_half = [](GgufType type, std::size_t place, std::uint16_t bits) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(2 * info_of(type).bytes), std::byte{0x11});
    std::memcpy(bytes.data() + info_of(type).bytes + place, &bits, 2);
    return bytes;
  };
  struct Scale {
    GgufType type;
    std::size_t place;
  };
  for (const auto [type, place] : {Scale{GgufType::q4_0, 0},
                                   {GgufType::q4_1, 0},
                                   {GgufType::q4_1, 2},
                                   {GgufType::q5_0, 0},
                                   {GgufType::q5_1, 0},
                                   {GgufType::q5_1, 2},
                                   {GgufType::q8_0, 0},
                                   {GgufType::iq4_nl, 0},
                                   {GgufType::q2_k, 80},
                                   {GgufType::q2_k, 82},
                                   {GgufType::q3_k, 108},
                                   {GgufType::q4_k, 0},
                                   {GgufType::q4_k, 2},
                                   {GgufType::q5_k, 0},
                                   {GgufType::q5_k, 2},
                                   {GgufType::q6_k, 208}}) {
    INFO(info_of(type).name << " " << place);
    const std::int64_t count = 2 * info_of(type).values;
    for (const std::uint16_t bits : {0x7c00, 0xfc00, 0x7e01}) {
      const auto bytes = with_half(type, place, bits);
      CHECK_THROWS_WITH(check_scales(type, bytes.data(), count, "blk.0.w"),
                        Catch::Contains("block 1 of tensor 'blk.0.w'") && Catch::Contains("gguf.non-finite"));
    }
    const auto sound = with_half(type, place, 0x7bff);
    CHECK(error_id([&] { check_scales(type, sound.data(), count, "w"); }) == "no error");
  }
}
