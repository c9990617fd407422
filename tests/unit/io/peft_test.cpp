// Adapter folders in PEFT's format: contents, scales, and the errors of rejected ones.
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "slm/io/name_pattern.hpp"
#include "slm/io/peft.hpp"
#include "slm/io/peft_config.hpp"
#include "slm/io/safetensors.hpp"
#include "support/errors.hpp"
#include "support/paths.hpp"
#include "support/random_adapter.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

using Json = slm::Json;

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The folder of a valid adapter of rank 3 on q_proj and down_proj of llama-mha3h, to be damaged.
struct Folder {
  Folder() {
    write_random_adapter(folder.path(), checkpoint, {.rank = 3, .only = [](const std::string& module) {
                                                       return module.find("q_proj") != std::string::npos ||
                                                              module.find("down_proj") != std::string::npos;
                                                     }});
  }

  Adapter read() const { return read_peft(folder.path(), checkpoint); }
  std::string fault() const {
    return error_id([&] { read(); });
  }

  void config(const std::function<void(Json&)>& change) const {
    Json json = read_json_object(folder.path() / "adapter_config.json");
    change(json);
    folder.write("adapter_config.json", json.dump());
  }

  /// change(tensors): bytes that they refer to must be `kept`.
  void tensors(const std::function<void(std::vector<Tensor>&)>& change) {
    const Safetensors file(folder.path() / "adapter_model.safetensors");
    std::vector<Tensor> all;
    for (const auto& [name, tensor] : file.tensors) all.push_back(tensor);
    change(all);
    write_safetensors(folder.path() / "changed", all);
    std::filesystem::rename(folder.path() / "changed", folder.path() / "adapter_model.safetensors");
  }

  Checkpoint checkpoint{fixture("models/llama-mha3h")};
  TemporaryFolder folder;
};

std::string fault_with(const char* field, const Json& value) {
  const Folder folder;
  folder.config([&](Json& json) { json[field] = value; });
  return folder.fault();
}

std::string beginning_fault(const std::string& way) {
  try {
    detail::PeftConfig({{"peft_type", "LORA"}, {"init_lora_weights", way}}, "adapter", "adapter_config.json");
  } catch (const Error& error) {
    return error.id() == std::string("adapter.unsupported") ? error.what() : error.id();
  }
  return "no error";
}

float scale_with(const std::function<void(Json&)>& change) {
  const Folder folder;
  folder.config(change);
  return folder.read().of(number_of(AdaptedProduct::down, 1)).front().scale;
}

}  // namespace

TEST_CASE("an adapter's matrices are those of the file, in the file's type, at the outputs of their modules") {
  const Checkpoint checkpoint(fixture("models/llama3-gqa-scaled-tied"));
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const TemporaryFolder folder;
    const auto trained = write_random_adapter(folder.path(), checkpoint, {.type = type, .by_root = true});
    const Adapter adapter = read_peft(folder.path(), checkpoint);
    REQUIRE(adapter.changes.size() == trained.size());
    const auto check = [&](const std::string& name, AdaptedProduct product, std::size_t part, std::int64_t first) {
      const auto found =
          std::find_if(trained.begin(), trained.end(), [&](const TrainedModule& one) { return one.name == name; });
      REQUIRE(found != trained.end());
      const LowRank& change = adapter.of(number_of(product, name.find(".1.") == std::string::npos ? 0 : 1))[part];
      CHECK(change.type == type);
      CHECK(change.first == first);
      CHECK(change.rank == found->rank);
      CHECK(change.scale == static_cast<float>(found->scale));
      visit_elements(change, [&]<class Element>(Element) {
        const auto* down = reinterpret_cast<const Element*>(change.down);
        const auto* up = reinterpret_cast<const Element*>(change.up);
        for (std::size_t i = 0; i < found->a.size(); ++i) REQUIRE(to_float(down[i]) == found->a[i]);
        for (std::int64_t o = 0; o < change.out; ++o) {
          for (std::int64_t j = 0; j < change.rank; ++j)
            REQUIRE(to_float(up[j * change.out + o]) == found->b[static_cast<std::size_t>(o * change.rank + j)]);
        }
      });
    };
    const ModelConfig& shape = checkpoint.config();
    const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
    check("model.embed_tokens", AdaptedProduct::embedding, 0, 0);
    check("lm_head", AdaptedProduct::head, 0, 0);
    check("model.layers.0.self_attn.q_proj", AdaptedProduct::qkv, 0, 0);
    check("model.layers.1.self_attn.k_proj", AdaptedProduct::qkv, 1, q);
    check("model.layers.1.self_attn.v_proj", AdaptedProduct::qkv, 2, q + kv);
    check("model.layers.0.self_attn.o_proj", AdaptedProduct::attention_out, 0, 0);
    check("model.layers.1.mlp.up_proj", AdaptedProduct::gate_up, 1, shape.ffn);
    check("model.layers.1.mlp.down_proj", AdaptedProduct::down, 0, 0);
  }
}

