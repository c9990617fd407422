#include <catch2/catch.hpp>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "slm/io/gguf.hpp"
#include "slm/io/gguf_file.hpp"
#include "support/gguf_builder.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

GgufContents parse(const std::string& file) {
  return parse_gguf({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "a.gguf");
}

/// The id of the parser's Error, whose sentence names the file and `named`; empty if the file is accepted.
std::string fault(const std::string& file, const std::string& named = "") {
  try {
    parse(file);
    return {};
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("a.gguf") && Catch::Contains(named));
    return error.id();
  }
}
std::string fault(const GgufBuilder& file, const std::string& named = "") { return fault(file.build(), named); }

GgufBuilder with_tensor(const std::vector<std::uint64_t>& dims, std::uint32_t type, std::size_t bytes) {
  GgufBuilder file;
  file.tensor("w", dims, type, std::string(bytes, '\0'));
  return file;
}

}  // namespace

TEST_CASE("keys and tensors of a GGUF file are found with their values, in versions 2 and 3") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder builder = small_gguf();
    builder.version = version;
    const std::string file = builder.build();
    const GgufContents contents = parse(file);
    const GgufFields& fields = contents.fields;
    CHECK(fields.string("general.architecture") == "llama");
    CHECK(fields.integer("llama.block_count", 1, 10) == 2);
    CHECK(fields.integer("split.no", 0, 10) == 0);
    CHECK(fields.number("llama.rope.freq_base", 1, 1e6) == 10000);
    CHECK(fields.boolean("tokenizer.ggml.add_bos_token", false));
    CHECK(fields.strings("tokenizer.ggml.tokens") == std::vector<std::string_view>{"<s>", "", "h\xC3\xA9"});
    CHECK(fields.numbers("tokenizer.ggml.scores", 3) == std::vector<double>{0, -1, -2.5});
    CHECK_FALSE(fields.has("llama.context_length"));
    CHECK(fields.integer("llama.context_length", 1, 10, 7) == 7);

    REQUIRE(contents.tensors.size() == 2);
    const GgufTensor& a = contents.tensors[0];
    const GgufTensor& b = contents.tensors[1];
    CHECK(a.name == "a.weight");
    CHECK(a.shape == std::vector<std::int64_t>{3, 4});  // the file has the innermost dimension first
    CHECK(a.type->dtype == DType::f32);
    CHECK(a.size_bytes == 48);
    CHECK(b.type->dtype == DType::q8_0);
    CHECK(b.size_bytes == 68);
    CHECK(b.bytes == a.bytes + 64);
    CHECK(*a.bytes == std::byte{1});
    CHECK(*b.bytes == std::byte{2});
  }
}

