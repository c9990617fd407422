#include <catch2/catch.hpp>

#include "slm/io/checkpoint.hpp"
#include "slm/io/quantization_json.hpp"
#include "support/random_checkpoint.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;
using Method = QuantizationSettings::Method;
using Version = QuantizationSettings::Version;

namespace {

StatedQuantization read(const std::string& json) {
  return read_quantization_json(parse_json_object(json, "config.json"), "config.json");
}

/// The error's text; every one names the file.
std::string fault(const std::string& json) {
  try {
    read(json);
    return "no error";
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Catch::Contains("config.json"));
    return error.what();
  }
}

/// The error of `json` has all these words.
void check_refused(const std::string& json, std::initializer_list<std::string> words) {
  const std::string message = fault(json);
  for (const std::string& word : words) CHECK_THAT(message, Catch::Contains(word));
}

std::string group_config(const std::string& weights, const std::string& rest = "") {
  return R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {"targets":
            ["Linear"], "weights": {)" +
         weights + "}" + rest + "}}}";
}

std::string quark_config(const std::string& weight, const std::string& rest = "") {
  return R"({"quant_method": "quark", "global_quant_config": {"weight": {)" + weight + "}}" + rest + "}";
}

}  // namespace

TEST_CASE("AutoAWQ's settings, of old and new writers") {
  QuantizationSettings settings = read(R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true,
    "version": "GEMM", "backend": "autoawq", "do_fuse": false, "modules_to_not_convert": ["gate"], "exllama_config": {}})");
  CHECK(settings.method == Method::awq);
  CHECK(settings.version == Version::gemm);
  CHECK(settings.file == "config.json");
  REQUIRE(settings.rules.size() == 1);
  CHECK(settings.rules[0].group == 128);
  CHECK(settings.rules[0].symmetric == false);

  settings = read(R"({"zero_point": true, "q_group_size": 64, "w_bit": 4, "version": "gemv_fast"})");
  CHECK(settings.method == Method::awq);
  CHECK(settings.version == Version::gemv_fast);
  CHECK(settings.rules[0].group == 64);

  CHECK(read(R"({"bits": 4, "group_size": -1, "zero_point": false})").rules[0].symmetric == true);
  CHECK(read(R"({"bits": 4, "group_size": -1})").rules[0].group == -1);
  CHECK(read(R"({"bits": 4})").rules[0].group == 0);
  CHECK(read(R"({"quant_method": "awq", "bits": 4, "sym": true})").rules[0].symmetric == true);
  CHECK(read(R"({"quant_method": "AWQ", "version": "exllamav2"})").version == Version::gemm);
  CHECK(read(R"({"quant_method": "awq", "version": "GEMV"})").version == Version::gemv);
  CHECK(read(R"({"quant_method": "awq", "format": "gemm"})").version == Version::gemm);
  CHECK(read(R"({"quant_method": "awq", "checkpoint_format": "gemm"})").version == Version::gemm);
  CHECK(read(R"({"quant_method": "awq", "version": null})").version == Version::unstated);
  CHECK(read(R"({"quant_method": "awq", "backend": "llm-awq", "version": "gemv"})").version == Version::unstated);
  CHECK(read(R"({"quant_method": "awq", "dynamic": {"-:.*gate.*": {}}})").method == Method::awq);
  CHECK(read("{}").method == Method::none);
}

TEST_CASE("AutoRound's exports count as AutoAWQ's if they declare it") {
  const auto settings = read(R"({"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4,
    "group_size": 128, "sym": true, "iters": 200, "data_type": "int"})");
  CHECK(settings.method == Method::awq);
  CHECK(settings.rules[0].symmetric == true);
  CHECK(read(R"({"quant_method": "intel/auto-round", "packing_format": "auto_round:auto_awq"})").method == Method::awq);
  CHECK_THAT(fault(R"({"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq", "bits": 4})"),
             Catch::Contains("quant.unsupported-method") && Catch::Contains("auto_gptq"));
}