TEST_CASE("products without a module of the adapter are unchanged") {
  const Adapter adapter = Folder().read();
  for (int layer = 0; layer < 2; ++layer) {
    CHECK(adapter.of(number_of(AdaptedProduct::qkv, layer)).size() == 1);
    CHECK(adapter.of(number_of(AdaptedProduct::attention_out, layer)).empty());
    CHECK(adapter.of(number_of(AdaptedProduct::gate_up, layer)).empty());
    CHECK(adapter.of(number_of(AdaptedProduct::down, layer)).size() == 1);
  }
  CHECK(adapter.of(number_of(AdaptedProduct::embedding)).empty());
  CHECK(adapter.of(number_of(AdaptedProduct::qkv, 100)).empty());
  CHECK(adapter.of(-1).empty());
}

TEST_CASE("the scale is alpha over the rank, or its root, and patterns set it for single modules") {
  const auto alphas = [](const Json& patterns) {
    return scale_with([&](Json& json) { json["lora_alpha"] = 6, json["alpha_pattern"] = patterns; });
  };
  CHECK(alphas(Json::object()) == 2.0f);
  CHECK(scale_with([](Json& json) { json["use_rslora"] = true; }) == Approx(6 / std::sqrt(3.0)));
  CHECK(scale_with([](Json& json) { json["lora_alpha"] = 1.5; }) == 0.5f);
  CHECK(alphas({{"down_proj", 12}}) == 4.0f);
  CHECK(alphas({{"own_proj", 12}}) == 2.0f);  // from a dot on
  CHECK(alphas({{"q_proj", 12}}) == 2.0f);
  CHECK(alphas({{"model.layers.1.mlp.down_proj", 12}}) == 4.0f);
  CHECK(alphas({{"model.layers.0.mlp.down_proj", 12}}) == 2.0f);
  CHECK(alphas({{"^model\\.layers\\.(0|1)\\.mlp\\.(up|down)_proj$", 12}}) == 4.0f);
  CHECK(alphas({{"layers\\.[1-9]\\d*\\..*", 12}}) == 4.0f);
  CHECK(alphas({{"a.*", 12}, {"down_proj", 9}, {"mlp.down_proj", 12}}) == 3.0f);  // the first in the file's order
}

TEST_CASE("an expression with exponential backtracking elsewhere is fast, and too many are rejected") {
  std::int64_t budget = 100'000;
  const std::string name = std::string(200, 'a') + "!";
  CHECK_FALSE(NamePattern::parse("(a*)*(a|a)*(a+)+b")->matches(name, budget));
  CHECK(budget > 0);
  CHECK(fault_with("alpha_pattern", {{"(a+)+(a|aa)*$", 1}}) == "no error");
  Json many = Json::object();
  for (int i = 0; i < 250; ++i) many[std::string(900, 'x') + "(.|.|.|.|.|.|.|.)*" + std::to_string(i)] = 1;
  many["(.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?.?)*x"] = 1;
  CHECK(fault_with("alpha_pattern", many) == "no error");
  many[std::string(900, 'x')] = 1;
  for (int i = 250; i < 300; ++i) many[std::string(900, 'x') + std::to_string(i)] = 1;
  CHECK(fault_with("alpha_pattern", many) == "adapter.pattern");  // too long together
  CHECK(fault_with("alpha_pattern", {{"(?<=a)b", 1}}) == "adapter.pattern");
}