TEST_CASE("numbers of a GGUF file may have any type that can hold them, and must be in range") {
  GgufBuilder file;
  file.number("u8", 0, std::uint8_t{200}).number("i8", 1, std::int8_t{-3}).number("i16", 3, std::int16_t{-300});
  file.number("i32", 5, std::int32_t{-70000}).number("u64", 10, ~std::uint64_t{0}).number("i64", 11, std::int64_t{-9});
  file.number("f64", 12, 0.5).number("nan", gguf_f32, std::uint32_t{0x7fc00000});
  const std::string bytes = file.build();
  const GgufFields fields = parse(bytes).fields;
  CHECK(fields.integer("u8", 0, 255) == 200);
  CHECK(fields.integer("i8", -10, 255) == -3);
  CHECK(fields.integer("i16", -1000, 255) == -300);
  CHECK(fields.integer("i32", -100000, 255) == -70000);
  CHECK(fields.integer("i64", -10, 255) == -9);
  CHECK(fields.number("f64", 0, 1) == 0.5f);
  const auto bad = [&](auto&& read, const char* key, const char* expected) {
    CHECK_THROWS_WITH(read(), Catch::Contains("a.gguf") && Catch::Contains(key) && Catch::Contains(expected) &&
                                  Catch::Contains("gguf.bad-value"));
  };
  bad([&] { fields.integer("u64", 0, 255); }, "'u64'", "0..255");
  bad([&] { fields.integer("u8", 0, 199); }, "'u8' is u8 200", "0..199");
  bad([&] { fields.integer("f64", 0, 255); }, "'f64' is f64 0.5", "an integer of 0..255");
  bad([&] { fields.integer("nan", 0, 255); }, "'nan'", "an integer of 0..255");
  bad([&] { fields.number("nan", 0, 255); }, "'nan'", "a number of");
  bad([&] { fields.number("u8", 0, 199); }, "'u8' is u8 200", "a number of");
  bad([&] { fields.number("u64", 0, 255); }, "'u64' is u64 18446744073709551615", "a number of");
  bad([&] { fields.string("u8"); }, "'u8'", "a string");
  bad([&] { fields.strings("u8"); }, "'u8'", "an array of strings");
  bad([&] { fields.boolean("u8", true); }, "'u8'", "true or false");
  bad([&] { fields.integers("u8", 1); }, "'u8'", "an array of 1 integers");
  bad([&] { fields.numbers("u8", 1); }, "'u8'", "an array of 1 numbers");
  CHECK_THROWS_WITH(fields.at("absent"), Catch::Contains("'absent'") && Catch::Contains("gguf.missing-key"));
  const std::string small = small_gguf().build();
  const GgufFields others = parse(small).fields;
  bad([&] { others.integer("tokenizer.ggml.scores", 0, 1); }, "scores", "an array of 3 f32");
  bad([&] { others.integer("general.architecture", 0, 1); }, "architecture", "the string 'llama'");
  bad([&] { others.number("general.architecture", 0, 1); }, "architecture", "the string 'llama'");
  bad([&] { others.boolean("general.architecture", true); }, "architecture", "true or false");
  bad([&] { others.integer("tokenizer.ggml.add_bos_token", 0, 1); }, "add_bos_token", "an integer of 0..1");
  bad([&] { others.integers("tokenizer.ggml.scores", 3); }, "scores", "an array of 3 integers");  // one is -2.5
  bad([&] { others.numbers("tokenizer.ggml.scores", 2); }, "scores", "an array of 2 numbers");
  bad([&] { others.integers("tokenizer.ggml.tokens", 3); }, "tokens", "an array of 3 integers");
  bad([&] { others.numbers("tokenizer.ggml.tokens", 3); }, "tokens", "an array of 3 numbers");
}

namespace {

/// The numbers one after another under the keys and types of GGUF's numbers, and in arrays: KEY.array.
GgufBuilder in_every_type(std::initializer_list<int> numbers) {
  GgufBuilder file;
  const auto add = [&]<class T>(const char* key, std::uint32_t type, T) {
    std::vector<T> all;
    for (const int number : numbers) all.push_back(static_cast<T>(number));
    file.numbers(text(key, ".array"), type, all);
    for (std::size_t i = 0; i < all.size(); ++i) file.number(text(key, ".", i), type, all[i]);
  };
  add("u8", 0, std::uint8_t{}), add("i8", 1, std::int8_t{}), add("u16", 2, std::uint16_t{});
  add("i16", 3, std::int16_t{}), add("u32", 4, std::uint32_t{}), add("i32", 5, std::int32_t{});
  add("f32", 6, float{}), add("u64", 10, std::uint64_t{}), add("i64", 11, std::int64_t{}), add("f64", 12, double{});
  return file;
}

constexpr const char* number_types[] = {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "u64", "i64", "f64"};

}  // namespace

TEST_CASE("a number, a boolean, an id and an array are the same in every number type of GGUF") {
  const std::string bytes = in_every_type({0, 1, 2, 100}).build();
  const GgufFields fields = parse(bytes).fields;
  for (const std::string type : number_types) {
    CAPTURE(type);
    CHECK(fields.integer(type + ".3", 1, 100) == 100);
    CHECK(fields.number(type + ".3", 1, 100) == 100.0f);
    CHECK_FALSE(fields.boolean(type + ".0", true));
    CHECK(fields.boolean(type + ".1", false));
    CHECK_THROWS_WITH(fields.boolean(type + ".2", false), Catch::Contains("true or false"));
    CHECK(fields.token(type + ".3", 101) == 100);
    CHECK(fields.token(type + ".3", 100) == std::nullopt);
    CHECK(fields.integers(type + ".array", 4) == std::vector<std::int64_t>{0, 1, 2, 100});
    CHECK(fields.numbers(type + ".array", 4) == std::vector<double>{0, 1, 2, 100});
    CHECK_THROWS_WITH(fields.integers(type + ".array", 3), Catch::Contains("gguf.bad-value"));
    CHECK_THROWS_WITH(fields.number(type + ".array", 0, 1), Catch::Contains("gguf.bad-value"));
  }
}