TEST_CASE("config groups of compressed-tensors") {
  QuantizationSettings settings =
      read(group_config(R"("num_bits": 4, "type": "int", "symmetric": false, "strategy": "group", "group_size": 32)"));
  CHECK(settings.method == Method::compressed_tensors);
  CHECK(settings.rules.at(0).name == "config_groups.group_0");
  CHECK(settings.rules[0].group == 32);
  CHECK(settings.rules[0].symmetric == false);
  settings = read(group_config(R"("num_bits": 4, "type": "int", "strategy": "channel", "group_size": null)"));
  CHECK(settings.rules.at(0).group == -1);
  CHECK(settings.rules[0].symmetric == true);
  settings = read(R"({"config_groups": {
    "group_0": {"targets": ["re:.*attn.*"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 128}},
    "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 32},
                "input_activations": null}}, "ignore": ["lm_head", "re:.*gate$"]})");
  CHECK(settings.rules.size() == 2);

  const auto refused = [](const std::string& json, const std::string& what) {
    check_refused(json, {"quant.unsupported-setting", "group_0", what});
  };
  refused(group_config(R"("num_bits": 3)"), "3 bits, expected 4 or 8");
  refused(group_config(R"("num_bits": 4, "type": "float")"), "type 'float'");
  refused(group_config(R"("num_bits": 4, "strategy": "block")"), "'block'");
  refused(group_config(R"("num_bits": 4, "group_size": 128, "actorder": "group")"), "actorder");
  refused(group_config(R"("num_bits": 4, "group_size": 128)", R"(, "input_activations": {"num_bits": 8})"),
          "input_activations");
  refused(R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
             {"group_0": {"weights": {"num_bits": 4}}}})",
          "nvfp4");
  const std::string groups = R"("config_groups": {"g": {"weights": {"num_bits": 4, "group_size": 128}}})";
  CHECK(fault("{" + groups + R"(, "transform_config": {}, "sparsity_config": {}, "kv_cache_scheme": null})") ==
        "no error");
  check_refused("{" + groups + R"(, "transform_config": {"config_groups": {"u": {}}}})", {"transform_config"});
  check_refused("{" + groups + R"(, "sparsity_config": {"format": "sparse-24-bitmask"}})", {"sparse"});
  CHECK_THAT(fault(R"({"quant_method": "compressed-tensors", "config_groups": {}})"), Catch::Contains("at least one"));
  CHECK_THAT(fault(R"({"quant_method": "compressed-tensors", "config_groups": {"a": 3}})"),
             Catch::Contains("json.bad-field"));
  CHECK_THAT(fault(R"({"quant_method": "compressed-tensors"})"), Catch::Contains("no field 'config_groups'"));
}