TEST_CASE("an initialisation is accepted only if it is known to keep the base's weights") {
  for (const Json& way : {Json("gaussian"), Json("Gaussian"), Json("eva"), Json("orthogonal"), Json("mica"),
                          Json("MiCA"), Json(true), Json(false), Json(nullptr)}) {
    INFO(way);
    CHECK(fault_with("init_lora_weights", way) == "no error");
  }
  for (const std::string way : {"pissa", "pissa_niter_16", "PiSSA", "olora", "OLoRA", "corda", "loftq", "lora_ga"})
    CHECK_THAT(beginning_fault(way), Catch::Contains(quote(way) + ", which changes the base model"));
  for (const std::string way : {"", "lora-ga", "milora", "true", "gaussian ", "unheard of"})
    CHECK_THAT(beginning_fault(way), Catch::Contains(quote(way) + ", which is unknown"));
  CHECK(fault_with("init_lora_weights", 1) != "no error");
  CHECK(fault_with("init_lora_weights", {"gaussian"}) != "no error");
}

TEST_CASE("options that change results are rejected, others are ignored") {
  CHECK(Folder().fault() == "no error");
  CHECK(fault_with("peft_type", "IA3") == "adapter.unsupported");
  CHECK(fault_with("peft_type", nullptr) == "adapter.unsupported");
  CHECK(fault_with("use_dora", true) == "adapter.unsupported");
  CHECK(fault_with("use_dora", false) == "no error");
  CHECK(fault_with("modules_to_save", {"lm_head"}) == "adapter.unsupported");
  CHECK(fault_with("modules_to_save", Json::array()) == "no error");
  CHECK(fault_with("bias", "all") == "adapter.unsupported");
  CHECK(fault_with("bias", "lora_only") == "adapter.unsupported");
  CHECK(fault_with("lora_bias", true) == "adapter.unsupported");
  CHECK(fault_with("layer_replication", {{0, 1}, {0, 1}}) == "adapter.unsupported");
  CHECK(fault_with("alora_invocation_tokens", {1, 2}) == "adapter.unsupported");
  CHECK(fault_with("trainable_token_indices", {1}) == "adapter.unsupported");
  CHECK(fault_with("of_next_year", true) == "adapter.unsupported");
  CHECK(fault_with("of_next_year", nullptr) == "no error");
  for (const Json& target : {Json{"q_proj", "down_proj", "no_such"}, Json("all-linear"), Json(".*(q|down)_proj"),
                             Json("(((a+)+)+)+b"), Json(nullptr)}) {
    CHECK(fault_with("target_modules", target) == "no error");
  }
  CHECK(fault_with("layers_to_transform", {0, 1}) == "no error");
  CHECK(fault_with("layers_pattern", "layers") == "no error");
  CHECK(fault_with("megatron_core", "megatron.core") == "no error");
  CHECK(fault_with("r", 4) == "no error");  // rank_pattern names them all
  CHECK(fault_with("rank_pattern", Json::object()) == "adapter.rank");
  CHECK(fault_with("r", 0) == "json.bad-field");
  CHECK(fault_with("lora_alpha", "16") == "json.bad-field");
  CHECK(fault_with("lora_alpha", -1) == "json.bad-field");
  CHECK(fault_with("rank_pattern", {{"down_proj", 0}}) == "json.bad-field");
  CHECK(fault_with("rank_pattern", {1, 2}) == "json.bad-field");
}