TEST_CASE("an id outside the vocabulary means no token, and other values are rejected") {
  GgufBuilder file;
  file.number("i8", 1, std::int8_t{-1}).number("i32", 5, -1).u32("u32", ~0u).number("u64", 10, ~std::uint64_t{0});
  file.number("i64", 11, std::numeric_limits<std::int64_t>::min()).f32("f32", -1).number("f64", 12, 1e300);
  file.f32("half", 0.5f).f32("nan", std::numeric_limits<float>::quiet_NaN()).string("string", "1");
  file.boolean("boolean", true).numbers("array", gguf_u32, std::vector<std::uint32_t>{1});
  const std::string bytes = file.build();
  const GgufFields fields = parse(bytes).fields;
  for (const char* key : {"i8", "i32", "u32", "u64", "i64", "f32", "f64", "absent"}) {
    CAPTURE(key);
    CHECK(fields.token(key, 1000) == std::nullopt);
  }
  for (const char* key : {"half", "nan", "string", "boolean", "array"}) {
    CHECK_THROWS_WITH(fields.token(key, 1000),
                      Catch::Contains(key) && Catch::Contains("an integer") && Catch::Contains("gguf.bad-value"));
  }
}

TEST_CASE("files that are not GGUF have separate errors") {
  CHECK(fault("") == "gguf.bad-magic");
  CHECK(fault("GGU") == "gguf.bad-magic");
  CHECK(fault("PK\3\4 and more") == "gguf.bad-magic");
  CHECK(fault("tjgg and more", "older than GGUF") == "gguf.bad-magic");
  CHECK(fault("GGUF") == "gguf.cut-short");
  for (const std::uint32_t version : {0u, 1u, 4u, 0x00030003u, 0xffffffffu}) {
    GgufBuilder file = small_gguf();
    file.version = version;
    CHECK(fault(file) == "gguf.version");
  }
  GgufBuilder swapped = small_gguf();
  swapped.version = 0x03000000;
  CHECK(fault(swapped, "a big-endian file (version 3)") == "gguf.big-endian");
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(GgufFile(folder.write("m.gguf", "version https://git-lfs.github.com/spec/v1\n")),
                    Catch::Contains("io.lfs-pointer"));
}