TEST_CASE("Quark's settings, with exceptions first") {
  QuantizationSettings settings =
      read(quark_config(R"("dtype": "uint4", "group_size": 128, "symmetric": false, "qscheme": "per_group")",
                        R"(, "export": {"pack_method": "order"}, "exclude": ["*router*"],
         "layer_quant_config": {"lm_head": {"weight": {"dtype": "int4", "group_size": 32, "symmetric": true}},
                                "*.mlp.down*": {"weight": {"dtype": "fp8_e4m3"}},
                                "*k_proj": {"weight": {"dtype": "uint4", "group_size": 64}, "input_tensors": {}}})"));
  CHECK(settings.method == Method::quark);
  CHECK_FALSE(settings.reordered);
  REQUIRE(settings.rules.size() == 4);
  CHECK(settings.rules[0].layers == "lm_head");
  CHECK(settings.rules[0].group == 32);
  CHECK(settings.rules[0].twos_complement);
  CHECK(settings.rules[0].symmetric == true);
  CHECK_THAT(settings.rules[1].fault, Catch::Contains("fp8_e4m3"));
  CHECK_THAT(settings.rules[2].fault, Catch::Contains("activations"));
  CHECK(settings.rules[3].layers.empty());
  CHECK(settings.rules[3].group == 128);
  CHECK_FALSE(settings.rules[3].twos_complement);
  CHECK(read(quark_config(R"("dtype": "uint4", "group_size": 128)")).reordered);
  CHECK_THAT(read(quark_config(R"("dtype": "int4", "qscheme": "per_channel")")).rules[0].fault,
             Catch::Contains("per_channel"));

  CHECK_THAT(fault(quark_config(R"("dtype": "uint4")", R"(, "export": {"pack_method": "zigzag"})")),
             Catch::Contains("quant.unsupported-setting") && Catch::Contains("zigzag"));
  CHECK_THAT(fault(quark_config(R"("dtype": "uint4")", R"(, "layer_quant_config": {"*[ab]": {}})")),
             Catch::Contains("*[ab]"));
  const std::string uint4 = R"("dtype": "uint4", "group_size": 128)";
  check_refused(quark_config(uint4, R"(, "algo_config": [{"name": "awq"}, {"name": "rotation"}])"),
                {"quant.unsupported-setting", "rotation"});
  CHECK(fault(quark_config(uint4, R"(, "algo_config": [{"name": "awq"}], "layer_type_quant_config": {})")) ==
        "no error");
  check_refused(quark_config(uint4, R"(, "layer_type_quant_config": {"a": {}})"),
                {"quant.unsupported-setting", "layer_type_quant_config"});
  CHECK_THAT(fault(R"({"quant_method": "quark"})"), Catch::Contains("global_quant_config"));
}

TEST_CASE("GPTQ's settings, of both versions") {
  using Form = StatedQuantization::Form;
  StatedQuantization settings = read(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true,
    "sym": false, "damp_percent": 0.01, "static_groups": false, "dynamic": {"-:.*gate.*": {}}})");
  CHECK(settings.form == Form::gptq);
  CHECK(settings.method == Method::none);
  CHECK(settings.is_stated());
  CHECK(settings.bits == 4);
  CHECK(settings.zeros_less_one);
  CHECK(settings.rules.at(0).group == 128);
  settings = read(R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "GPTQ_V2",
    "pack_dtype": "int32"})");
  CHECK(settings.bits == 8);
  CHECK_FALSE(settings.zeros_less_one);
  CHECK(settings.rules.at(0).group == -1);
  CHECK(read(R"({"bits": 4, "group_size": 128, "damp_percent": 0.01})").form == Form::gptq);

  const auto refused = [](const std::string& rest, const std::string& what) {
    check_refused(R"({"quant_method": "gptq", )" + rest + "}", {"quant.unsupported-setting", what});
  };
  refused(R"("bits": 3)", "3 bits, expected 4 or 8");
  refused(R"("bits": 4, "checkpoint_format": "marlin")", "'marlin'");
  refused(R"("bits": 4, "is_marlin_format": true)", "'marlin'");
  refused(R"("bits": 4, "pack_dtype": "int8")", "'int8'");
  refused(R"("bits": 4, "dynamic": {"+:.*mlp.*": {"bits": 8}})", "mlp");
  for (const char* group : {"0", "-2", "1e9", "\"128\"", "4294967424"}) {
    CHECK_THAT(fault(text(R"({"quant_method": "gptq", "group_size": )", group, "}")),
               Catch::Contains("json.bad-field"));
  }
}

TEST_CASE("FP8's settings") {
  const StatedQuantization settings = read(R"({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
    "weight_block_size": [64, 128], "modules_to_not_convert": ["lm_head"]})");
  CHECK(settings.form == StatedQuantization::Form::fp8);
  CHECK(settings.quantized_activations);
  CHECK(settings.block == std::array<std::int64_t, 2>{64, 128});
  CHECK(read(R"({"quant_method": "fp8", "weight_block_size": null})").block[0] == 0);
  CHECK(read(R"({"quant_method": "fbgemm_fp8"})").form == StatedQuantization::Form::fp8);
  check_refused(R"({"quant_method": "fp8", "fmt": "e5m2"})", {"quant.unsupported-setting", "'e5m2'"});
  for (const char* block : {"128", "[128]", "[0, 128]", "[128, -1]", "[128, 1e3]", "[128, 128, 1]", "[1e30, 128]",
                            "[9223372036854775808, 1]", "{}"}) {
    CHECK_THAT(fault(text(R"({"quant_method": "fp8", "weight_block_size": )", block, "}")),
               Catch::Contains("json.bad-field") && Catch::Contains("weight_block_size"));
  }
}

