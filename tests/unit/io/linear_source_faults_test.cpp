// Damaged layers of quantized checkpoints: each fault is an error that names the fault and its place.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "slm/io/linear_source.hpp"
#include "support/damaged_layers.hpp"

using namespace slm;
using namespace slm::testing;
using namespace slm::testing::damage;

TEST_CASE("incomplete and duplicate layers") {
  check_refused(gemm, [](auto& c) { c.tensors.erase(down + ".scales"); }, "quant.incomplete-layer",
                {down, "lacks", "scales"});
  check_refused(gemm, [](auto& c) { c.tensors.erase(down + ".qzeros"); }, "quant.incomplete-layer",
                {down, "lacks", "qzeros"});
  check_refused(gemm, [](auto& c) { c.tensors.erase(down + ".qweight"); }, "quant.incomplete-layer",
                {down, "no codes"});
  check_refused(packed_rows, [](auto& c) { c.tensors.erase(down + ".weight_zero_point"); }, "quant.incomplete-layer",
                {down, "weight_zero_point"});
  check_refused(quark, [](auto& c) { c.tensors.erase(down + ".weight_zero_point"); }, "quant.incomplete-layer",
                {down, "weight_zero_point"});
  check_refused(gemm,
                [](auto& c) {
                  for (const char* part : {".qweight", ".scales", ".qzeros"}) c.tensors.erase(down + part);
                },
                "checkpoint.missing-tensor", {down + ".weight", down + ".qweight", "[64, 128]"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(OwnedTensor(down + ".weight", DType::f16, {64, 128}));
                },
                "quant.two-weights", {down + ".weight", down + ".qweight"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(OwnedTensor(down + ".weight_packed", DType::i32, {64, 16}));
                },
                "quant.two-weights", {down + ".weight_packed", down + ".qweight"});
}

TEST_CASE("wrong types and shapes") {
  for (const DType wrong : {DType::i64, DType::u8, DType::f32, DType::i16}) {
    const auto change = [&](auto& c) { c.add(reshaped(c.at(down + ".qweight"), {128, 8}, wrong)); };
    const bool as_gemv_fast = wrong == DType::i16;
    check_refused(gemm, change, as_gemv_fast ? "quant.config-mismatch" : "quant.wrong-dtype", {down + ".qweight"});
  }
  check_refused(gemm,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qweight"), {128, 8}, DType::i64));
                },
                "quant.wrong-dtype", {"I64", "expected I32"});
  check_refused(gemv_fast,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qweight"), {16, 128}, DType::i32));
                },
                "quant.wrong-dtype", {"I32", "expected I16"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".scales"), {4, 64}, DType::i16));
                },
                "quant.wrong-dtype", {"I16", "expected F16, BF16 or F32"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qzeros"), {4, 8}, DType::f32));
                },
                "quant.wrong-dtype", {"qzeros", "F32", "expected I32"});
  check_refused(gemv_fast,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qzeros"), {32, 64}, DType::i16));
                },
                "quant.wrong-dtype", {"qzeros", "I16", "expected F16, BF16 or F32"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qzeros"), {5, 8}, DType::i32));
                },
                "quant.wrong-shape", {"qzeros", "[5, 8]", "expected [4, 8]"});
  check_refused(gemm,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qweight"), {128, 9}, DType::i32));
                },
                "quant.wrong-shape", {"[128, 9]", "expected [128, 8]"});
  check_refused(gemv,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".qzeros"), {64, 5}, DType::i32));
                },
                "quant.wrong-shape", {"[64, 5]", "expected [64, 4]"});  // four groups of 32, padded to four words
  check_refused(gemv,
                [](auto& c) {
                  c.add(reshaped(c.at(down + ".scales"), {64, 8}, DType::f16));
                },
                "quant.wrong-shape", {"[64, 8]", "expected [64, 32]"});
  check_refused(packed_rows, [](auto& c) { c.at(down + ".weight_shape").set(1, std::int64_t{120}); },
                "quant.wrong-shape", {"weight_shape", "[64, 120]", "[64, 128]"});
  check_refused(packed_rows, [](auto& c) { c.add(OwnedTensor(down + ".weight_shape", DType::f32, {2})); },
                "quant.wrong-dtype", {"weight_shape", "F32"});
  check_refused(gemm,
                [](auto& c) {
                  for (const char* part : {".qweight", ".scales", ".qzeros"}) c.tensors.erase(down + part);
                  c.add(OwnedTensor(down + ".weight", DType::f16, {128, 64}));
                },
                "checkpoint.wrong-shape", {down + ".weight", "[128, 64]", "[64, 128]"});
}