TEST_CASE("counts that exceed the file are rejected before any allocation") {
  const auto header = [](std::uint64_t tensors, std::uint64_t pairs) {
    return GgufBuilder().bytes(tensors, pairs).content() + std::string(16, '\0');
  };
  for (const std::uint64_t count :
       {std::uint64_t{2}, std::uint64_t{1} << 31, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    CHECK(fault(header(0, count), "metadata pairs") == "gguf.pair-count");
    CHECK(fault(header(count, 0), "tensors") == "gguf.tensor-count");
  }
}

TEST_CASE("every kind of damaged metadata is rejected with a separate error that names the key") {
  const auto one = [](std::string_view key, std::uint32_t type, const GgufBytes& value) {
    return GgufBuilder().pair(key, type, value).build();
  };
  const GgufBytes padding = GgufBytes().raw(std::string(16, '\0'));
  const auto number = [](std::uint64_t value) { return GgufBytes().put(value); };
  const auto array = [](std::uint32_t type, std::uint64_t count) { return GgufBytes().put(type).put(count); };
  CHECK(fault(one("", 4, padding)) == "gguf.bad-key");
  CHECK(fault(one("h\xC3\xA9", 4, padding)) == "gguf.bad-key");
  CHECK(fault(one("a\n", 4, padding), "'a\\x0a'") == "gguf.bad-key");
  CHECK(fault(one(std::string(65536, 'k'), 4, padding)) == "gguf.string-length");
  CHECK(fault(one("k", 13, padding), "'k'") == "gguf.value-type");
  CHECK(fault(one("k", 9, array(13, 1)), "'k'") == "gguf.value-type");
  CHECK(fault(one("k", 9, array(9, 1)), "'k'") == "gguf.nested-array");
  for (const std::uint64_t count :
       {std::uint64_t{3}, std::uint64_t{1} << 31, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    CHECK(fault(one("k", 9, array(4, count).raw("12345678")), "'k'") == "gguf.array-length");
    CHECK(fault(one("k", 9, array(8, count).raw("12345678")), "'k'") == "gguf.array-length");
  }
  CHECK(fault(one("k", 8, number(~std::uint64_t{0})), "'k'") == "gguf.string-length");
  CHECK(fault(one("k", 8, number(100).raw("short")), "'k'") == "gguf.cut-short");
  CHECK(fault(one("k", 9, array(8, 2).put(std::uint64_t{1}).raw("a").put(std::uint64_t{50})), "'k'") ==
        "gguf.cut-short");
  CHECK(fault(one("k", 7, GgufBytes().put(std::uint8_t{2})), "'k'") == "gguf.bad-boolean");
  CHECK(fault(one("k", 9, array(7, 2).put(std::uint8_t{1}).put(std::uint8_t{255})), "'k'") == "gguf.bad-boolean");
  CHECK(fault(GgufBuilder().u32("k", 1).u32("j", 1).u32("k", 1), "'k'") == "gguf.duplicate-key");
  for (const std::uint32_t alignment : {0u, 1u, 4u, 33u, 1u << 21, 1u << 30, 1u << 31}) {
    CHECK(fault(GgufBuilder().u32("general.alignment", alignment), "general.alignment") == "gguf.alignment");
  }
  CHECK(fault(GgufBuilder().number("general.alignment", gguf_i32, 64)).empty());
  CHECK(fault(GgufBuilder().number("general.alignment", gguf_i32, -64)) == "gguf.alignment");
  CHECK(fault(GgufBuilder().string("general.alignment", "64")) == "gguf.alignment");
  CHECK(fault(GgufBuilder().numbers("general.alignment", gguf_u32, std::vector<std::uint32_t>{64})) ==
        "gguf.alignment");
}

TEST_CASE("every kind of damaged tensor is rejected with a separate error that names the tensor") {
  CHECK(fault(with_tensor({4}, 0, 16)).empty());
  CHECK(fault(GgufBuilder().tensor("", {4}, 0, std::string(16, '\0'))) == "gguf.tensor-name");
  CHECK(fault(GgufBuilder().tensor(std::string(63, 'n'), {4}, 0, std::string(16, '\0'))).empty());
  CHECK(fault(GgufBuilder().tensor(std::string(64, 'n'), {4}, 0, std::string(16, '\0'))) == "gguf.tensor-name");
  CHECK(fault(with_tensor({1, 1, 1, 1, 4}, 0, 16), "'w'") == "gguf.dimensions");
  CHECK(fault(with_tensor({~std::uint64_t{0}}, 0, 16), "'w'") == "gguf.tensor-size");
  CHECK(fault(with_tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 16), "'w'") == "gguf.tensor-size");
  CHECK(fault(with_tensor({4194305, 4194305, 211106198978564}, 0, 16), "'w'") == "gguf.tensor-size");  // 4 modulo 2^64
  CHECK(fault(with_tensor({0, std::uint64_t{1} << 40, std::uint64_t{1} << 40}, 0, 16), "'w'") == "gguf.tensor-size");
  CHECK(fault(with_tensor({std::uint64_t{1} << 61, 2}, 28, 16), "'w'") == "gguf.tensor-size");
  CHECK(fault(GgufBuilder()
                  .tensor("v", {std::uint64_t{1} << 61}, 24, "")
                  .tensor_at(std::uint64_t{1} << 61, "w", {std::uint64_t{1} << 62}, 24, "")) == "gguf.tensor-size");
  CHECK(fault(with_tensor({4}, 42, 16), "'w'") == "gguf.unknown-type");
  CHECK(fault(with_tensor({4}, 4, 16), "Q4_2") == "gguf.removed-type");
  CHECK(fault(with_tensor({32}, 31, 18), "use the model's Q4_0") == "gguf.removed-type");
  CHECK(fault(with_tensor({33}, 2, 18), "'w'") == "gguf.row-length");
  CHECK(fault(with_tensor({128, 2}, 12, 144), "'w'") == "gguf.row-length");  // whole, but not its rows
  CHECK(fault(with_tensor({9}, 0, 16), "take 100 bytes, the file has 96") == "gguf.cut-short");
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{16}, std::uint64_t{64}, ~std::uint64_t{0}}) {
    GgufBuilder file = with_tensor({4}, 0, 16);
    CHECK(fault(file.tensor_at(offset, "next", {4}, 0, std::string(16, '\0')), "'next'") == "gguf.offset");
  }
  CHECK(fault(GgufBuilder().tensor_at(32, "w", {4}, 0, std::string(48, '\0'))) == "gguf.offset");
}