TEST_CASE("tensors that do not fit the model are rejected by name") {
  const auto fault_of = [](const std::function<void(Tensor&)>& change, const char* which = "q_proj.lora_A") {
    Folder folder;
    folder.tensors([&](std::vector<Tensor>& all) {
      for (Tensor& tensor : all) {
        if (tensor.name.find(which) != std::string::npos) change(tensor);
      }
    });
    return folder.fault();
  };
  CHECK(fault_of([](Tensor&) {}) == "no error");
  CHECK(fault_of([](Tensor& tensor) { std::swap(tensor.shape[0], tensor.shape[1]); }) == "adapter.wrong-shape");
  CHECK(fault_of([](Tensor& tensor) { tensor.shape = {tensor.elements()}; }) == "adapter.wrong-shape");
  CHECK(fault_of([](Tensor& tensor) { tensor.shape = {}, tensor.size_bytes = 4; }) == "adapter.wrong-shape");
  CHECK(fault_of([](Tensor& tensor) { tensor.dtype = DType::i32; }) == "adapter.wrong-dtype");
  CHECK(fault_of([](Tensor& tensor) { tensor.dtype = DType::bf16, tensor.size_bytes /= 2; }) == "adapter.wrong-dtype");
  static const std::vector<float> nan(10000, std::numeric_limits<float>::quiet_NaN());
  static const std::vector<float> infinite(10000, std::numeric_limits<float>::infinity());
  for (const auto* values : {&nan, &infinite}) {
    CHECK(fault_of([&](Tensor& tensor) { tensor.bytes = reinterpret_cast<const std::byte*>(values->data()); }) ==
          "adapter.non-finite");
  }
  const auto named = [&](const std::string& name) {
    return fault_of([&](Tensor& tensor) { tensor.name = name; }, "layers.1.mlp.down_proj.lora_A");
  };
  const std::string module = "base_model.model.model.layers.1.mlp.down_proj";
  CHECK(named(module + ".lora_A.default.weight") == "adapter.unknown-module");
  CHECK(named(module + ".lora_magnitude_vector") == "adapter.unsupported");
  CHECK(named(module + ".lora_B.bias") == "adapter.unsupported");
  CHECK(named(module + ".weight") == "adapter.unsupported");
  CHECK(named("base_model.model.lm_head.modules_to_save.weight") == "adapter.unsupported");
  CHECK(named(module + ".lora_embedding_A") == "adapter.unknown-module");
  CHECK(named("base_model.model.model.layers.7.mlp.down_proj.lora_A.weight") == "adapter.unknown-module");
  CHECK(named("base_model.model.model.layers.1.mlp.fc1.lora_A.weight") == "adapter.unknown-module");
  CHECK(named("model.layers.1.mlp.down_proj.lora_A.weight") == "adapter.unknown-module");
  CHECK(named("\x1b[31m") == "adapter.unknown-module");

  Folder folder;
  folder.tensors([](std::vector<Tensor>& all) { all.erase(all.begin()); });
  CHECK(folder.fault() == "adapter.missing-tensor");
  folder.tensors([](std::vector<Tensor>& all) { all.clear(); });
  CHECK(folder.fault() == "adapter.missing-tensor");
}

TEST_CASE("a rank of zero, or larger than the matrix, is rejected") {
  for (const std::int64_t rank : {0, 200}) {
    Folder folder;
    const std::vector<float> zeros(100000);
    folder.tensors([&](std::vector<Tensor>& all) {
      for (Tensor& tensor : all) {
        if (tensor.name.find("layers.0.self_attn.q_proj") == std::string::npos) continue;
        tensor.shape[tensor.name.ends_with("lora_A.weight") ? 0 : 1] = rank;
        tensor.bytes = reinterpret_cast<const std::byte*>(zeros.data());
        tensor.size_bytes = static_cast<std::size_t>(tensor.elements()) * sizeof(float);
      }
    });
    folder.config([&](Json& json) {
      if (rank != 0) json["rank_pattern"]["model.layers.0.self_attn.q_proj"] = rank;
    });
    CHECK(folder.fault() == "adapter.rank");
  }
}

TEST_CASE("an embedding saved by PEFT is skipped if it is the model's own") {
  const Checkpoint checkpoint(fixture("models/llama-mha3h"));
  for (const bool own : {true, false}) {
    Folder folder;
    const Tensor& table = *checkpoint.find("model.embed_tokens.weight");
    std::vector<std::byte> bytes(table.bytes, table.bytes + table.size_bytes);
    if (!own) bytes[1] ^= std::byte{1};
    folder.tensors([&](std::vector<Tensor>& all) {
      all.push_back(table);
      all.back().name = "base_model.model.model.embed_tokens.base_layer.weight";
      all.back().bytes = bytes.data();
    });
    CHECK(folder.fault() == (own ? "no error" : "adapter.unsupported"));
  }
}

