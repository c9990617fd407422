// Loading and running the families: optional names, limits, and equality of a compile-time config.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "slm/backend/cpu/cpu.hpp"
#include "slm/backend/reference/reference.hpp"
#include "slm/config/known_models.hpp"
#include "slm/decode/request.hpp"
#include "slm/io/safetensors.hpp"
#include "slm/io/safetensors_writer.hpp"
#include "slm/lm/session.hpp"
#include "slm/model/load.hpp"
#include "slm/model/load_definition.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
using namespace slm::testing;

namespace {

std::vector<float> logits_of(AnyModel model, int count = 12) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 37 + 5) % 97));
  Session session(std::move(model));
  const auto logits = session.forward(tokens, count);
  return {logits.data, logits.data + logits.size()};
}

AnyModel load_dynamic(const std::filesystem::path& folder, const LoadOptions& options = {}) {
  return load(folder, backend::Reference{}, options);
}

/// A copy of a fixture with tensors changed by `change`; removed if it returns false.
struct Changed : TemporaryFolder {
  Changed(const char* name, const std::function<bool(Tensor&)>& change, const Json& config_changes = Json::object()) {
    const auto from = fixture(text("models/", name));
    const Safetensors weights(from / "model.safetensors");
    std::vector<Tensor> tensors;
    for (auto [key, tensor] : weights.tensors) {
      if (change(tensor)) tensors.push_back(tensor);
    }
    write_safetensors(path() / "model.safetensors", tensors);
    Json config = read_json_object(from / "config.json");
    config.merge_patch(config_changes);
    std::ofstream(path() / "config.json") << config;
  }
};

double furthest(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

struct TinyPhi {
  static constexpr std::string_view name = "TinyPhi";
  static constexpr ModelConfig value = configs::with_phi_block(
      {.layers = 2, .hidden = 60, .ffn = 112, .heads = 3, .kv_heads = 3, .head_dim = 20, .vocab = 97, .rotary = 8});
};

struct TinyMpt {
  static constexpr std::string_view name = "TinyMpt";
  static constexpr ModelConfig value = configs::with_alibi(
      {.layers = 2, .hidden = 64, .ffn = 256, .heads = 4, .kv_heads = 4, .head_dim = 16, .vocab = 97});
};

struct TinyGpt2 {
  static constexpr std::string_view name = "TinyGpt2";
  static constexpr ModelConfig value = configs::with_learned_positions(
      {.layers = 2, .hidden = 48, .ffn = 192, .heads = 3, .kv_heads = 3, .head_dim = 16, .vocab = 97},
      ActivationKind::gelu_tanh);
};

}  // namespace

TEST_CASE("a compile-time config of any kind and Dynamic are the same model") {
  using Tiny = Registry<TinyPhi, TinyMpt, TinyGpt2>;
  for (const char* name : {"phi-partial", "mpt-alibi-4h", "gpt2"}) {
    const auto folder = fixture(text("models/", name));
    CAPTURE(name);
    CHECK(logits_of(load<Tiny>(folder, backend::Cpu{}, {.only_known = true})) ==
          logits_of(load(folder, backend::Cpu{})));
    CHECK_THROWS_WITH(load(folder, backend::Cpu{}, {.only_known = true}), Catch::Contains("config.not-registered"));
  }
}

TEST_CASE("optional prefixes and unused tensors") {
  const auto gpt2 = logits_of(load_dynamic(fixture("models/gpt2")));
  const Changed prefixed("gpt2", [](Tensor& tensor) {
    tensor.name = "transformer." + tensor.name;
    return true;
  });
  CHECK(logits_of(load_dynamic(prefixed.path())) == gpt2);
  for (const char* name : {"opt-preln", "phi-partial", "mpt-alibi-4h", "llama3-gqa-scaled-tied"}) {
    const Changed bare(name, [](Tensor& tensor) {
      if (!tensor.name.starts_with("lm_head")) tensor.name = tensor.name.substr(tensor.name.find('.') + 1);
      return true;
    });
    CAPTURE(name);
    CHECK(logits_of(load_dynamic(bare.path())) == logits_of(load_dynamic(fixture(text("models/", name)))));
  }
  // A copy of the tied table as a head, and the mask in old GPT-2 files.
  const Changed surplus("gpt2", [](Tensor& tensor) {
    if (tensor.name == "h.0.attn.c_attn.bias") tensor.name = "h.0.attn.bias", tensor.dtype = DType::i32;
    return true;
  });
  CHECK_THROWS_WITH(load_dynamic(surplus.path()), Catch::Contains("no tensor 'h.0.attn.c_attn.bias' [144]"));
}