TEST_CASE("data follow the alignment in the file, and the last tensor's padding may be missing") {
  GgufBuilder builder;
  builder.alignment = 256;
  builder.u32("general.alignment", 256).tensor("a", {1}, 0, "aaaa").tensor("b", {1}, 0, "bbbb");
  std::string file = builder.build();
  file.resize(file.size() - 252);
  const GgufContents contents = parse(file);
  CHECK(contents.tensors[1].bytes - reinterpret_cast<const std::byte*>(file.data()) == 512);
  CHECK(*contents.tensors[1].bytes == std::byte{'b'});
  file.pop_back();
  CHECK(fault(file) == "gguf.cut-short");
}

TEST_CASE("a GGUF file truncated at any byte is rejected as truncated or inconsistent") {
  const std::string file = small_gguf().build();
  const std::size_t unpadded = file.size() - 28;
  for (std::size_t size = 4; size < unpadded; ++size) {
    const std::string id = fault(file.substr(0, size));
    INFO(size);
    CHECK(
        (id == "gguf.cut-short" || id == "gguf.pair-count" || id == "gguf.tensor-count" || id == "gguf.array-length"));
  }
  CHECK(fault(file.substr(0, unpadded)).empty());
}

TEST_CASE("no number of a header leads outside the file") {
  const GgufBytes sound = small_gguf().bytes();
  const std::uint64_t values[] = {
      0, 1, 0x7f, 0xff, 0x7fffffff, 0x80000000, 0xffffffff, ~std::uint64_t{0} >> 1, ~std::uint64_t{0}};
  for (const auto [offset, size] : sound.places()) {
    for (const std::uint64_t value : values) {
      std::string file = sound.content();
      std::memcpy(file.data() + offset, &value, size);
      try {
        for (const GgufTensor& tensor : parse(file).tensors) {
          const auto begin = static_cast<std::size_t>(tensor.bytes - reinterpret_cast<const std::byte*>(file.data()));
          CHECK(begin + tensor.size_bytes <= file.size());
        }
      } catch (const Error& error) {
        CHECK_THAT(error.id(), Catch::StartsWith("gguf."));
      }
    }
  }
}

TEST_CASE("a million keys are read in less than quadratic time") {
  GgufBuilder file;
  for (int i = 0; i < 1000000; ++i) file.number(std::to_string(i), 0, std::uint8_t{0});
  const std::string keys = file.build();
  CHECK(parse(keys).fields.integer("999999", 0, 0) == 0);
}

TEST_CASE("a split GGUF model is opened by its first shard, which may have no tensors") {
  for (const char* name : {"split-00001-of-00003.gguf", "empty-first-00001-of-00004.gguf"}) {
    const GgufFile file(fixture(std::string{"gguf/"} + name));
    CHECK(file.fields().integer("llama.block_count", 1, 10) == 2);
    REQUIRE(file.tensors().size() == 21);
    const GgufTensor* norm = file.find("output_norm.weight");  // in the last shard
    REQUIRE(norm != nullptr);
    CHECK(norm->shape == std::vector<std::int64_t>{64});
    CHECK(file.find("blk.1.attn_k.weight")->shape == std::vector<std::int64_t>{32, 64});
    CHECK(file.find("absent") == nullptr);
  }
}