TEST_CASE("config groups of compressed-tensors with eight bits") {
  const auto group = [](const std::string& format, const std::string& weights, const std::string& rest = "") {
    return R"({"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "config_groups": {"group_0": {"weights": {"num_bits": 8, )" + weights + "}" + rest + "}}}";
  };
  StatedQuantization settings = read(group("float-quantized", R"("type": "float", "strategy": "channel")",
                                           R"(, "input_activations": {"num_bits": 8, "dynamic": true})"));
  CHECK(settings.method == Method::compressed_tensors);
  CHECK(settings.rules.empty());
  CHECK(settings.quantized_activations);
  REQUIRE(settings.eight_bits.size() == 1);
  CHECK(settings.eight_bits[0].floating);
  CHECK(settings.eight_bits[0].group == -1);
  settings = read(group("float-quantized", R"("type": "float", "strategy": "block", "block_structure": [128, 64])"));
  CHECK(settings.eight_bits.at(0).block == std::array<std::int64_t, 2>{128, 64});
  CHECK_FALSE(settings.quantized_activations);
  for (const char* format : {"pack-quantized", "int-quantized", "naive-quantized"}) {
    settings = read(group(format, R"("type": "int", "strategy": "group", "group_size": 32)"));
    CHECK(settings.eight_bits.at(0).group == 32);
    CHECK_FALSE(settings.eight_bits[0].floating);
  }
  settings = read(R"({"format": "mixed-precision", "config_groups": {
    "group_0": {"format": "pack-quantized", "weights": {"num_bits": 4, "strategy": "group", "group_size": 128}},
    "group_1": {"format": "float-quantized", "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}})");
  CHECK(settings.rules.size() == 1);
  CHECK(settings.eight_bits.at(0).group == 0);

  const auto refused = [](const std::string& json, const std::string& what) {
    check_refused(json, {"quant.unsupported-setting", "group_0", what});
  };
  refused(group("float-quantized", R"("type": "int")"), "'float-quantized'");
  refused(group("pack-quantized", R"("type": "float")"), "'pack-quantized'");
  refused(group("int-quantized", R"("type": "complex")"), "'complex'");
  refused(group("int-quantized", R"("type": "int", "strategy": "tensor_group")"), "'tensor_group'");
  refused(group("pack-quantized", R"("type": "int", "actorder": "group")"), "actorder");
  refused(group("int-quantized", R"("type": "int")", R"(, "output_activations": {"num_bits": 8})"),
          "output_activations");
  CHECK_THAT(fault(group("float-quantized", R"("type": "float", "strategy": "block", "block_structure": [0, 1])")),
             Catch::Contains("json.bad-field"));
}

TEST_CASE("other schemes are rejected by name") {
  const auto foreign = [](const std::string& json, const std::string& what) {
    check_refused(json, {"quant.unsupported-method", what});
  };
  foreign(R"({"quant_method": "awq", "desc_act": true})", "GPTQ");
  foreign(R"({"quant_method": "modelopt"})", "ModelOpt");
  foreign(R"({"producer": {"name": "modelopt"}, "quantization": {}})", "ModelOpt");
  foreign(R"({"quant_method": "bitsandbytes", "load_in_4bit": true})", "bitsandbytes");
  foreign(R"({"load_in_4bit": true})", "bitsandbytes");
  foreign(R"({"quant_method": "hqq"})", "hqq");
}

TEST_CASE("unsupported and absurd settings") {
  CHECK_THAT(fault(R"({"quant_method": "awq", "bits": 3})"),
             Catch::Contains("quant.unsupported-setting") && Catch::Contains("3 bits, expected 4"));
  CHECK_THAT(fault(R"({"w_bit": 8})"), Catch::Contains("8 bits"));
  for (const char* version : {"gemv_v9", "marlin"}) {
    CHECK_THAT(fault(text(R"({"quant_method": "awq", "version": ")", version, "\"}")),
               Catch::Contains("quant.unknown-version") && Catch::Contains(version) && Catch::Contains("gemv_fast"));
  }
  CHECK_THAT(fault(R"({"quant_method": "awq", "dynamic": {"+:.*mlp.*": {"bits": 8}}})"),
             Catch::Contains("quant.unsupported-setting") && Catch::Contains("mlp"));
  for (const char* group : {"0", "-2", "1e9", "\"128\"", "4294967424"}) {
    CHECK_THAT(fault(text(R"({"quant_method": "awq", "group_size": )", group, "}")), Catch::Contains("json.bad-field"));
  }
  CHECK_THAT(fault(R"({"quant_method": 4})"), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault(R"({"quant_method": "awq", "zero_point": 1})"), Catch::Contains("json.bad-field"));
  CHECK_THAT(fault(R"({"quant_method": "awq", "dynamic": []})"), Catch::Contains("json.bad-field"));
}

