// Layers of quantized checkpoints in every layout, and variants of other tools.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "slm/io/activation_scales.hpp"
#include "slm/io/linear_search.hpp"
#include "slm/io/linear_source.hpp"
#include "support/damaged_layers.hpp"

using namespace slm;
using namespace slm::testing;
using namespace slm::testing::damage;

namespace {

const std::string square = "model.layers.0.self_attn.k_proj";  // [64, 64]

void rename(EditableCheckpoint& checkpoint, const std::string& from, const std::string& to) {
  OwnedTensor tensor = checkpoint.at(from);
  checkpoint.tensors.erase(from);
  tensor.name = to;
  checkpoint.add(std::move(tensor));
}

}  // namespace

TEST_CASE("layers of every layout are found, checked and described") {
  for (const Int4Layout layout : all_layouts) {
    for (const int group : {32, 64, -1}) {
      INFO(name_of(layout) << " group " << group);
      const EditableCheckpoint checkpoint = quantized_with(layout, group);
      const TemporaryFolder folder;
      checkpoint.write(folder.path());
      const Checkpoint opened(folder.path());
      CHECK(has_int4_layers(opened));
      const auto layer = std::get<Int4Tensor>(linear_source(opened, down, down_out, down_in));
      CHECK(layer.layout == layout);
      CHECK(layer.group == (group == -1 ? down_in : group));
      CHECK(layer.name == down);
      const Int4Rows expected = round_to_nearest(*original().find(down + ".weight"), {.group = group});
      const Int4Rows rows = unpack(layer, 0, down_out);
      CHECK(rows.codes == expected.codes);
      CHECK(rows.zeros == expected.zeros);
      CHECK(rows.scales == expected.scales);
      CHECK(std::get<Tensor>(linear_source(opened, "lm_head", 16, 64)).dtype == DType::f16);
    }
  }
  CHECK_FALSE(has_int4_layers(original()));
}

