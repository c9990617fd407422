// Untrusted JSON: the limits of depth and size, and its excerpts in messages.
#include "slm/io/json.hpp"
#include "slm/io/config_json.hpp"
#include "slm/io/quantization_json.hpp"
#include "slm/io/safetensors.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iterator>

#include "slm/io/checkpoint.hpp"
#include "slm/text/chat.hpp"
#include "slm/text/tokenizer.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::string nested(int levels) {
  return std::string(static_cast<std::size_t>(levels), '[') + std::string(static_cast<std::size_t>(levels), ']');
}

/// A safetensors file of this header and four bytes of data.
std::string safetensors_of(const std::string& header) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(4, '\1');
}

void parse_header(const std::string& header) {
  const std::string file = safetensors_of(header);
  parse_safetensors({reinterpret_cast<const std::byte*>(file.data()), file.size()}, "a.safetensors");
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The exception's message; empty without an exception.
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Calls visit(changed) for every string, number and name of `whole` with that one replaced by `word`.
void for_each_change(const Json& whole, const std::string& word, const std::function<void(const Json&)>& visit) {
  const Json flat = whole.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    Json changed = whole;
    changed[Json::json_pointer(pointer)] = word;
    visit(changed);
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      if (!whole[at.parent_pointer()].is_object()) continue;
      changed = whole;
      changed[at.parent_pointer()].erase(at.back());
      changed[at.parent_pointer()][word] = whole[at];
      visit(changed);
    }
  }
}

}  // namespace

TEST_CASE("JSON is read up to the depth limit and rejected beyond it, before a value is built") {
  CHECK(parse_json(nested(deepest_json), "a.json").is_array());
  for (const int levels : {deepest_json + 1, 1'000'000}) {
    CHECK(error_id([&] { parse_json(nested(levels), "a.json"); }) == "json.too-deep");
    CHECK(error_id([&] { parse_json(std::string(static_cast<std::size_t>(levels), '['), "a.json"); }) ==
          "json.too-deep");
    std::string objects;
    for (int i = 0; i < levels; ++i) objects += "{\"a\":";
    CHECK(error_id([&] { parse_json(objects, "a.json"); }) == "json.too-deep");
  }
  CHECK(error_id([&] { parse_json(std::string(largest_json + 1, ' '), "a.json"); }) == "json.too-large");
}

TEST_CASE("the limits apply to every JSON file of a model folder") {
  const std::string deep = nested(100'000), one_field = "{\"field\": " + deep + "}";
  CHECK(error_id([&] { parse_header("{\"w\":{\"dtype\":" + deep + ",\"shape\":[1],\"data_offsets\":[0,4]}}"); }) ==
        "json.too-deep");
  CHECK(error_id([&] { Tokenizer::parse(one_field); }) == "json.too-deep");

  const TemporaryFolder folder;
  const auto open = [&] { Checkpoint{folder.path()}; };
  folder.write("config.json", "{\"hidden_size\": " + deep + ", \"n_embd\": 5}");
  CHECK(error_id(open) == "json.too-deep");
  write_random_checkpoint<float>(folder.path(), tiny_shape, 1);
  CHECK(error_id(open) == "no error");
  for (const char* name :
       {"generation_config.json", "quantization_config.json", "quant_config.json", "quantize_config.json"}) {
    folder.write(name, one_field);
    CHECK(error_id(open) == "json.too-deep");
    std::filesystem::remove(folder.path() / name);
  }
  std::filesystem::remove(folder.path() / "model.safetensors");
  folder.write("model.safetensors.index.json", one_field);
  CHECK(error_id(open) == "json.too-deep");
  folder.write("tokenizer.json", one_field);
  CHECK(error_id([&] { read_vocabulary(folder.path()); }) == "json.too-deep");
  folder.write("tokenizer_config.json", one_field);
  CHECK(error_id([&] { ChatTemplate::from(folder.path()); }) == "json.too-deep");
}

TEST_CASE("a message contains only a short excerpt of any word, without control characters") {
  const std::string hostile = "\x1b[2J\nslm: \xc2\x9b" + std::string(100'000, 'x') + "[*]";
  int refused = 0;
  const auto check = [&](const std::function<void()>& action) {
    const std::string message = message_of(action);
    refused += !message.empty();
    if (message.size() > 1500) FAIL(message.size() << " bytes: " << message.substr(0, 300));
    for (const char byte : message) {
      if (byte < 0x20 || byte == 0x7f) FAIL("a control character: " << message);
    }
  };
  const auto seeds = [](const char* fuzzer) {
    std::vector<Json> found;
    const auto folder = source_path("tests") / "fuzz" / "corpus" / fuzzer;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("deep")) found.push_back(Json::parse(content_of(entry.path())));
    }
    REQUIRE(found.size() > 3);
    return found;
  };
  for (const Json& seed : seeds("config_json")) {
    for_each_change(seed, hostile, [&](const Json& json) { check([&] { read_config_json(json, "f"); }); });
  }
  for (const Json& seed : seeds("quantization_json")) {
    for_each_change(seed, hostile, [&](const Json& json) { check([&] { read_quantization_json(json, "f"); }); });
  }
  const Json header{{"w", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}};
  for_each_change(header, hostile, [&](const Json& json) { check([&] { parse_header(json.dump()); }); });
  Json named{{hostile, header["w"]}};  // a valid name, and several faults
  for_each_change(named, "0", [&](const Json& json) { check([&] { parse_header(json.dump()); }); });
  check([&] { parse_json("{\"" + hostile + "\": 1}", "f"); });
  check(
      [&] { parse_json("{\"" + std::string(100'000, 'x') + "\": 1, \"" + std::string(100'000, 'x') + "\": 2}", "f"); });
  CHECK(refused > 100);
}

TEST_CASE("a file may contain the numbers that Python writes beside those of JSON") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "config.json";
  const auto read = [&](const char* source) {
    std::ofstream(path) << source;
    return read_json_object(path);
  };
  const Json found = read(R"({"limit": [0.0, Infinity], "low": -Infinity, "none": NaN, "a \"NaN": "Infinity \\"})");
  CHECK(found["limit"] == Json{0.0, "Infinity"});
  CHECK(found["low"] == "-Infinity");
  CHECK(found["none"] == "NaN");
  CHECK(found["a \"NaN"] == "Infinity \\");
  for (const char* source : {R"({"a": Infinit})", R"({"a": Infinity)", R"({"a": "Infinity)", R"({"a": InfinityNaN})",
                             R"({"a": "\)", "{\"a\": nan}"})
    CHECK(error_id([&] { read(source); }) == "json.malformed");
}