TEST_CASE("folders without readable weights are rejected") {
  const Folder folder;
  const auto weights = folder.folder.path() / "adapter_model.safetensors";
  std::filesystem::remove(weights);
  CHECK(folder.fault() == "adapter.missing-tensor");
  folder.folder.write("adapter_model.bin", "pickle");
  CHECK(folder.fault() == "adapter.pickle");
  std::filesystem::remove(folder.folder.path() / "adapter_config.json");
  CHECK(folder.fault() == "io.unreadable");
  folder.folder.write("adapter_config.json", "[1]");
  CHECK(folder.fault() == "json.not-an-object");
}

TEST_CASE("truncated or modified files give an Error or an adapter with finite numbers") {
  const Folder folder;
  const std::string weights = bytes_of_file(folder.folder.path() / "adapter_model.safetensors");
  const std::string config = bytes_of_file(folder.folder.path() / "adapter_config.json");
  int read = 0, refused = 0;
  const auto attempt = [&] {
    try {
      const Adapter adapter = folder.read();
      ++read;
      for (const LowRank& change : adapter.changes) {
        REQUIRE(std::isfinite(change.scale));
        visit_elements(change, [&]<class Element>(Element) {
          const auto* down = reinterpret_cast<const Element*>(change.down);
          const auto* up = reinterpret_cast<const Element*>(change.up);
          for (std::int64_t i = 0; i < change.rank * change.in; ++i) REQUIRE(std::isfinite(to_float(down[i])));
          for (std::int64_t i = 0; i < change.rank * change.out; ++i) REQUIRE(std::isfinite(to_float(up[i])));
        });
      }
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t cut = 1; cut < weights.size(); cut += 1 + cut / 9) {
    folder.folder.write("adapter_model.safetensors", weights.substr(0, weights.size() - cut));
    attempt();
  }
  CHECK(read == 0);
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::string altered = weights;
    for (int flips = 0; flips < 3; ++flips)
      altered[mix(i * 3 + static_cast<std::uint64_t>(flips)) % (i % 2 == 0 ? 1500 : weights.size())] ^=
          static_cast<char>(1 << (i % 8));
    folder.folder.write("adapter_model.safetensors", altered);
    attempt();
  }
  folder.folder.write("adapter_model.safetensors", weights);
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::string altered = config;
    altered[mix(i) % config.size()] = static_cast<char>(mix(i + 1000));
    folder.folder.write("adapter_config.json", altered);
    attempt();
  }
  CHECK(read > 20);
  CHECK(refused > 200);
}

TEST_CASE("adapters have the same digest if and only if their numbers are equal") {
  const Checkpoint checkpoint(fixture("models/llama-mha3h"));
  const auto digest = [&](const RandomAdapter& how) {
    const TemporaryFolder folder;
    write_random_adapter(folder.path(), checkpoint, how);
    return read_peft(folder.path(), checkpoint).digest;
  };
  const std::uint64_t first = digest({.seed = 1});
  CHECK(first != 0);
  CHECK(digest({.seed = 1}) == first);
  CHECK(digest({.seed = 2}) != first);
  CHECK(digest({.seed = 1, .type = DType::bf16}) != first);
  CHECK(digest({.seed = 1, .by_root = true}) != first);
  CHECK(Folder().read().digest != first);
}

TEST_CASE("a module that an adapter changes under two names is rejected") {
  const Checkpoint checkpoint(fixture("models/gpt2"));
  const TemporaryFolder folder;
  write_random_adapter(folder.path(), checkpoint, {.rank = 8, .only = [](const std::string& module) {
                                                     return module.find("c_fc") != std::string::npos;
                                                   }});
  CHECK(read_peft(folder.path(), checkpoint).changes.size() == 2);
  const Safetensors file(folder.path() / "adapter_model.safetensors");
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : file.tensors) {
    tensors.push_back(tensor);
    tensors.push_back(tensor);
    tensors.back().name.erase(tensors.back().name.find("transformer."), 12);
  }
  const TemporaryFolder twice;
  write_safetensors(twice.path() / "adapter_model.safetensors", tensors);
  std::filesystem::copy_file(folder.path() / "adapter_config.json", twice.path() / "adapter_config.json");
  CHECK(error_id([&] { read_peft(twice.path(), checkpoint); }) == "adapter.unknown-module");
}