TEST_CASE("a text model keeps its prefix of a multimodal checkpoint") {
  struct Form {
    std::string_view of_modules, of_head;
    bool own;  // whether the family's own prefix follows
  };
  constexpr Form forms[] = {{"language_model.", "language_model.", true},
                            {"model.language_model.", "", false},
                            {"language_model.", "language_model.", false},
                            {"language_model.", "", true},
                            {"_orig_mod.", "_orig_mod.", true}};
  for (const char* name :
       {"llama3-gqa-scaled-tied", "qwen3-qknorm-headdim", "phi-partial", "opt-preln", "mpt-alibi-4h", "llama-bias"}) {
    const auto expected = logits_of(load_dynamic(fixture(text("models/", name))));
    for (const auto& [of_modules, of_head, own] : forms) {
      CAPTURE(name, of_modules, of_head, own);
      const Changed renamed(name, [&](Tensor& tensor) {
        const bool head = tensor.name.starts_with("lm_head");
        const std::string bare = head || own ? tensor.name : tensor.name.substr(tensor.name.find('.') + 1);
        tensor.name = text(head ? of_head : of_modules, bare);
        return true;
      });
      CHECK(logits_of(load_dynamic(renamed.path())) == expected);
    }
  }
  // Image encoders beside it whose layers have the same names.
  const auto from = fixture("models/llama-bias");
  const Safetensors weights(from / "model.safetensors");
  std::vector<Tensor> tensors;
  for (const char* prefix : {"audio_tower.", "language_model.", "vision_tower."}) {
    for (auto [key, tensor] : weights.tensors) {
      const bool embedding = tensor.name.find("embed_tokens") != std::string::npos;
      if (prefix != std::string_view{"language_model."} && embedding) continue;
      tensor.name = prefix + tensor.name;
      tensors.push_back(tensor);
    }
  }
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "model.safetensors", tensors);
  std::filesystem::copy(from / "config.json", folder.path() / "config.json");
  CHECK(logits_of(load_dynamic(folder.path())) == logits_of(load_dynamic(from)));
}

TEST_CASE("a model that was saved without its head gives only hidden states") {
  const auto hidden_of = [](const AnyModel& model) {
    Sequence sequence = model.sequence();
    Batch batch;
    const std::vector<Token> tokens{5, 42, 79};
    batch.add(sequence, tokens, {.result = RowResult::hidden, .rows = 3});
    model.forward(batch);
    const auto hidden = batch.hidden(0);
    return std::vector<float>(hidden.data, hidden.data + hidden.size());
  };
  const AnyModel whole = load_dynamic(fixture("models/phi-partial"));
  for (const bool prefixed : {false, true}) {
    const Changed headless("phi-partial",
                           [&](Tensor& tensor) {
                             if (!prefixed) tensor.name = tensor.name.substr(tensor.name.find('.') + 1);
                             return !tensor.name.starts_with("lm_head") && tensor.name != "weight" &&
                                    tensor.name != "bias";
                           },
                           {{"tie_word_embeddings", false}});
    const AnyModel model = load_dynamic(headless.path());
    CHECK(model.info().headless);
    CHECK(hidden_of(model) == hidden_of(whole));
    CHECK_THROWS_WITH(logits_of(model), Catch::Contains("checkpoint.no-head"));
    CHECK_THROWS_WITH(check_request({.prompt = {1}}, model.info()), Catch::Contains("checkpoint.no-head"));
    CHECK_NOTHROW(check_request({.prompt = {1}, .pooling = Pooling::mean}, model.info()));
    CHECK_THROWS_WITH(Checkpoint(headless.path()).check_head(), Catch::Contains("checkpoint.no-head"));
  }
  CHECK_FALSE(whole.info().headless);
}

TEST_CASE("GPT-2's transposed matrices in any type") {
  const auto exact = logits_of(load_dynamic(fixture("models/gpt2")));
  for (const WeightType type : {WeightType::bf16, WeightType::f16}) {
    const auto rounded = logits_of(load_dynamic(fixture("models/gpt2"), {.weights = type}));
    CHECK(rounded != exact);
    CHECK(furthest(rounded, exact) < (type == WeightType::bf16 ? 0.2 : 0.02));
    const auto cpu = logits_of(load(fixture("models/gpt2"), backend::Cpu{}, {.weights = type}));
    CHECK(furthest(rounded, cpu) < 1e-4);
  }
}

