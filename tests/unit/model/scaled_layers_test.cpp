// Layers in GPTQ, FP8 and 8-bit integers are found, checked and dequantized to the values that NumPy computed.
#include <catch2/catch.hpp>
#include <functional>

#include "slm/io/safetensors.hpp"
#include "slm/model/weight_reader.hpp"
#include "support/damaged_layers.hpp"
#include "support/paths.hpp"

using namespace slm;
using namespace slm::testing;
using namespace slm::testing::damage;

namespace {

/// One layer of the fixture, as the layer 'odd' of a model.
struct Published {
  EditableCheckpoint checkpoint;
  std::int64_t out = 0, in = 0;
  std::string kept;
  std::vector<float> expected;
};

Published published(const std::string& name) {
  static const Safetensors layers(fixture("quantized/layers.safetensors"));
  static const auto described = read_json_object(fixture("quantized/layers.json"));
  Published found{.checkpoint = quantized_with(gemm), .kept = described.at(name).at("kept"), .expected = {}};
  found.out = described.at(name).at("shape")[0];
  found.in = described.at(name).at("shape")[1];
  found.checkpoint.config["quantization_config"] = described.at(name).at("config");
  for (const auto& [key, tensor] : layers.tensors) {
    if (!key.starts_with(name + ".")) continue;
    const std::string part = key.substr(name.size() + 1);
    if (part == "expected") {
      found.expected.resize(static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), found.expected.data());
      continue;
    }
    OwnedTensor copy("odd." + part, tensor.dtype, tensor.shape);
    std::copy_n(tensor.bytes, tensor.size_bytes, copy.storage.get());
    found.checkpoint.add(std::move(copy));
  }
  return found;
}

constexpr const char* names[] = {
    "fp8-tensor",    "fp8-block",        "fp8-block-16x32", "fp8-channel",   "fp8-ct-block",     "gptq-4-v1",
    "gptq-4-v2-row", "gptq-4-act-order", "gptq-4-uneven",   "gptq-8-v1-sym", "gptq-8-v1",        "gptq-8-v2-act-order",
    "int8-naive",    "int8-packed",      "int8-tensor",     "int8-group",    "int8-packed-group"};

/// The weights of the layer, and the type that holds them.
std::pair<std::string, std::vector<float>> loaded(const Published& layer) {
  const TemporaryFolder folder;
  layer.checkpoint.write(folder.path());
  const Checkpoint opened(folder.path());
  const LinearSource source = detail::packable(linear_source(opened, "odd", layer.out, layer.in));
  std::vector<float> values(static_cast<std::size_t>(layer.out * layer.in));
  if (const auto* int4 = std::get_if<Int4Tensor>(&source)) {
    dequantize(*int4, values.data());
    return {"int4", values};
  }
  const Tensor& tensor = std::get<Tensor>(source);
  convert(tensor, 0, tensor.elements(), values.data());
  return {std::string(name_of(tensor.dtype)), values};
}