TEST_CASE("the shards of a split model have the suffix of the first one") {
  for (const std::string suffix : {"", ".GGUF", ".gguf.part"}) {
    CAPTURE(suffix);
    const TemporaryFolder folder;
    for (const std::string shard : {"split-00001-of-00003", "split-00002-of-00003", "split-00003-of-00003"}) {
      std::filesystem::copy(fixture("gguf/" + shard + ".gguf"), folder.path() / (shard + suffix));
    }
    CHECK(GgufFile(folder.path() / ("split-00001-of-00003" + suffix)).tensors().size() == 21);
    CHECK(gguf_of(folder.path()) == folder.path() / ("split-00001-of-00003" + suffix));
    CHECK_THROWS_WITH(GgufFile(folder.path() / ("split-00002-of-00003" + suffix)),
                      Catch::Contains("Pass the first one, 'split-00001-of-00003" + suffix + "'"));
  }
}

TEST_CASE("an incomplete split model is rejected, naming the shard") {
  const auto shard = [](int number, int count, int total, const char* tensor) {
    GgufBuilder file;
    file.number("split.no", gguf_u16, static_cast<std::uint16_t>(number));
    file.number("split.count", gguf_u16, static_cast<std::uint16_t>(count));
    file.number("split.tensors.count", gguf_i32, total);
    return file.tensor(tensor, {1}, 0, "aaaa").build();
  };
  const TemporaryFolder folder;
  const auto first = folder.write("m-00001-of-00002.gguf", shard(0, 2, 2, "a"));
  const auto error = [&](const std::filesystem::path& path) -> std::string {
    try {
      GgufFile file(path);
      return {};
    } catch (const Error& fault) {
      return fault.what();
    }
  };
  CHECK_THAT(error(first), Catch::Contains("m-00002-of-00002.gguf") && Catch::Contains("gguf.missing-shard"));
  const auto second = folder.write("m-00002-of-00002.gguf", shard(1, 2, 2, "b"));
  CHECK(error(first).empty());
  CHECK_THAT(error(second), Catch::Contains("m-00001-of-00002.gguf") && Catch::Contains("gguf.not-first-shard"));
  CHECK_THAT(error(folder.write("other.gguf", shard(0, 2, 2, "a"))),
             Catch::Contains("-00001-of-00002") && Catch::Contains("gguf.shard-name"));
  CHECK_THAT(error(folder.write("other.gguf", shard(1, 2, 2, "a"))), Catch::Contains("gguf.not-first-shard"));
  folder.write("m-00002-of-00002.gguf", shard(0, 2, 2, "b"));
  CHECK_THAT(error(first), Catch::Contains("split.no") && Catch::Contains("gguf.other-shard"));
  folder.write("m-00002-of-00002.gguf", shard(1, 3, 2, "b"));
  CHECK_THAT(error(first), Catch::Contains("split.count") && Catch::Contains("gguf.other-shard"));
  folder.write("m-00002-of-00002.gguf", shard(1, 2, 3, "b"));
  CHECK_THAT(error(first), Catch::Contains("split.tensors.count") && Catch::Contains("gguf.other-shard"));
  folder.write("m-00002-of-00002.gguf", shard(1, 2, 2, "a"));
  CHECK_THAT(error(first), Catch::Contains("'a'") && Catch::Contains("gguf.duplicate-tensor"));
  folder.write("m-00001-of-00002.gguf", shard(0, 2, 3, "a"));
  folder.write("m-00002-of-00002.gguf", shard(1, 2, 3, "b"));
  CHECK_THAT(error(first), Catch::Contains("2 tensors") && Catch::Contains("gguf.shard-tensors"));
}

TEST_CASE("two tensors of one name in a GGUF file are rejected") {
  const TemporaryFolder folder;
  const auto path = folder.write("m.gguf", with_tensor({4}, 0, 16).tensor("w", {4}, 0, std::string(16, '\0')).build());
  CHECK_THROWS_WITH(GgufFile(path), Catch::Contains("'w'") && Catch::Contains("gguf.duplicate-tensor"));
}