TEST_CASE("texts beyond the learned positions or the context are rejected, and nothing changes") {
  for (const char* name : {"gpt2", "opt-preln", "mpt-foundry-3b-like", "mpt-alibi-4h", "mosaicgpt-qkln-alibi"}) {
    CAPTURE(name);
    Session model(load_dynamic(fixture(text("models/", name))));
    CHECK(model.info().context == 64);
    const std::vector<Token> many(65, 3), some(60, 3), five(5, 3), four(4, 3);
    CHECK_THROWS_WITH(model.forward(many, 1), Catch::Contains("batch.context-full"));
    model.forward(some, 0);
    CHECK_THROWS_WITH(model.forward(five, 1), Catch::Contains("cannot append 5 tokens to 60: its context is 64"));
    CHECK(model.length() == 60);
    CHECK(model.forward(four, 4).extent(0) == 4);
    CHECK_THROWS_WITH(load_dynamic(fixture(text("models/", name)), {.context = 65}),
                      Catch::Contains("model.context") && Catch::Contains("limit of config.json, 64"));
  }
  // A config.json with more positions than the table.
  const Changed longer("gpt2", [](Tensor&) { return true; }, {{"n_positions", 128}});
  CHECK_THROWS_WITH(load_dynamic(longer.path()),
                    Catch::Contains("'wpe.weight' is [64, 48], config.json makes it [128, 48]"));
  const Changed opt("opt-preln", [](Tensor&) { return true; }, {{"max_position_embeddings", 66}});
  CHECK_THROWS_WITH(load_dynamic(opt.path()), Catch::Contains("is [66, 48], config.json makes it [68, 48]"));
}

TEST_CASE("the tensors implied by config.json must exist") {
  const auto without = [](const char* name, const char* part) {
    return Changed(name, [=](Tensor& tensor) { return tensor.name.find(part) == std::string::npos; });
  };
  for (const auto& [name, part] :
       std::vector<std::pair<const char*, const char*>>{{"phi-partial", "lm_head.bias"},
                                                        {"phi-partial", "input_layernorm.bias"},
                                                        {"qwen2-bias-tied", "k_proj.bias"},
                                                        {"qwen3-qknorm-headdim", "q_norm"},
                                                        {"mosaicgpt-qkln-alibi", "k_ln"},
                                                        {"mpt-foundry-3b-like", "wpe"},
                                                        {"opt-postln-proj", "project_out"},
                                                        {"phi3-swa7", "gate_up_proj"}}) {
    CAPTURE(name, part);
    const Changed folder = without(name, part);
    CHECK_THROWS_WITH(load_dynamic(folder.path()),
                      Catch::Contains("checkpoint.missing-tensor") && Catch::Contains(part));
  }
  // Fused rows that do not fit the heads.
  const Changed heads("phi3-swa7", [](Tensor&) { return true; }, {{"num_key_value_heads", 1}});
  CHECK_THROWS_WITH(load_dynamic(heads.path()), Catch::Contains("is [216, 72], config.json makes it [120, 72]"));
  // Another family's config.json.
  const Changed other("mpt-alibi-4h", [](Tensor&) { return true; },
                      {{"model_type", "mosaic_gpt"}, {"architectures", nullptr}, {"alibi", true}, {"no_bias", true}});
  CHECK_THROWS_WITH(load_dynamic(other.path()), Catch::Contains("have names of 'mpt'"));
}

TEST_CASE("activation scales divide the input of the MLP's second matrix, if the checkpoint has them") {
  const auto plain = logits_of(load_dynamic(fixture("models/mpt-alibi-4h")));
  // down's columns times the scales and its input divided by them: the same model.
  const Safetensors weights(fixture("models/mpt-alibi-4h") / "model.safetensors");
  std::vector<float> scales(256);
  for (std::size_t i = 0; i < 256; ++i) scales[i] = 0.5f + 0.01f * static_cast<float>(i);
  std::vector<Tensor> tensors;
  std::vector<std::vector<float>> owned;
  for (auto [name, tensor] : weights.tensors) {
    if (name.find("ffn.down_proj.weight") != std::string::npos) {
      std::vector<float>& values = owned.emplace_back(static_cast<std::size_t>(tensor.elements()));
      convert(tensor, 0, tensor.elements(), values.data());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] *= scales[i % 256];
      tensor.bytes = reinterpret_cast<const std::byte*>(values.data());
    }
    tensors.push_back(tensor);
  }
  for (const bool divided : {false, true}) {
    if (divided) {
      for (const int l : {0, 1}) {
        tensors.push_back({text("transformer.blocks.", l, ".ffn.act.scales"),
                           DType::f32,
                           {256},
                           reinterpret_cast<const std::byte*>(scales.data()),
                           1024});
      }
    }
    const TemporaryFolder folder;
    write_safetensors(folder.path() / "model.safetensors", tensors);
    std::filesystem::copy(fixture("models/mpt-alibi-4h") / "config.json", folder.path() / "config.json");
    const double reference = furthest(plain, logits_of(load_dynamic(folder.path())));
    const double cpu = furthest(plain, logits_of(load(folder.path(), backend::Cpu{})));
    CHECK((reference < 1e-4) == divided);
    CHECK((cpu < 1e-4) == divided);
  }
}

TEST_CASE("a narrow embedding adds its own bytes to a step") {
  const std::int64_t block = 4 * 48 * 48 + 2 * 48 * 96, projections = 2 * 48 * 32;
  CHECK(load_dynamic(fixture("models/opt-postln-proj")).info().step_bytes ==
        4 * (2 * block + projections + 97 * 32 + 32));
}