std::string fault_of(const Published& layer) {
  try {
    loaded(layer);
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string fault_with(const std::string& name, const std::function<void(EditableCheckpoint&)>& change) {
  Published layer = published(name);
  change(layer.checkpoint);
  return fault_of(layer);
}

}  // namespace

TEST_CASE("layers of every published form have the values that NumPy computed, bit for bit") {
  for (const char* name : names) {
    INFO(name);
    const Published layer = published(name);
    const auto [kept, values] = loaded(layer);
    CHECK(kept == layer.kept);
    CHECK(values == layer.expected);
  }
}

TEST_CASE("statements about published forms that the tensors contradict are refused") {
  const auto set = [](const char* field, Json value) {
    return [field, value](EditableCheckpoint& c) { c.config["quantization_config"][field] = value; };
  };
  const auto without_config = [](EditableCheckpoint& c) { c.config.erase("quantization_config"); };
  CHECK_THAT(fault_with("gptq-4-v1", set("group_size", 64)), Catch::Contains("quant.group-mismatch"));
  CHECK_THAT(fault_with("gptq-4-v1", set("bits", 8)),
             Catch::Contains("quant.wrong-shape") && Catch::Contains("odd.qweight"));
  CHECK_THAT(fault_with("gptq-8-v1", set("bits", 4)), Catch::Contains("quant.wrong-shape"));
  CHECK_THAT(fault_with("gptq-4-v1", set("checkpoint_format", "marlin")), Catch::Contains("quant.unsupported-setting"));
  CHECK_THAT(fault_with("gptq-4-v1", set("quant_method", "awq")),
             Catch::Contains("quant.unsupported-method") && Catch::Contains("quantize_config.json"));
  CHECK_THAT(fault_with("gptq-4-v1", without_config), Catch::Contains("quant.unsupported-method"));
  CHECK_THAT(fault_with("gptq-4-v2-row", without_config),
             Catch::Contains("quant.unsupported-method") && Catch::Contains("quantize_config.json"));
  CHECK_THAT(fault_with("fp8-tensor", set("quant_method", "awq")), Catch::Contains("quant.config-mismatch"));
  CHECK_THAT(fault_with("int8-naive",
                        [](EditableCheckpoint& c) {
                          c.config["quantization_config"] = {{"bits", 4}};
                        }),
             Catch::Contains("quant.config-mismatch"));
  CHECK_THAT(fault_with("fp8-block-16x32", set("weight_block_size", {32, 32})), Catch::Contains("quant.wrong-shape"));
  CHECK_THAT(fault_with("int8-group",
                        [](EditableCheckpoint& c) {
                          c.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 64;
                        }),
             Catch::Contains("quant.group-mismatch") && Catch::Contains("group_0 64"));
  // Without any statement, FP8 and 8-bit integers explain themselves.
  CHECK(fault_with("fp8-block", without_config) == "no error");
  CHECK(fault_with("int8-packed", without_config) == "no error");
}

TEST_CASE("groups of inputs that do not exist are refused by name") {
  for (const std::int32_t wrong : {-1, 4, 1 << 30}) {
    CHECK_THAT(fault_with("gptq-4-act-order", [&](EditableCheckpoint& c) { c.at("odd.g_idx").set(17, wrong); }),
               Catch::Contains("quant.bad-group-index") &&
                   Catch::Contains(text("'odd.g_idx' [17] is ", wrong, ", expected 0..3")));
  }
}

TEST_CASE("any damage to a layer of a published form is an error that names it") {
  int damaged = 0;
  for (const char* name : names) {
    const Published sound = published(name);
    REQUIRE(fault_of(sound) == "no error");
    for (const auto& [key, tensor] : sound.checkpoint.tensors) {
      const bool optional = key.ends_with("g_idx") || key.ends_with("input_scale") || key.ends_with("weight_shape") ||
                            key.ends_with("zero_point");
      if (!key.starts_with("odd.") || key.ends_with("input_scale")) continue;
      const auto check = [&, key = key](const char* how, const std::function<void(EditableCheckpoint&)>& damage) {
        INFO(name << ": '" << key << "' " << how);
        Published layer = sound;
        damage(layer.checkpoint);
        const std::string message = fault_of(layer);
        CHECK_THAT(message, Catch::Contains("odd"));
        CHECK((message.find("[quant.") != std::string::npos || message.find("[checkpoint.") != std::string::npos));
        ++damaged;
      };
      if (!optional) check("is missing", [&](auto& c) { c.tensors.erase(key); });
      for (const DType type : {DType::f64, DType::u8, DType::i64, DType::boolean}) {
        if (type != tensor.dtype)
          check("is of another type", [&](auto& c) { c.add(reshaped(tensor, tensor.shape, type)); });
      }
      std::vector<std::vector<std::int64_t>> shapes{{0}, {3}, {5, 7}, {1, 1, 1, 1}};
      if (tensor.shape.size() == 2) {
        shapes.push_back({tensor.shape[0] + 1, tensor.shape[1]});
        shapes.push_back({tensor.shape[0], tensor.shape[1] + 1});
        shapes.push_back({tensor.shape[0], 0});
      }
      for (const auto& shape : shapes) {
        const bool none = key.ends_with("g_idx") && shape == std::vector<std::int64_t>{0};  // as if there were none
        if (!none) check("has another shape", [&](auto& c) { c.add(reshaped(tensor, shape, tensor.dtype)); });
      }
    }
  }
  CHECK(damaged > 300);
}