TEST_CASE("sizes that a layout does not support") {
  const auto message = [](Int4Layout layout, std::int64_t out, std::int64_t in, int group) {
    EditableCheckpoint checkpoint = quantized_with(layout);
    checkpoint.config["quantization_config"]["group_size"] = group;
    const std::int64_t rows = std::max<std::int64_t>(out, 8), words = (in + 7) / 8;
    switch (layout) {
      case Int4Layout::awq_gemm: checkpoint.add(OwnedTensor("odd.qweight", DType::i32, {in, rows / 8})); break;
      case Int4Layout::awq_gemv: checkpoint.add(OwnedTensor("odd.qweight", DType::i32, {out, words})); break;
      default: checkpoint.add(OwnedTensor("odd.qweight", DType::i16, {out / 4, in}));
    }
    checkpoint.add(OwnedTensor("odd.scales", DType::f16, {in / group, out}));
    checkpoint.add(OwnedTensor("odd.qzeros", DType::i32, {in / group, rows / 8}));
    const TemporaryFolder folder;
    checkpoint.write(folder.path());
    const Checkpoint opened(folder.path());
    try {
      linear_source(opened, "odd", out, in);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK_THAT(message(gemm, 60, 64, 32), Catch::Contains("quant.wrong-shape") && Catch::Contains("layer 'odd'") &&
                                            Catch::Contains("out_features 60 is not a multiple of 8"));
  CHECK_THAT(message(gemv, 64, 60, 20), Catch::Contains("in_features 60 is not a multiple of 8"));
  CHECK_THAT(message(gemv_fast, 62, 128, 32), Catch::Contains("out_features 62 is not a multiple of 4"));
  CHECK_THAT(message(gemv_fast, 64, 96, 32), Catch::Contains("in_features 96 is not a multiple of 64"));
  CHECK_THAT(message(gemm, 64, 4304, 128),
             Catch::Contains("quant.group-size") &&
                 Catch::Contains("in_features 4304 is not a multiple of the group size 128"));
}

TEST_CASE("config.json is compared with the tensors") {
  const auto set = [](const char* name, Json value) {
    return [name, value](EditableCheckpoint& c) { c.config["quantization_config"][name] = value; };
  };
  check_refused(gemm, set("group_size", 64), "quant.group-mismatch", {"group_size 64", "implies 32"});
  check_refused(gemm, set("group_size", -1), "quant.group-mismatch", {"group_size -1", "implies 32"});
  check_refused(gemv, set("group_size", 128), "quant.group-size", {"in_features 64"});
  check_refused(gemm, set("version", "gemv"), "quant.config-mismatch", {"gemm"});
  check_refused(gemv, set("version", "gemm"), "quant.config-mismatch", {"gemv"});
  check_refused(gemv_fast, set("version", "gemm"), "quant.config-mismatch", {"gemv_fast"});
  check_refused(gemm, [](auto& c) { c.config["quantization_config"] = quantization_config({.layout = packed_rows}); },
                "quant.config-mismatch", {".qweight' is a tensor of AutoAWQ", "another method"});
  check_refused(packed_rows, [](auto& c) { c.config["quantization_config"] = quantization_config({.layout = gemm}); },
                "quant.config-mismatch", {"compressed-tensors"});
  check_refused(quark, [](auto& c) { c.config["quantization_config"] = quantization_config({.layout = gemm}); },
                "quant.config-mismatch", {"Quark"});
  check_refused(quark, [](auto& c) { c.config.erase("quantization_config"); }, "quant.no-config", {".weight'"});
  check_refused(gemv,
                [](auto& c) {
                  c.config.erase("quantization_config");
                  c.tensors.erase(down + ".qzeros");
                },
                "quant.incomplete-layer", {"qzeros"});
  check_refused(
      packed_rows,
      [](auto& c) { c.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] = 64; },
      "quant.group-mismatch", {"config_groups.group_0 64", "implies 32"});
  check_refused(quark,
                [](auto& c) {
                  c.config["quantization_config"]["layer_quant_config"] = {
                      {"*.mlp.d*_proj", {{"weight", {{"dtype", "fp8_e4m3"}}}}}};
                },
                "quant.unsupported-setting", {down, "*.mlp.d*_proj", "fp8_e4m3"});
  // No group size stated, and a padded width that 128 and 64 inputs of several group sizes share.
  EditableCheckpoint several = quantized_with(gemv_fast, 64);
  several.config.erase("quantization_config");
  several.add(OwnedTensor("wide.qweight", DType::i16, {1, 8192}));
  several.add(OwnedTensor("wide.scales", DType::f16, {8, 4}));
  several.add(OwnedTensor("wide.qzeros", DType::f16, {8, 4}));
  const TemporaryFolder folder;
  several.write(folder.path());
  const Checkpoint opened(folder.path());
  CHECK(std::get<Int4Tensor>(linear_source(opened, "wide", 4, 8192)).group == 8192);
  several.add(OwnedTensor("narrow.qweight", DType::i32, {8, 128}));  // 1024 inputs: 8 groups of 128, or one of them all
  several.add(OwnedTensor("narrow.scales", DType::f16, {8, 8}));
  several.add(OwnedTensor("narrow.qzeros", DType::i32, {8, 1}));
  several.write(folder.path());
  const Checkpoint again(folder.path());
  CHECK_THROWS_WITH(linear_source(again, "narrow", 8, 1024),
                    Catch::Contains("quant.unknown-group-size") && Catch::Contains("quant_config.json"));
}

TEST_CASE("scales and zero points that are not finite") {
  const float infinity = std::numeric_limits<float>::infinity();
  check_refused(gemm, [](auto& c) { c.at(down + ".scales").set_float(3 * 64 + 17, std::nanf("")); }, "quant.non-finite",
                {down + ".scales' [g=3, n=17] is NaN"});
  check_refused(gemm, [&](auto& c) { c.at(down + ".scales").set_float(0, -infinity); }, "quant.non-finite",
                {"[g=0, n=0] is infinite"});
  check_refused(packed_rows, [](auto& c) { c.at(down + ".weight_scale").set_float(17 * 4 + 3, std::nanf("")); },
                "quant.non-finite", {"[g=3, n=17] is NaN"});
  check_refused(gemv, [](auto& c) { c.at(down + ".scales").set_float(17 * 32 + 3, std::nanf("")); }, "quant.non-finite",
                {"[g=3, n=17] is NaN"});
  check_refused(quark, [](auto& c) { c.at(down + ".weight_scale").set_float(64, std::nanf("")); }, "quant.non-finite",
                {"[g=1, n=0] is NaN"});
  check_refused(gemv_fast, [](auto& c) { c.at(down + ".qzeros").set_float(64 + 5, std::nanf("")); }, "quant.non-finite",
                {"qzeros' [g=1, n=5] is NaN"});
  for (const float wrong : {0.5f, -1000.0f, 1000.0f}) {
    check_refused(gemv_fast,
                  [&](auto& c) {
                    c.at(down + ".scales").set_float(64 + 5, 0.25f);
                    c.at(down + ".qzeros").set_float(64 + 5, wrong);
                  },
                  "quant.bad-zero", {"[g=1, n=5]", "scale 0.25"});
  }
  check_refused(gemv_fast,
                [](auto& c) {
                  c.at(down + ".scales").set_float(64 + 5, 0.25f);
                  c.at(down + ".qzeros").set_float(64 + 5, -0.25f * 7.5f);
                },
                "quant.bad-zero", {"integer z of 0..15"});
  check_refused(gemv_fast,
                [](auto& c) {
                  c.at(down + ".scales").set_float(64 + 5, 0);
                  c.at(down + ".qzeros").set_float(64 + 5, -1);
                },
                "quant.bad-zero", {"[g=1, n=5]"});
}

TEST_CASE("every tensor damaged in every way is an error that names folder and tensor") {
  const DType all_types[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i64,
                             DType::i32, DType::i16, DType::i8,   DType::u8,  DType::boolean};
  int damaged = 0;
  for (const Int4Layout layout : all_layouts) {
    const EditableCheckpoint sound = quantized_with(layout);
    REQUIRE(fault(sound).empty());
    for (const auto& [name, tensor] : sound.tensors) {
      if (!name.starts_with("model.layers.0.") || name.find("norm") != std::string::npos) continue;
      const auto check = [&](const char* how, const std::function<void(EditableCheckpoint&)>& damage) {
        INFO(name_of(layout) << ": '" << name << "' " << how);
        EditableCheckpoint checkpoint = sound;
        damage(checkpoint);
        const std::string message = fault(checkpoint);
        const bool named = message.find(name.substr(0, name.rfind('.'))) != std::string::npos;
        CHECK(named);
        // Quark's codes as floats are a floating-point layer of the wrong shape.
        const bool known = message.find("[quant.") != std::string::npos ||
                           message.find("[checkpoint.wrong-shape]") != std::string::npos;
        CHECK(known);
        ++damaged;
      };
      const bool is_shape = name.ends_with("weight_shape");
      if (!is_shape) check("is missing", [&](auto& c) { c.tensors.erase(name); });
      for (const DType dtype : all_types) {
        const bool floats = is_floating_point(tensor.dtype) && is_floating_point(dtype);
        const bool extents = is_shape && dtype == DType::i32;  // valid types, and then wrong values
        if (dtype == tensor.dtype || floats || extents) continue;
        check("is of another type", [&](auto& c) { c.add(reshaped(tensor, tensor.shape, dtype)); });
      }
      std::vector<std::vector<std::int64_t>> shapes{{}, {0}, {tensor.elements()}};
      if (tensor.shape.size() == 2) {
        const std::int64_t a = tensor.shape[0], b = tensor.shape[1];
        for (const auto& extents : {std::vector{a + 1, b},
                                    {a - 1, b},
                                    {a, b + 1},
                                    {a, b - 1},
                                    {a * 2, b},
                                    {a, b * 2},
                                    {a / 2, b},
                                    {a, b / 2},
                                    {0, b},
                                    {a, 0},
                                    {a, b, 1},
                                    {1, a, b}}) {
          shapes.push_back(extents);
        }
        if (a != b) shapes.push_back({b, a});
      } else {
        shapes.push_back({3});
        shapes.push_back({1, 2});
        std::erase(shapes, std::vector<std::int64_t>{2});
      }
      for (const auto& extents : shapes) {
        check(shape_text(extents).c_str(), [&](auto& c) { c.add(reshaped(tensor, extents, tensor.dtype)); });
      }
      if (is_floating_point(tensor.dtype)) {
        for (const std::int64_t at : {std::int64_t{0}, tensor.elements() / 2, tensor.elements() - 1}) {
          check("holds NaN", [&](auto& c) {
            OwnedTensor broken = reshaped(tensor, tensor.shape, tensor.dtype);
            broken.set_float(at, std::nanf(""));
            c.add(std::move(broken));
          });
        }
      }
    }
  }
  CHECK(damaged > 2000);
}