TEST_CASE("variants of other tools are read") {
  const auto loads = [](EditableCheckpoint checkpoint, const std::function<void(EditableCheckpoint&)>& change) {
    change(checkpoint);
    CHECK(fault(checkpoint) == "");
  };
  const auto without_config = [](EditableCheckpoint& c) { c.config.erase("quantization_config"); };
  SECTION("no config: AutoAWQ gemm and compressed-tensors, at any group size") {
    for (const int group : {8, 16, 32, 64, -1}) {
      loads(quantized_with(gemm, group), without_config);
      loads(quantized_with(packed_rows, group), without_config);
    }
  }
  SECTION("no config: the gemv layouts if only one group size fits the padded width") {
    // 64 inputs are 1, 1 or 2 groups of -1, 64 and 32: padded to 1 (or 2) words, 2 and 4.
    loads(quantized_with(gemv, 64), without_config);
    loads(quantized_with(gemv_fast, 32), without_config);
  }
  SECTION("AutoRound's names for AutoAWQ's layout") {
    loads(quantized_with(gemm, 32, true), [](EditableCheckpoint& c) {
      c.config["quantization_config"] = {{"quant_method", "auto-round"},
                                         {"packing_format", "auto_round:auto_awq"},
                                         {"bits", 4},
                                         {"group_size", 32},
                                         {"sym", true}};
    });
  }
  SECTION("symmetric AutoAWQ layers without zero points") {
    for (const Int4Layout layout : {gemm, gemv, gemv_fast}) {
      loads(quantized_with(layout, 32, true), [](EditableCheckpoint& c) { c.tensors.erase(down + ".qzeros"); });
    }
  }
  SECTION("llm-awq's name of the zeros, and its version word") {
    loads(quantized_with(gemv_fast), [](EditableCheckpoint& c) {
      rename(c, down + ".qzeros", down + ".scaled_zeros");
      c.config["quantization_config"]["backend"] = "llm-awq";
      c.config["quantization_config"]["version"] = "gemv";
    });
  }
  SECTION("exllama versions are gemm on disk") {
    for (const char* version : {"exllama", "exllamav2"}) {
      loads(quantized_with(gemm), [&](EditableCheckpoint& c) { c.config["quantization_config"]["version"] = version; });
    }
  }
  SECTION("compressed-tensors without weight_shape, and with an I32 one") {
    loads(quantized_with(packed_rows), [](EditableCheckpoint& c) { c.tensors.erase(down + ".weight_shape"); });
    loads(quantized_with(packed_rows), [](EditableCheckpoint& c) {
      OwnedTensor extents(down + ".weight_shape", DType::i32, {2});
      extents.set(0, std::int32_t{64});
      extents.set(1, std::int32_t{128});
      c.add(std::move(extents));
    });
  }
  SECTION("several config groups, some layers symmetric or in other groups") {
    EditableCheckpoint checkpoint = quantized_with(packed_rows, 32);
    const EditableCheckpoint other = quantized_with(packed_rows, 64, true);
    for (const char* part : {".weight_packed", ".weight_scale", ".weight_shape"})
      checkpoint.add(other.tensors.at(down + part));
    checkpoint.tensors.erase(down + ".weight_zero_point");
    CHECK_THAT(fault(checkpoint), Catch::Contains("quant.group-mismatch"));
    checkpoint.config["quantization_config"]["config_groups"]["group_1"] =
        other.config["quantization_config"]["config_groups"]["group_0"];
    CHECK(fault(checkpoint) == "");
  }
  SECTION("Quark: other names, a head in other groups, padded outputs") {
    for (const auto& [scale, zero] :
         {std::pair{".weight_quantizer.scale", ".weight_quantizer.zero_point"}, std::pair{".qscales", ".qqzeros"}}) {
      loads(quantized_with(quark), [&](EditableCheckpoint& c) {
        rename(c, down + ".weight_scale", down + scale);
        rename(c, down + ".weight_zero_point", down + zero);
      });
    }
    EditableCheckpoint checkpoint = quantized_with(quark);
    Int4Rows head = random_rows(13, 64, 16, 3);  // thirteen outputs: codes are padded to sixteen
    for (OwnedTensor& part : pack_int4(head, "lm_head", {.layout = quark, .twos_complement = true}))
      checkpoint.add(std::move(part));
    checkpoint.config["quantization_config"]["layer_quant_config"] = {
        {"*lm_?ead", {{"weight", {{"dtype", "int4"}, {"group_size", 16}, {"qscheme", "per_group"}}}}}};
    for (const bool padded_scales : {false, true}) {
      if (padded_scales) {
        OwnedTensor scales("lm_head.weight_scale", DType::f32, {4, 16});
        for (std::int64_t n = 0; n < 13; ++n) {
          for (std::int64_t g = 0; g < 4; ++g)
            scales.set_float(16 * g + n, head.scales[static_cast<std::size_t>(4 * n + g)]);
        }
        checkpoint.add(std::move(scales));
      }
      const TemporaryFolder folder;
      checkpoint.write(folder.path());
      const Checkpoint opened(folder.path());
      const auto layer = std::get<Int4Tensor>(linear_source(opened, "lm_head", 13, 64));
      CHECK(layer.group == 16);
      CHECK(layer.twos_complement);
      const Int4Rows rows = unpack(layer, 0, 13);
      CHECK(rows.codes == head.codes);
      CHECK(rows.zeros == head.zeros);
      CHECK(rows.scales == head.scales);
    }
  }
  SECTION("scales that are negative, zero or subnormal") {
    for (const Int4Layout layout : {gemm, gemv, packed_rows, quark}) {
      loads(quantized_with(layout), [&](EditableCheckpoint& c) {
        OwnedTensor& scales = c.at(down + (layout == gemm || layout == gemv ? ".scales" : ".weight_scale"));
        scales.set(0, std::uint16_t{0x8000});
        scales.set(1, std::uint16_t{0x0001});
        scales.set(2, std::uint16_t{0xbc00});
        scales.set(3, std::uint16_t{0});
      });
    }
  }
}

TEST_CASE("a fused projection is one layer of the fused shape") {
  EditableCheckpoint checkpoint = quantized_with(gemm);
  const Int4Rows rows = random_rows(128 + 64 + 64, 64, 32, 4);
  for (OwnedTensor& part : pack_int4(rows, "model.layers.0.self_attn.qkv_proj")) checkpoint.add(std::move(part));
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  const Checkpoint opened(folder.path());
  const auto layer = std::get<Int4Tensor>(linear_source(opened, "model.layers.0.self_attn.qkv_proj", 256, 64));
  CHECK(unpack(layer, 128, 64).codes ==
        std::vector(rows.codes.begin() + 128 * 64, rows.codes.begin() + (128 + 64) * 64));
}

