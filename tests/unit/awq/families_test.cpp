// Every family is quantized completely: searched, folded, written, read on both backends.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "slm/backend/reference/reference.hpp"
#include "slm/io/config_json.hpp"
#include "slm/quantize.hpp"
#include "slm/speculative.hpp"
#include "support/paths.hpp"
#include "support/temporary.hpp"

using namespace slm;
namespace fs = std::filesystem;
using testing::TemporaryFolder;

namespace {

/// 96 characters and no merges: a tokenizer for the fixtures' vocabulary of 97.
Json character_tokenizer() {
  Json vocabulary;
  int id = 0;
  for (char letter = '!'; letter <= '~'; ++letter) vocabulary[std::string(1, letter)] = id++;
  vocabulary["\u0120"] = id++;  // a space
  vocabulary["\u010A"] = id++;  // a new line
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

/// The fixture of this family is 60 wide, not a multiple of words of eight codes.
void write_phi(const fs::path& folder) {
  fs::create_directories(folder);
  Json json = read_json_object(testing::fixture("models/phi-partial/config.json"));
  json["hidden_size"] = 64;
  json["num_attention_heads"] = json["num_key_value_heads"] = 4;
  json["partial_rotary_factor"] = 0.5;
  std::ofstream(folder / "config.json") << json.dump();
  const ModelDescription model = read_config_json(json, "config.json");
  std::vector<std::vector<float>> data;
  std::vector<Tensor> tensors;
  for (const auto& [name, shape, transposed] : TensorNames(model.config, model.settings, model.family->names).all()) {
    const bool matrix = shape.size() == 2, norm = name.ends_with("norm.weight");
    auto& values = data.emplace_back(static_cast<std::size_t>(matrix ? shape[0] * shape[1] : shape[0]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float noise = std::sin(12.9898f * static_cast<float>(i + 31 * data.size()));
      values[i] = (norm ? 1 : 0) + noise * (matrix ? 0.2f : 0.05f);
    }
    tensors.push_back({name, DType::f32, shape, reinterpret_cast<const std::byte*>(values.data()), 4 * values.size()});
  }
  write_safetensors(folder / "model.safetensors", tensors);
}

std::vector<float> logits_of(AnyModel model) {
  const std::vector<Token> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  Session session(std::move(model));
  const auto rows = session.forward(tokens, static_cast<int>(tokens.size()));
  return {rows.data, rows.data + rows.size()};
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double change = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    change += double{a[i] - b[i]} * double{a[i] - b[i]};
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(change / size);
}

}  // namespace

TEST_CASE("quantized models of every family") {
  struct {
    const char* name;
    std::size_t folds;
  } const families[] = {{"llama-bias", 4},
                        {"mistral-swa8", 4},
                        {"olmo-tied", 2},
                        {"olmo-clip-untied", 1},
                        {"mpt-alibi-4h", 4},
                        {"mpt-foundry-3b-like", 4},
                        {"mosaicgpt-qkln-alibi", 3},
                        {"phi", 2},
                        {"phi3-longrope", 4},
                        {"qwen2-bias-tied", 4},
                        {"qwen3-qknorm-headdim", 4},
                        {"opt-preln", 4},
                        {"gemma2", 4},
                        {"olmo3", 2},
                        {"stablelm-12b", 3},
                        {"gptneox-parallel", 3},
                        {"falcon-7b", 2},
                        {"internlm2", 4}};
  for (const auto& [name, folds] : families) {
    const TemporaryFolder folder;
    const fs::path model = folder.path() / "model", result = folder.path() / "result";
    std::string_view(name) == "phi" ? write_phi(model)
                                    : fs::copy(testing::fixture(std::string("models/") + name), model);
    std::ofstream(model / "tokenizer.json") << character_tokenizer().dump();
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the quick fox " + std::to_string(i * i % 97) + "\n";
    quantize::Options options;
    options.group = whole_row;
    options.calibration = {.samples = 4, .sequence_length = 32};
    options.search_samples = 2;
    CAPTURE(name);
    const auto report = quantize::quantize(model, result, folder.write("text.txt", text), options, backend::Cpu{1});
    REQUIRE(report.layers.size() == static_cast<std::size_t>(Checkpoint(model).config().layers));
    CHECK(report.layers.front().folds.size() == folds);
    for (const auto& fold : report.layers.front().folds) CHECK(fold.best <= fold.rounded);

    CHECK(has_int4_layers(Checkpoint(result)));
    const auto on_reference = logits_of(load(result, backend::Reference{}));
    CHECK(relative_difference(logits_of(load(result, backend::Cpu{1})), on_reference) < 1e-3);
    const double loss = relative_difference(on_reference, logits_of(load(model, backend::Reference{})));
    CHECK(loss > 1e-3);
    CHECK(loss < 0.6);
    if (std::string_view(name).starts_with("mpt-alibi")) {
      CHECK(Checkpoint(result).has("transformer.blocks.0.ffn.act.scales"));
    }
  }
}

TEST_CASE("a model without a quantizable layer is rejected") {
  const TemporaryFolder folder;
  quantize::Options options;
  options.search = false;
  options.group = 48;
  CHECK_THROWS_WITH(quantize::quantize(testing::fixture("models/phi-partial"), folder.path() / "out", {}, options),
                    Catch::Matchers::Contains("[quantize.unsupported]"));
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("architectures without a mapping are rejected before anything is written") {
  for (const char* name : {"gpt2", "opt-postln-proj", "bitnet-plain"}) {
    const TemporaryFolder folder;
    quantize::Options options;
    options.search = false;
    CHECK_THROWS_WITH(
        quantize::quantize(testing::fixture(std::string("models/") + name), folder.path() / "out", {}, options),
        Catch::Matchers::Contains("[quantize.unsupported]"));
    CHECK(fs::is_empty(folder.path()));
  }
}