TEST_CASE("the settings are in config.json, else in the side files of older writers") {
  const TemporaryFolder folder;
  const auto config = [&](const char* json) { folder.write("config.json", json); };
  config("{}");
  CHECK(read_quantization(folder.path()).method == Method::none);
  folder.write("quantize_config.json", R"({"bits": 4, "group_size": 32, "zero_point": true})");
  CHECK(read_quantization(folder.path()).rules.at(0).group == 32);
  folder.write("quant_config.json", R"({"w_bit": 4, "q_group_size": 64, "zero_point": true, "version": "GEMM"})");
  CHECK(read_quantization(folder.path()).rules.at(0).group == 64);
  CHECK_THAT(read_quantization(folder.path()).file, Catch::Contains("quant_config.json"));
  folder.write("quantization_config.json", R"({"bits": 4, "group_size": 16, "packing_format": "auto_round:auto_awq"})");
  CHECK(read_quantization(folder.path()).rules.at(0).group == 16);
  config(R"({"text_config": {"quantization_config": {"quant_method": "awq", "group_size": 96}}})");
  CHECK(read_quantization(folder.path()).rules.at(0).group == 96);
  config(R"({"compression_config": {"config_groups": {"g": {"weights": {"num_bits": 4, "strategy": "channel"}}}}})");
  CHECK(read_quantization(folder.path()).method == Method::compressed_tensors);
  config(R"({"quantization_config": {"quant_method": "awq", "group_size": 128}, "text_config": {}})");
  CHECK(read_quantization(folder.path()).rules.at(0).group == 128);
  config(R"({"quantization_config": 4})");
  CHECK_THROWS_WITH(read_quantization(folder.path()), Catch::Contains("json.bad-field"));
  config(R"({"quantization": {"group_size": 64, "bits": 4}})");
  CHECK_THROWS_WITH(read_quantization(folder.path()), Catch::Contains("MLX"));
  config("{}");
  for (const char* file : {"quantization_config.json", "quant_config.json", "quantize_config.json"}) {
    std::filesystem::remove(folder.path() / file);
  }
  folder.write("hf_quant_config.json",
               R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "W4A16_AWQ"}})");
  CHECK_THROWS_WITH(read_quantization(folder.path()),
                    Catch::Contains("ModelOpt") && Catch::Contains("hf_quant_config"));
}

TEST_CASE("folders of other programs are recognised before their contents are read") {
  const TemporaryFolder folder;
  const auto open = [&] { Checkpoint{folder.path()}; };
  folder.write("config.json", "{}");
  SECTION("ONNX") {
    folder.write("model.onnx", "x");
    folder.write("model.pb.bin", "x");
    CHECK_THROWS_WITH(open(), Catch::Contains("checkpoint.onnx") && Catch::Contains("model.onnx") &&
                                  Catch::Contains("slm quantize") && Catch::Contains(folder.path().string()));
  }
  SECTION("ONNX beside pickle") {
    folder.write("pytorch_model.bin", "x");
    folder.write("genai_config.json", "{}");
    CHECK_THROWS_WITH(open(), Catch::Contains("checkpoint.onnx"));
  }
  SECTION("pickle") {
    for (const char* file : {"pytorch_model-00001-of-00002.bin", "model-w4-g128.pt"}) {
      folder.write(file, "x");
      CHECK_THROWS_WITH(open(), Catch::Contains("checkpoint.pickle") && Catch::Contains(file));
      std::filesystem::remove(folder.path() / file);
    }
  }
  SECTION("safetensors beside any of them have priority") {
    write_random_checkpoint<float>(folder.path(), tiny_shape, 1);
    for (const char* file : {"model.onnx", "pytorch_model.bin", "a.gguf"}) folder.write(file, "x");
    CHECK_NOTHROW(open());
  }
  SECTION("a Git LFS pointer instead of the weights") {
    folder.write("config.json", config_json(tiny_shape, false, 512).dump());
    folder.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3891234567\n");
    CHECK_THROWS_WITH(open(), Catch::Contains("io.lfs-pointer") && Catch::Contains("model.safetensors"));
  }
  SECTION("a web page instead of the weights") {
    folder.write("config.json", config_json(tiny_shape, false, 512).dump());
    for (const char* page : {"<!DOCTYPE html>\n<html>", "<!doctype html>", "<html lang=en>Sign in</html>"}) {
      folder.write("model.safetensors", page);
      CHECK_THROWS_WITH(open(), Catch::Contains("io.web-page") && Catch::Contains("model.safetensors"));
    }
  }
}
