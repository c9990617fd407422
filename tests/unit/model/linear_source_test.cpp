// Layers of quantized checkpoints: what is found, and the error of each thing that can be wrong with them.
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "slm/model/activation_scales.hpp"
#include "slm/model/linear_source.hpp"
#include "support/int4_layers.hpp"
#include "support/quantized_checkpoint.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

constexpr ModelConfig shape{
    .layers = 1, .hidden = 64, .ffn = 128, .heads = 2, .kv_heads = 1, .head_dim = 64, .vocab = 16};
const std::string down = "model.layers.0.mlp.down_proj";       // [64, 128]
const std::string square = "model.layers.0.self_attn.k_proj";  // [64, 64]
constexpr std::int64_t down_out = 64, down_in = 128;

/// A floating-point model in a folder, for as long as the tests run.
const Checkpoint& original() {
  static const TemporaryFolder folder;
  static const Checkpoint checkpoint = [] {
    write_random_checkpoint<half_t>(folder.path(), shape, 21);
    return Checkpoint(folder.path());
  }();
  return checkpoint;
}

EditableCheckpoint quantized_with(Int4Layout layout, int group = 32, bool symmetric = false) {
  return quantized(original(), {.layout = layout, .group = group, .symmetric = symmetric});
}

std::vector<TensorName> matrices() {
  const TensorNames names(shape);
  std::vector<TensorName> all;
  for (const Role role : {Role::qkv, Role::attention_out, Role::gate_up, Role::down}) {
    const auto part = names.weights(role);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::string module_of(const TensorName& weight) { return weight.name.substr(0, weight.name.rfind('.')); }

/// Opens a checkpoint and looks all its layers up, as loading a model does.
void look_up(const EditableCheckpoint& checkpoint) {
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  const Checkpoint opened(folder.path());
  for (const TensorName& weight : matrices()) {
    const LinearSource source = linear_source(opened, module_of(weight), weight.shape[0], weight.shape[1]);
    REQUIRE(out_features(source) == weight.shape[0]);
    REQUIRE(in_features(source) == weight.shape[1]);
    if (const auto* int4 = std::get_if<Int4Tensor>(&source)) unpack(*int4, 0, int4->out);
  }
}

/// The error's text, "" for none.
std::string fault(const EditableCheckpoint& checkpoint) {
  try {
    look_up(checkpoint);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

/// Damages a checkpoint of this layout; its error has the id and all the words.
void check_refused(Int4Layout layout, const std::function<void(EditableCheckpoint&)>& damage, const std::string& id,
                   std::initializer_list<std::string> words) {
  EditableCheckpoint checkpoint = quantized_with(layout);
  REQUIRE(fault(checkpoint).empty());
  damage(checkpoint);
  const std::string message = fault(checkpoint);
  CHECK_THAT(message, Catch::Contains("[" + id + "]"));
  CHECK_THAT(message, Catch::Contains(std::filesystem::temp_directory_path().string()));  // the folder or file
  for (const std::string& word : words) CHECK_THAT(message, Catch::Contains(word));
}

OwnedTensor reshaped(const OwnedTensor& tensor, std::vector<std::int64_t> extents, DType dtype) {
  OwnedTensor other(tensor.name, dtype, std::move(extents));
  std::copy_n(tensor.bytes, std::min(tensor.size_bytes, other.size_bytes), other.storage.get());
  return other;
}

void rename(EditableCheckpoint& checkpoint, const std::string& from, const std::string& to) {
  OwnedTensor tensor = checkpoint.at(from);
  checkpoint.tensors.erase(from);
  tensor.name = to;
  checkpoint.add(std::move(tensor));
}

constexpr auto gemm = Int4Layout::awq_gemm;
constexpr auto gemv = Int4Layout::awq_gemv;
constexpr auto gemv_fast = Int4Layout::awq_gemv_fast;
constexpr auto packed_rows = Int4Layout::packed_rows;
constexpr auto quark = Int4Layout::quark_reorder;

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

TEST_CASE("what else tools write is read") {
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
  SECTION("no config: the gemv layouts where only one group size fits the padded width") {
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

TEST_CASE("incomplete and doubled layers") {
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

TEST_CASE("sizes that a layout cannot hold") {
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

TEST_CASE("what config.json says is compared with the tensors") {
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

TEST_CASE("scales and zero points that are no numbers") {
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

TEST_CASE("a square layer is told apart by its scales") {
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
        const bool extents = is_shape && dtype == DType::i32;  // legal types, and then wrong values
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
  CHECK_FALSE(matches(stars + "a*a*a*a*a*a*a*a*b", many));  // and in no time
}