TEST_CASE("layers of other schemes are recognised by their tensors") {
  const auto add = [](const char* part, DType dtype, std::vector<std::int64_t> extents) {
    return [=](EditableCheckpoint& c) { c.add(OwnedTensor(down + part, dtype, extents)); };
  };
  check_refused(gemm, add(".g_idx", DType::i32, {128}), "quant.unsupported-method", {"g_idx", "GPTQ"});
  check_refused(packed_rows, add(".weight_g_idx", DType::i32, {128}), "quant.unsupported-method",
                {"weight_g_idx", "activation order"});
  check_refused(gemm, add(".pre_quant_scale", DType::f32, {128}), "quant.unsupported-method",
                {"pre_quant_scale", "ModelOpt"});
  check_refused(gemm, add(".qweight", DType::i32, {128 / 8, 64}), "quant.unsupported-method", {"GPTQ"});
  check_refused(gemm, add(".qweight", DType::i32, {128 / 16, 2 * 64}), "quant.unsupported-method", {"Marlin"});
  check_refused(gemm,
                [](auto& c) {
                  for (const char* part : {".qweight", ".scales", ".qzeros"}) c.tensors.erase(down + part);
                  c.add(OwnedTensor(down + ".weight", DType::u8, {4096, 1}));
                  c.add(OwnedTensor(down + ".weight.absmax", DType::f32, {128}));
                },
                "quant.unsupported-method", {"bitsandbytes"});
  for (const char* name : {"", "_packed", ".weight_packed"}) {
    check_refused(
        packed_rows,
        [&](auto& c) {
          for (const char* part : {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_shape"}) {
            c.tensors.erase(down + part);
          }
          c.add(OwnedTensor(down + name, DType::i32, {4, 64, 16}));
          if (std::string(name) == ".weight_packed") c.add(OwnedTensor(down + ".weight_scale", DType::f16, {4, 64, 4}));
        },
        "quant.fused-experts", {"[4, 64, 16]", "experts"});
  }
}

TEST_CASE("the layout of a square layer follows from its scales") {
  for (const bool with_config : {true, false}) {
    EditableCheckpoint as_gemm = quantized_with(gemm, 32), as_gemv = quantized_with(gemv, 32);
    for (EditableCheckpoint* checkpoint : {&as_gemm, &as_gemv}) {
      if (with_config) {
        checkpoint->config["quantization_config"].erase("version");
      } else {
        checkpoint->config.erase("quantization_config");
      }
      const TemporaryFolder folder;
      checkpoint->write(folder.path());
      const Checkpoint opened(folder.path());
      const auto layer = std::get<Int4Tensor>(linear_source(opened, square, 64, 64));
      CHECK(layer.layout == (checkpoint == &as_gemm ? gemm : gemv));
      CHECK(layer.group == 32);
    }
  }
}

TEST_CASE("scales of an activation") {
  EditableCheckpoint checkpoint = quantized_with(gemm);
  const std::string act = "transformer.blocks.0.ffn.act";
  OwnedTensor scales(act + ".scales", DType::f16, {128});
  for (std::int64_t i = 0; i < 128; ++i) scales.set_float(i, 0.5f + static_cast<float>(i));
  const auto read = [&](const OwnedTensor& tensor, std::int64_t width) {
    EditableCheckpoint copy = checkpoint;
    copy.add(tensor);
    const TemporaryFolder folder;
    copy.write(folder.path());
    const Checkpoint opened(folder.path());
    CHECK_FALSE(activation_scales(opened, "transformer.blocks.1.ffn.act", width));
    const auto found = activation_scales(opened, act, width);
    float last = 0;
    convert(found.value(), width - 1, 1, &last);
    return last;
  };
  CHECK(read(scales, 128) == 127.5f);
  CHECK_THROWS_WITH(read(scales, 64), Catch::Contains("checkpoint.wrong-shape") && Catch::Contains(act + ".scales"));
  for (const float wrong : {0.0f, std::nanf("")}) {
    OwnedTensor broken = reshaped(scales, {128}, DType::f16);
    broken.set_float(7, wrong);
    CHECK_THROWS_WITH(read(broken, 128), Catch::Contains("quant.non-finite") && Catch::Contains("[7]"));
  }
  CHECK_THROWS_WITH(read(reshaped(scales, {128}, DType::i16), 128), Catch::Contains("checkpoint.wrong-dtype"));
}

TEST_CASE("patterns of layer names") {
  using detail::matches;
  CHECK(matches("*", ""));
  CHECK(matches("lm_head", "lm_head"));
  CHECK_FALSE(matches("lm_head", "model.lm_head"));
  CHECK(matches("*lm_head", "model.lm_head"));
  CHECK(matches("model.layers.*.mlp.*_proj", "model.layers.10.mlp.up_proj"));
  CHECK_FALSE(matches("model.layers.*.mlp.*_proj", "model.layers.10.mlp.gate"));
  CHECK(matches("a?c*", "abc"));
  CHECK_FALSE(matches("a?c", "ac"));
  const std::string stars(200, '*'), many(20000, 'a');
  CHECK_FALSE(matches(stars + "a*a*a*a*a*a*a*a*b", many));  // and in little time
}
